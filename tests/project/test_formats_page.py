"""The examples in docs/reference/formats.md are what a run writes, and its tables are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.docs_formats import PAGE, made, renewed

from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.spool.protocol import FRAME_HEADER, FRAME_MAGIC, PROTOCOL_VERSION

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="no checkout: the installed wheel is tested")


@pytest.mark.slow
def test_examples_are_what_a_run_writes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page, made(tmp_path)) == page, "renew it: PYTHONPATH=tests python -m support.docs_formats"


def test_each_kind_is_described() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) == set(DEFAULT_LOG_TYPES)


def test_the_table_of_a_frame_is_the_struct() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    fields = [(int(offset), int(size)) for offset, size in rows]
    assert fields == [(0, 2), (2, 1), (3, 1), (4, 4), (8, 4)]
    assert FRAME_HEADER.size == 12
    assert bytes.fromhex("f552") == FRAME_MAGIC
    assert PROTOCOL_VERSION == 1
