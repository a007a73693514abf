"""Each example of docs/examples.md runs, shorter than there, and its picture can be drawn."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.example_pictures import ALL, GRPO, Example
from support.replication_lab import SSHD

PNG = b"\x89PNG\r\n\x1a\n"
BRIEF = ("garage",)
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(one, id=one.name, marks=() if one.name in BRIEF else pytest.mark.further)
        for one in ALL
        if one is not GRPO
    ],
)
def test_it_runs_and_draws(example: Example, tmp_path: Path) -> None:
    for module in example.modules:
        pytest.importorskip(module)
    if example.name == "two_machines" and (os.geteuid() != 0 or not os.access(SSHD, os.X_OK)):
        pytest.skip("two machines on one need root and OpenSSH's server")
    assert example.play(tmp_path, short=True).read_bytes().startswith(PNG)


def test_the_page_shows_each_example() -> None:
    page = (DOCS / "examples.md").read_text(encoding="utf-8")
    pictures = re.findall(r"\(examples/(\w+)\.png\)", page)
    assert pictures == [example.name for example in ALL]
    assert {path.stem for path in (DOCS / "examples").iterdir()} == set(pictures)
    for example in ALL:
        for line in example.lines:
            assert f" examples/{line}\n" in page, line
        assert not example.picture or f"rla plot {example.picture}\n" in page
