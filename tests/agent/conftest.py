"""What tests of `rla-agent doctor` share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.loop_disk import loop_disk  # noqa: F401 - a fixture

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.examination import examine
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.contract.agent.places import Places


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine, so that findings about this one do not come in between; no unit of this user."""
    found = tmp_path / "system"
    (found / "etc/systemd").mkdir(parents=True)
    (found / "var/lib/systemd/linger").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def look(places: Places, system: Path) -> Callable[..., dict[str, Finding]]:
    del places

    def findings(**changes: Any) -> dict[str, Finding]:
        around = replace(Surroundings.here(None), system=system, **changes)
        return {finding.name: finding for finding in examine(around)}

    return findings


@pytest.fixture
def fix() -> Callable[[Finding], None]:
    """Do what the finding says; only where it is a command of the shell."""

    def run(finding: Finding) -> None:
        done = subprocess.run(["sh", "-c", finding.fix], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (finding, done)

    return run
