"""The README's commands and make targets exist; its blocks and links are tested by test_docs.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
pytestmark = pytest.mark.skipif(not README.exists(), reason="no checkout: the installed wheel is tested")


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
