"""Findings of `rla-agent doctor` about the state folder or the runtime folder."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_agent.model.problem import Finding
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import PlaceError


@pytest.mark.parametrize("kind", ["state", "runtime"])
def test_folder_open_to_others(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], places: Places, kind: str
) -> None:
    (places.state if kind == "state" else places.runtime).chmod(0o755)
    found = look()[f"{kind}-permissions"]
    assert "755" in found.what
    fix(found)
    assert look() == {}


def test_state_is_a_file(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], places: Places
) -> None:
    shutil.rmtree(places.state)
    places.state.write_text("")
    fix(look()["state-permissions"])
    assert "state-permissions" not in look()
    places.create()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_files_of_somebody_else(look: Callable[..., dict[str, Finding]], places: Places) -> None:
    places.log.write_text("")
    os.chown(places.log, 12345, 12345)
    found = look()["state-owner"]
    assert str(places.log) in found.what
    subprocess.run(shlex.split(found.fix)[1:], check=True)  # without sudo
    assert look() == {}


def test_a_path_that_others_can_change(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], tmp_path: Path, places: Places
) -> None:
    """Their folder above the state; then a home of that kind, which is done without."""
    tmp_path.chmod(0o777)
    found = look()["state-permissions"]
    assert f"{tmp_path} can be written by everybody" in found.what
    with pytest.raises(PlaceError, match=f"chmod o-w {tmp_path}"):
        places.create()
    fix(found)
    assert look() == {}


def test_a_home_that_others_can_change(
    fix: Callable[[Finding], None],
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RLA_STATE_DIR")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    home.chmod(0o777)
    found = look()["state-elsewhere"]
    assert f"/var/tmp/rla-agent-{os.geteuid()}" in found.what
    fix(found)
    assert "state-elsewhere" not in look()


def test_a_missing_state_folder_below_somebody_elses(
    look: Callable[..., dict[str, Finding]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "file" / "state"))
    assert "RLA_STATE_DIR" in look()["state-permissions"].fix
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "mine"))
    assert "state-permissions" not in look()
