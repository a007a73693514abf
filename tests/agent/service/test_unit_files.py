"""Unit files: what they name, and what they keep."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rla_agent.service.unit_files import (
    config_in,
    drop_in,
    install_system_unit,
    install_user_unit,
    known_roots,
    quote,
    user_unit,
)
from rla_client.contract.errors import ArgumentError


def test_user_unit_names_this_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "/some where")
    lines = install_user_unit(None)
    text = (tmp_path / "systemd/user/rla-agent.service").read_text()
    assert f'ExecStart="{sys.executable}" -m rla_agent start' in text
    assert 'Environment="XDG_STATE_HOME=/some where"' in text
    assert "/usr/bin/env rla-agent" not in text
    assert any("loginctl enable-linger" in line for line in lines)
    assert text == user_unit()


def test_a_unit_with_a_configuration(tmp_path: Path) -> None:
    config = tmp_path / "a %b.yaml"
    install_user_unit(tmp_path, config)
    text = (tmp_path / "rla-agent.service").read_text()
    assert f'start --config "{tmp_path}/a %%b.yaml"' in text
    assert config_in(text) == str(config)
    assert config_in(user_unit()) == ""
    assert text == user_unit(config=str(config))


def test_system_unit_keeps_the_roots_of_earlier_calls(tmp_path: Path) -> None:
    roots = [tmp_path / "a b", tmp_path / "c%d"]
    for root in roots:
        root.mkdir()
        lines = install_system_unit([root], "root", tmp_path / "units")
    path = tmp_path / "units" / "rla-agent@root.service.d" / "10-rla-agent.conf"
    assert known_roots(path) == [str(root) for root in roots]
    text = path.read_text()
    assert f'ReadWritePaths="-{roots[0]}"' in text
    assert str(roots[1]).replace("%", "%%") in text
    assert (tmp_path / "units" / "rla-agent@.service").exists()
    assert any("enable --now rla-agent@root.service" in line for line in lines)


def test_roots_below_tmp_are_bound_over_the_private_one() -> None:
    text = drop_in("/home/u/.local/state/rla-agent", ["/tmp/data", "/srv/data"])
    assert [line for line in text.splitlines() if line.startswith("BindPaths")] == ['BindPaths="-/tmp/data"']


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no user"):
        install_system_unit([], "nobody-of-that-name", tmp_path)
    with pytest.raises(ArgumentError, match="make it first"):
        install_system_unit([tmp_path / "missing"], "root", tmp_path)
    with pytest.raises(ArgumentError):
        quote("/data\nExecStart=/bin/evil")
