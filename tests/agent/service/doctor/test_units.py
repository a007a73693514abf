"""Findings about the installed systemd unit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings
from rla_agent.service.unit_files import install_user_unit


@pytest.fixture
def user_unit(tmp_path: Path, system: Path, look: Callable[..., dict[str, Finding]]) -> Path:
    """An installed, lingering user unit, and a systemctl that reaches nothing."""
    install_user_unit(None)
    (system / "var/lib/systemd/linger" / Surroundings.here(None).user).touch()
    assert look() == {}
    return tmp_path / "config/systemd/user/rla-agent.service"


def test_unit_stale(user_unit: Path, look: Callable[..., dict[str, Finding]]) -> None:
    user_unit.write_text(user_unit.read_text().replace("WatchdogSec=30", "WatchdogSec=3"))
    assert look()["unit-stale"].fix.startswith("rla-agent install-service")
    install_user_unit(None)
    assert look() == {}


def test_unit_interpreter(user_unit: Path, look: Callable[..., dict[str, Finding]]) -> None:
    user_unit.write_text(user_unit.read_text().replace(sys.executable, "/no/such/python"))
    assert "/no/such/python" in look()["unit-interpreter"].what
    install_user_unit(None)
    assert look() == {}


def test_unit_linger(user_unit: Path, look: Callable[..., dict[str, Finding]], system: Path) -> None:
    (linger,) = (system / "var/lib/systemd/linger").iterdir()
    linger.unlink()
    assert look()["unit-linger"].fix == f"loginctl enable-linger {linger.name}"
    linger.touch()
    assert look() == {}
    del user_unit


@pytest.mark.parametrize(
    ("answer", "name"), [("failed", "unit-failed"), ("", "unit-unreachable"), ("inactive", None)]
)
def test_unit_state(
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    name: str | None,
) -> None:
    from rla_client.contract.agent.systemd_unit import Unit

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(f"#!/bin/sh\necho {answer}\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert set(look(unit=Unit("rla-agent.service", system=False))) == ({name} if name else set())


@pytest.mark.slow
def test_unit_that_does_not_serve(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    from rla_client.contract.agent.systemd_unit import Unit

    unit = Unit("rla-agent.service", system=False)
    assert look(unit=unit)["unit-not-serving"].fix == "rla-agent restart"
    assert "unit-not-serving" not in look(unit=unit, holder={"pid": agent.pid, "service": "user"})
