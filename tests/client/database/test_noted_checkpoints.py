"""Checkpoints that the Trainer wrote elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from support.written_runs import write_run

from rla_client.contract.errors import ArgumentError
from rla_client.database.database import Database
from rla_client.database.noted_checkpoints import NotedCheckpoint, noted_checkpoints
from rla_client.manager import exp_manager
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


@pytest.mark.usefixtures("fresh_manager")
def test_what_a_call_noted_is_measured(tmp_path: Path, rla: Callable[..., CompletedProcess[str]]) -> None:
    root, out = tmp_path / "data", tmp_path / "out"
    exp_manager.configure("t", {"AGENT": {"autostart": False}}, root, code_root=tmp_path)
    exp_manager.log_files_gen()
    for wrong in ({"metrics": {"a": "b"}}, {"metrics": 3}, {"step": "x"}, {"marker": "../a"}):
        with pytest.raises(ArgumentError, match="note_checkpoint takes"):
            exp_manager.note_checkpoint(out, **wrong)
    exp_manager.note_checkpoint(out / "later", 5)
    exp_manager.note_checkpoint(out / "step-10", 10, {"eval/return": 2.5}, marker="done/.metadata")
    exp_manager.note_checkpoint(out / "step-20", 20, marker=".metadata")
    exp_manager.note_checkpoint(out / "step-20", 20, {"eval/return": 3}, marker=".metadata")
    exp_manager.close()
    (out / "step-10" / "done").mkdir(parents=True)
    (out / "step-10" / "done" / ".metadata").write_bytes(b"12")
    (out / "step-10" / "link").symlink_to("/etc")
    (out / "step-20").mkdir()
    (out / "step-20" / "shard").write_bytes(b"x" * 1000)
    expected = [
        {"path": f"{out}/later", "step": 5.0, "bytes": 0, "complete": False, "metrics": {}},
        {
            "path": f"{out}/step-10",
            "step": 10.0,
            "bytes": 2,
            "complete": True,
            "metrics": {"eval/return": 2.5},
        },
        {
            "path": f"{out}/step-20",
            "step": 20.0,
            "bytes": 1000,
            "complete": False,
            "metrics": {"eval/return": 3.0},
        },
    ]
    assert json.loads(rla("show", "@last", "-d", str(root), "--json").stdout)["checkpoints_noted"] == expected
    shown = rla("show", "@last", "-d", str(root)).stdout
    assert "step 20, 1.0 kB, not complete, eval/return 3: /" in shown
    index = Database(root).find("@last").index
    site = Site([root])
    site.look(wait=True)
    rows = checkpoints(site, {"run": f"0/t/{index}"})["files"]
    assert [row[4] for row in rows] == [
        "noted: not complete",
        "noted: complete, eval/return 2.5",
        "noted: not complete, eval/return 3",
    ]
    (archive,) = (root / "archive_tester").rglob("*.json")
    archive.write_text(archive.read_text().replace(os.uname().nodename, "elsewhere"))
    assert {(one.size, one.complete) for one in noted_checkpoints(root, "t", index)} == {(None, None)}
    assert sorted(path.name for path in out.iterdir()) == ["step-10", "step-20"]


@pytest.mark.parametrize(
    ("wrong", "complete"),
    [
        ({"path": "a"}, []),
        ({"path": "/\udc80"}, [False]),
        ({"path": "/a\0b"}, []),
        ({"marker": "../b"}, [None]),
        ({"step": 10**400}, [True]),
        ({"metrics": {"a": 10**400}}, [True]),
    ],
)
def test_calls_that_nobody_made(root: Path, wrong: dict[str, Any], complete: list[bool | None]) -> None:
    index = write_run(root)
    path = root / "archive_tester" / "task" / f"{index}.json"
    note = {"path": str(root), "step": 1, "metrics": {}, "marker": "", "host": os.uname().nodename, **wrong}
    path.write_text(json.dumps({"custom_data": {"noted_checkpoints": [note, 3, None]}}))
    assert [one.complete for one in noted_checkpoints(root, "task", index)] == complete
