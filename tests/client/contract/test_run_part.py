"""Files of a run's parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rla_client.contract.run_part import (
    part_machine,
    part_problem,
    run_file_name,
    run_parts,
    system_file_name,
)


def test_names_lead_to_the_machine_and_back() -> None:
    assert run_file_name("") == "run.json"
    assert system_file_name("") == "system.csv"
    assert part_machine(run_file_name("node-b-0a1b2c")) == "node-b-0a1b2c"
    for other in ("run.json", "run.part.json", "run.part..json", "run.part.a.b.json", "run.part.-x.json"):
        assert part_machine(other) == ""


def test_parts_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    (tmp_path / run_file_name("a-1")).write_text(json.dumps({"state": "running"}))
    (tmp_path / run_file_name("b-2")).write_text("{half")
    (tmp_path / run_file_name("c-3")).write_text("[]")
    assert run_parts(tmp_path) == {"a-1": {"state": "running"}}
    assert run_parts(tmp_path / "nowhere") == {}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"state": "running", "updated": 1000.0}, ""),
        ({"state": "finished"}, ""),
        ({"state": "running", "updated": 1.0}, "not heard of"),
        ({"state": "removed"}, "removed"),
        ({"state": "running", "updated": 1000.0, "ranks": {"rank3": {"state": "killed"}}}, "rank3 killed"),
        (
            {"state": "failed", "ranks": {f"rank{n}": {"state": "failed"} for n in range(10)}},
            ", ".join(f"rank{n} failed" for n in range(8)) + " and 2 more",
        ),
        ({"state": "running", "ranks": ["odd"]}, ""),
    ],
)
def test_what_is_wrong_with_a_part_is_said(part: dict[str, object], words: str) -> None:
    assert part_problem(part, 1010.0, 180.0) == words
