"""No module imports itself by way of others, imports inside functions included."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import rla_client

ROOT = Path(rla_client.__file__).parents[1]


def imported(path: Path, modules: set[str]) -> set[str]:
    """Modules of ours that a file names in any import statement."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


@pytest.mark.slow
def test_there_is_no_circle() -> None:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for top in ("rla_client", "rla_agent")
        for path in (ROOT / top).rglob("*.py")
        if "old_names" not in path.parts
    }
    graph = {name: imported(path, set(paths)) - {name} for name, path in paths.items()}
    assert len(graph) > 100
    circle: list[str] = []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1]
    assert circle == []
