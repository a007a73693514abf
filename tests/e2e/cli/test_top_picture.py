from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.top_picture import make_runs, take

pytest.importorskip("textual")

PICTURE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "top" / "runs.svg"


def test_the_picture_of_the_docs(root: Path, tmp_path: Path) -> None:
    make_runs(root)
    asyncio.run(take(root, tmp_path / "runs.svg"))
    assert "hopper" in (tmp_path / "runs.svg").read_text(encoding="utf-8")


@pytest.mark.skipif(not PICTURE.parents[2].exists(), reason="no checkout: the installed wheel is tested")
def test_it_is_there() -> None:
    assert "<svg" in PICTURE.read_text(encoding="utf-8")[:200]
