"""The environment of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support.one_run import name, rewrite

from rla_client.web.diff_lines import MAX_DIFF_LINES

if TYPE_CHECKING:
    from support.page_lab import PageServer


def test_environment_and_diff(root: Path, server: PageServer, index: str) -> None:
    lines = "\n".join(f"+line {n}" for n in range(MAX_DIFF_LINES + 10))
    git = {"commit": "abc", "dirty": True, "diff": {"state": "complete", "text": lines}}
    rewrite(root, index, "environment.json", command=["python", "x.py"], git=git, packages={"a": "1"})
    found = server.ask("environment", {"run": name(index)})
    assert found["environment"]["command"] == ["python", "x.py"]
    assert found["git"] == {"commit": "abc", "dirty": True}
    assert (len(found["diff"]["lines"]), found["diff"]["count"]) == (MAX_DIFF_LINES, MAX_DIFF_LINES + 10)
    assert found["kinds"]["checkpoint"] == [9, 3, False]
