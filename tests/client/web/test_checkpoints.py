"""The checkpoints of a run on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

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
