"""docs/how-to/lake.md describes every view; what it shows is run by tests/project/test_docs.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rla_client.database.lake.sql_views import VIEWS

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "lake.md"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="no checkout: the installed wheel is tested")


def test_every_view_is_described() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(VIEWS)
