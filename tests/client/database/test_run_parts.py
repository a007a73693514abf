"""Parts of a run in what readers show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rla_client.contract.run_part import run_file_name
from rla_client.database.records.record_reader import read_record
from rla_client.database.run_parts import parts_text


def put(folder: Path, machine: str, **part: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / run_file_name(machine)).write_text(json.dumps(part))


def test_dead_parts_are_named_and_the_others_counted(tmp_path: Path) -> None:
    run = {"state": "finished"}
    assert parts_text(tmp_path, run, 0.0) == []
    put(tmp_path, "b-1", state="finished", updated=1.0)
    assert parts_text(tmp_path, run, 1e9) == ["2 of 2 parts"]
    put(tmp_path, "c-2", state="running", updated=1.0, lost=3, losses=[])
    assert parts_text(tmp_path, run, 1e9)[:2] == ["2 of 3 parts", "c-2: not heard of"]
    assert "c-2 lost" in parts_text(tmp_path, run, 1e9)[2]
    ranks = {"rank4": {"state": "killed"}, "rank5": {"state": "running"}}
    put(tmp_path, "b-1", state="running", updated=1e9, ranks=ranks)
    assert parts_text(tmp_path, run, 1e9)[:2] == ["1 of 3 parts", "b-1: rank4 killed"]
    assert parts_text(tmp_path, {}, 1e9)[0] == "0 of 2 parts that are here"


def test_where_a_part_lies_alone_it_is_the_run(tmp_path: Path) -> None:
    index = "2026/11/29/09-30-01-123456_10.0.0.5_&"
    put(tmp_path / "log" / "t" / index, "b-1", state="killed", host="b", updated=5.0, reason="rank1: killed")
    record = read_record(tmp_path, "t", index, ("log",))
    assert (record.state, record.host, record.told["reason"]) == ("killed", "b", "rank1: killed")
