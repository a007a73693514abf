"""Checkpoints that the Trainer wrote elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from support.written_runs import write_run

from rla_client.database.noted_checkpoints import NotedCheckpoint, noted_checkpoints
from rla_client.database.runs import Database
from rla_client.web.checkpoints import checkpoints
from rla_client.web.run_registry import Site


def note(root: Path, index: str, noted: Any) -> None:
    path = root / "archive_tester" / "task" / f"{index}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "custom_data": {"hf_checkpoints": noted}}))


def test_they_are_listed_with_the_runs_own(root: Path, rla: Callable[..., CompletedProcess[str]]) -> None:
    index = write_run(root)
    own = root / "checkpoint" / "task" / index
    (own / "completions").mkdir()
    (own / "completions" / "completions_00001.parquet").write_bytes(b"PAR1")
    note(root, index, ["/out/checkpoint-500", f"{own}/checkpoint-7", "/out/checkpoint-500", "/out/last", 3])
    assert noted_checkpoints(root, "task", index) == [
        NotedCheckpoint("/out/checkpoint-500", 500),
        NotedCheckpoint("/out/last", None),
    ]
    names = ["checkpoint_5.pt", "checkpoint_10.pt", "checkpoint_100.pt"]
    assert [path.name for path in Database(root).find("@last").checkpoints] == names
    shown = json.loads(rla("show", "@last", "-d", str(root), "--json").stdout)
    assert (shown["checkpoints"], shown["checkpoints_elsewhere"]) == (
        names,
        ["/out/checkpoint-500", "/out/last"],
    )
    assert "/out/checkpoint-500" in rla("show", "@last", "-d", str(root)).stdout
    site = Site([root])
    site.look(wait=True)
    found = checkpoints(site, {"run": f"0/task/{index}"})
    assert [(row[0], row[3]) for row in found["files"]] == [
        ("/out/checkpoint-500", 500),
        ("/out/last", None),
        *zip(names, (5.0, 10.0, 100.0), strict=True),
    ]
    assert found["count"] == 5


@pytest.mark.parametrize("noted", [None, 3, "text", {"a": 1}, [None, [], "x" * 5000]])
def test_notes_that_nobody_writes(root: Path, noted: Any) -> None:
    index = write_run(root)
    note(root, index, noted)
    assert noted_checkpoints(root, "task", index) == []
    (root / "archive_tester" / "task" / f"{index}.json").write_text("{")
    assert noted_checkpoints(root, "task", index) == []
