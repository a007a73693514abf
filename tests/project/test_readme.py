"""The README's links, commands, variables and code are real."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
pytestmark = pytest.mark.skipif(not README.exists(), reason="no checkout: the installed wheel is tested")


def fenced(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_agent_commands_exist() -> None:
    named = set(re.findall(r"`?rla-agent ([a-z]+)", README.read_text(encoding="utf-8")))
    done = subprocess.run(
        [sys.executable, "-m", "rla_agent", "--help"], capture_output=True, text=True, check=True, timeout=180
    )
    assert named
    assert {name for name in named if not re.search(rf"\b{name}\b", done.stdout)} == set()


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", README.read_text(encoding="utf-8")))
    assert named
    assert named <= targets


def test_python_blocks_use_names_that_exist() -> None:
    import rla_client

    for block in fenced("python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "rla_client":
                assert [name.name for name in node.names if not hasattr(rla_client, name.name)] == []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = getattr(rla_client, node.value.id, None)
                assert owner is None or hasattr(owner, node.attr), f"{node.value.id}.{node.attr}"
