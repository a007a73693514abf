"""The points of a panel as CSV."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.panel_curves import write_rows
from support.written_runs import write_run

from rla_client.contract.errors import ArgumentError
from rla_client.web import panel_csv
from rla_client.web.panel_csv import as_csv
from rla_client.web.run_registry import Site


def told_csv(site: Site) -> str:
    async def read() -> bytes:
        parts = as_csv(site, {"runs": [0], "metric": "return"}).body_iterator
        return b"".join([part.encode() if isinstance(part, str) else bytes(part) async for part in parts])

    return asyncio.run(read()).decode()


def test_more_points_than_a_csv_holds_are_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_csv, "MAX_CSV_ROWS", 9)
    write_run(root)
    site = Site([root])
    site.look(wait=True)
    with pytest.raises(ArgumentError, match="10 points"):
        told_csv(site)


def test_csv_is_every_row(root: Path) -> None:
    write_rows(root, write_run(root, number=0), "return,time-step\n1.0,0\nnan,1\n0.1,2\n")
    site = Site([root])
    site.look(wait=True)
    lines = told_csv(site).splitlines()
    assert lines[0] == "table,index,metric,time-step,value"
    assert [line.split(",")[-2:] for line in lines[1:]] == [["0.0", "1.0"], ["1.0", "nan"], ["2.0", "0.1"]]
