"""Each picture that docs/gallery.md shows is there and small; tests/project/test_docs.py makes them anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="no checkout: the installed wheel is tested")
MAX_PICTURE_BYTES = 100_000


def test_the_pictures_are_there_and_small() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(gallery/(\w+\.png)\)", page))
    assert shown == set(os.listdir(DOCS / "gallery"))
    assert max((DOCS / "gallery" / name).stat().st_size for name in shown) < MAX_PICTURE_BYTES
