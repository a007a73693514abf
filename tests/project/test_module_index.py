"""The index of modules is that of the code."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_index_of_modules_is_as_the_code_is() -> None:
    made = runpy.run_path(str(ROOT / ".ci" / "module_index.py"))["index"]()
    assert (ROOT / "docs" / "modules.md").read_text(encoding="utf-8") == made, "write it anew: make man"
