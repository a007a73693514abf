"""What of a data root a machine sends."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.replication_lab import ITEM

from rla_agent.replicate.worker.scan import Scanner, ScanScope


def scanner(root: Path, host: str = "b") -> Scanner:
    return Scanner(os.fsencode(root), ScanScope(host=host))


def put(path: Path, **content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def sent(found: Scanner) -> set[str]:
    return {os.fsdecode(name) for folder in found.item(ITEM) for name in folder.files}


def test_a_part_that_lies_alone_is_sent_by_its_machine(tmp_path: Path) -> None:
    log = tmp_path / "log" / ITEM
    put(log / "run.part.b-1.json", host="b", state="running")
    (log / "progress.rank1.csv").touch()
    found = scanner(tmp_path)
    assert sent(found) == {"run.part.b-1.json", "progress.rank1.csv"}
    run = found.run(ITEM)
    assert run is not None
    assert (run.part, run.live) == ("b-1", True)
    assert sent(scanner(tmp_path, "a")) == set()
    put(log / "run.part.b-1.json", host="b", state="running", replicate=False)
    assert sent(found) == set()


def test_in_a_shared_folder_the_machine_of_run_json_sends(tmp_path: Path) -> None:
    log = tmp_path / "log" / ITEM
    put(log / "run.part.b-1.json", host="b", state="killed", replicate=False)
    put(log / "run.json", host="a", state="running")
    assert sent(scanner(tmp_path, "a")) == {"run.json", "run.part.b-1.json"}
    assert sent(scanner(tmp_path, "b")) == set()


@pytest.mark.parametrize(
    ("content", "goes"),
    [
        ({"opening": {"replicate": True}}, True),
        ({"opening": {"replicate": False}}, False),
        ({"opening": {"offline": True}}, False),
        ({"opening": {"master": True}}, False),
        ({"opening": {}, "relayed": True}, False),
        ({"opening": "odd"}, False),
        ({}, False),
    ],
)
def test_a_jobs_file_goes_where_its_run_does(tmp_path: Path, content: dict[str, object], goes: bool) -> None:
    put(tmp_path / ".rla-jobs" / "0.json", **content)
    (tmp_path / ".rla-jobs" / "1.json").write_text("{half")
    found = scanner(tmp_path)
    names = [set(folder.files) for folder in found.jobs()]
    assert names == ([{b"0.json"}] if goes else [])
    assert not list(scanner(tmp_path / "log").jobs())
