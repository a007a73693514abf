"""Parts of a run in what readers show: the same words in each of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from support.written_runs import write_run

from rla_client.contract.run_part import run_file_name
from rla_client.database.database import Database
from rla_client.database.records.record_reader import read_record
from rla_client.database.records.row_view import RowView
from rla_client.database.run_parts import parts_of, parts_text, parts_told
from rla_client.mcp.tools import Tools
from rla_client.web import run_list, run_overview
from rla_client.web.run_registry import Site

Rla = Callable[..., CompletedProcess[str]]


def put(folder: Path, machine: str, **part: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / run_file_name(machine)).write_text(json.dumps(part))


def lines(folder: Path, run: dict[str, Any], now: float) -> list[str]:
    return parts_text(json.loads(json.dumps(parts_told(folder, run))), now)


def test_dead_parts_are_named_and_the_others_counted(tmp_path: Path) -> None:
    run = {"state": "finished"}
    assert lines(tmp_path, run, 0.0) == []
    put(tmp_path, "b-1", state="finished", updated=1.0)
    assert lines(tmp_path, run, 1e9) == ["2 of 2 parts"]
    put(tmp_path, "c-2", state="running", updated=1.0, lost=3, losses=[])
    assert lines(tmp_path, run, 1e9)[:2] == ["2 of 3 parts", "c-2: not heard of"]
    assert "c-2 lost" in lines(tmp_path, run, 1e9)[2]
    assert lines(tmp_path, run, 5.0)[0] == "3 of 3 parts", "it was heard of by then"
    ranks = {"rank4": {"state": "killed"}, "rank5": {"state": "running"}}
    put(tmp_path, "b-1", state="running", updated=1e9, ranks=ranks)
    assert lines(tmp_path, run, 1e9)[:2] == ["1 of 3 parts", "b-1: rank4 killed"]
    assert lines(tmp_path, {}, 1e9)[0] == "0 of 2 parts that are here"


def test_where_a_part_lies_alone_it_is_the_run(tmp_path: Path) -> None:
    index = "2026/11/29/09-30-01-123456_10.0.0.5_&"
    put(tmp_path / "log" / "t" / index, "b-1", state="killed", host="b", updated=5.0, reason="rank1: killed")
    record = read_record(tmp_path, "t", index, ("log",))
    assert (record.state, record.host, record.told["reason"]) == ("killed", "b", "rank1: killed")


def test_every_reader_names_a_dead_part(root: Path, rla: Rla) -> None:
    plain, spread = write_run(root, number=1), write_run(root, number=2)
    ranks = {"rank4": {"state": "killed"}, "rank5": {"state": "running"}}
    put(root / "log" / "task" / spread, "b-1", state="running", updated=time.time(), ranks=ranks)
    words = "1 of 2 parts; b-1: rank4 killed"
    database = Database(root)
    one, two = database.records()
    now = time.time()
    assert (parts_of(one, now), "; ".join(parts_of(two, now))) == ([], words)
    assert RowView(two, now)["parts"] == words
    assert [row["parts"] for row in json.loads(rla("ls", "-d", str(root), "--json").stdout)] == [None, words]
    assert words in rla("ls", "-d", str(root), columns=200).stdout
    assert (
        words in rla("ls", "-d", str(root), "--where", "parts is not None", "-c", "parts", columns=200).stdout
    )
    assert "parts" not in rla("ls", "-d", str(root), "-r", plain, columns=200).stdout
    shown_lines = [line.split() for line in rla("show", spread, "-d", str(root)).stdout.splitlines()]
    assert ["parts", "1", "of", "2", "parts"] in shown_lines
    assert ["b-1:", "rank4", "killed"] in shown_lines
    assert json.loads(rla("show", spread, "-d", str(root), "--json").stdout)["parts"] == words.split("; ")
    tools = Tools(database)
    assert f"parts: {words}" in tools.run(spread)
    assert "parts:" not in tools.run(plain)
    site = Site([root])
    listed = run_list.rows(site, 0)
    place = listed["index"].index(spread)
    assert (listed["parts"][place], listed["problem"][place]) == (words, "part b-1: rank4 killed")
    shown = run_overview.overview(site, {"run": f"0/task/{spread}"})
    assert (shown["parts"], shown["problems"]) == ("1 of 2 parts", ["part b-1: rank4 killed"])
    assert run_overview.overview(site, {"run": f"0/task/{plain}"})["parts"] is None
