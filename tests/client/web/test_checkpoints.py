"""The checkpoints of a run on the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from support.run_files import OneRun
from support.sharded_folders import identity, write_part

from rla_client.contract.sharded_checkpoint.publish import publish_all

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


def test_a_sharded_checkpoint_is_one_of_them(
    root: Path, make_run: MakeRun, page_server: Callable[..., PageServer]
) -> None:
    index = make_run()
    folder = root / "checkpoint" / "task" / str(index)
    folder.mkdir(parents=True, exist_ok=True)
    for step, ranks in ((5, 2), (7, 1)):
        for rank in range(ranks):
            write_part(folder, identity(step), rank)
    publish_all(folder)
    size = sum(path.stat().st_size for path in (folder / "checkpoint_5.dcp").glob("__*"))
    found = page_server(root).ask("checkpoints", {"run": f"0/task/{index}"})
    rows = [(name, bytes_, step, where) for name, bytes_, _, step, where in found["files"] if ".dcp" in name]
    assert sorted(rows) == [
        ("checkpoint_5.dcp", size, 5, "here: 2 shards"),
        ("checkpoint_7.dcp", 0, 7, "not whole: 1 of 2 shards; missing: rank 1"),
    ]


def test_checkpoints_here_and_on_the_master(one: OneRun) -> None:
    folder = one.folder("checkpoint")
    (folder / ".resume").mkdir()
    (folder / ".resume" / "checkpoint_5.state").write_bytes(b"1")
    (folder / ".rla-pruned").mkdir()
    note = {
        "path": f"checkpoint/task/{one.index}/checkpoint_50.pt",
        "size": 7,
        "sha256": "",
        "mtime_ns": 1,
        "pruned_at": 1,
    }
    (folder / ".rla-pruned" / "checkpoint_50.pt.json").write_text(
        json.dumps({**note, "target": "sftp://m/r"})
    )
    found = one.ask("checkpoints")
    assert [(name, step, where) for name, _, _, step, where in found["files"]] == [
        ("checkpoint_5.pt", 5, "here"),
        ("checkpoint_10.pt", 10, "here"),
        ("checkpoint_50.pt", 50, "sftp://m/r"),
        ("checkpoint_100.pt", 100, "here"),
    ]
    assert found["bytes"] == 3 * 3 + 7
