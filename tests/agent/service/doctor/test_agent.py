"""Findings about the running agent: damage made, finding seen, fix applied, finding gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.problem import Finding


@pytest.mark.slow
def test_problems_of_the_agent(
    agent: Any, look: Callable[..., dict[str, Finding]], wait_until: Callable[..., Any]
) -> None:
    stream = agent.places.spool / "0123456789abcdef-1-00000000"
    stream.mkdir()
    (stream / "000001.seg").write_bytes(b"junk" * 25)
    wait_until(lambda: {"agent-problem", "spool-damaged"} <= set(look()), what="both findings")
    shutil.rmtree(stream)


def test_problems_of_replication(look: Callable[..., dict[str, Finding]]) -> None:
    found = look(replication=({"what": "held up: refused", "fix": "is it up?"},))["replication-problem"]
    assert (found.level, found.what, found.fix) == ("warning", "held up: refused", "is it up?")
    assert look() == {}  # with a master that is down: tests/agent/replicate/worker/test_outage_log.py


@pytest.mark.slow
def test_version_of_the_agent(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    status = agent.status()
    status["agent"]["version"] = "0.0.1"
    assert look(status=status)["version-agent"].fix == "rla-agent restart"
    assert look() == {}


@pytest.mark.parametrize(
    "library",
    [("msgpack", "version-msgpack", "1.0.0", "1.2.1"), ("torch", "version-torch", "2.9.1+cpu", "2.10")],
)
def test_versions_of_libraries(
    look: Callable[..., dict[str, Finding]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: tuple[str, str, str, str],
) -> None:
    name, finding, version, least = library
    old = tmp_path / "old" / f"{name}-{version}.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(old.parent))
    assert look()[finding].fix == f"pip install '{name}>={least}'"
    (old / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {least}\n")
    assert look() == {}
    shutil.rmtree(old)
