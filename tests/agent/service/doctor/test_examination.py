"""`rla-agent doctor` as a command, and its page."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.examination import examine, report
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.contract.agent.places import Places

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "doctor.md"


def test_on_another_system_than_linux_that_is_all_it_finds(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    del places
    monkeypatch.setattr(sys, "platform", "darwin")
    (found,) = examine(Surroundings.here(None))
    assert (found.name, found.level) == ("system", "fault")


@pytest.mark.slow
def test_exit_codes_and_json(places: Places, system: Path, tmp_path: Path) -> None:
    del system
    command = [sys.executable, "-m", "rla_agent", "doctor"]
    places.stopped_marker.touch()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "rla-agent start --detach" in done.stdout
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    findings = json.loads(done.stdout)["findings"]
    assert {"name", "level", "what", "fix"} == set(findings[0])
    places.stopped_marker.unlink()
    notes = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert notes.returncode == (
        1 if any(f["level"] != "note" for f in json.loads(notes.stdout)["findings"]) else 0
    )


def test_every_finding_is_documented_and_tested() -> None:
    import re

    sources = (Path(__file__).resolve().parents[4] / "rla_agent" / "service" / "doctor").glob("*.py")
    text = "".join(path.read_text() for path in sources)
    names = set(re.findall(r'Finding\(\s*f?"([a-z{}-]+)"', text))
    names = {n.replace("{name}", kind) for n in names for kind in ("state", "runtime", "msgpack", "torch")}
    documented = set(re.findall(r"^\| `([a-z-]+)`", DOCUMENT.read_text(), re.MULTILINE))
    assert {
        n
        for n in names
        if n not in {"version-state", "version-runtime", "msgpack-permissions", "torch-permissions"}
    } == documented
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert not {
        name for name in documented if f'"{name}"' not in tests and name.partition("-")[2] != "permissions"
    }


def test_nothing_to_find(look: Callable[..., dict[str, Finding]]) -> None:
    assert look() == {}
    assert report([], 80) == "everything is as it should be"
