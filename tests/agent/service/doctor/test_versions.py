"""Findings of `rla-agent doctor` about versions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.problem import Finding


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
