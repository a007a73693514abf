"""Copies of an earlier run's files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from support.killed_child import killed_at
from support.sharded_folders import check_whole, identity, write_part

from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.run.resume.fork_files import _copy


def test_sharded_checkpoints_are_taken_over_whole_and_saves_in_the_making_are_not(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    for folder, attempt in ((source, 0), (target, 1)):
        folder.mkdir()
        for rank in range(2):
            write_part(folder, identity(attempt=attempt), rank, attempt)
        publish_all(folder)
    write_part(source, identity(2), 0)
    (source / "checkpoint_1.pt").write_bytes(b"x")
    calls = 0
    while killed_at(calls, partial(_copy, source, target, f"before-fork-{calls}")):
        calls += 4
        for path in target.glob("*.dcp"):
            check_whole(path)
    assert calls > 8
    assert check_whole(target / "checkpoint_1.dcp") == 0
    assert any(check_whole(path) == 1 for path in target.glob("before-fork*/checkpoint_1.dcp"))
    assert not list((target / ".rla-parts").glob("checkpoint_2*"))
    assert (target / "checkpoint_1.pt").read_bytes() == b"x"
