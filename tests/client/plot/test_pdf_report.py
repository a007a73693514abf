"""Reports as a PDF: facts first, then a page for each metric."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rla_client.contract.errors import UnknownNameError
from rla_client.database import open as open_database
from rla_client.database.records.notes import change_note
from rla_client.plot.pdf_report import LINES, write_pdf


def test_a_page_of_facts_and_one_for_each_metric(seeds: Path, tmp_path: Path) -> None:
    database = open_database(seeds)
    records = database.records()
    change_note(seeds, records[0], display_name="$ no \\formula")
    out = tmp_path / "r.pdf"
    assert write_pdf(out, database, records, metrics=["return", "loss"]) == 3
    content = out.read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/Type3" not in content
    sizes = re.findall(rb"/MediaBox \[([^\]]+)\]", content)
    assert len(sizes) == 3
    assert len(set(sizes)) == 1  # one size, to be printed and shown together
    assert write_pdf(out, database, records, group=["seed", "lr"], smooth=3) == 2


def test_many_groups_take_further_pages(seeds: Path, tmp_path: Path) -> None:
    database = open_database(seeds)
    records = database.records()
    group = ["index"]
    many = records * (LINES // len(records) + 1)
    assert write_pdf(tmp_path / "r.pdf", database, many, group=group) == 2
    for number, record in enumerate(records):
        change_note(seeds, record, display_name=f"run {number}")
    assert write_pdf(tmp_path / "r.pdf", database, database.records(), group=["run"]) == 2


def test_an_unknown_metric_leaves_no_file(seeds: Path, tmp_path: Path) -> None:
    database = open_database(seeds)
    with pytest.raises(UnknownNameError, match="no run has a metric 'nope'"):
        write_pdf(tmp_path / "r.pdf", database, database.records(), metrics=["nope"])
    assert list(tmp_path.glob("*.pdf*")) == []
