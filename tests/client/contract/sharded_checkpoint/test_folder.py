"""Sharded checkpoints as they lie in a folder."""

from __future__ import annotations

from pathlib import Path

from support.sharded_folders import identity, write_part

from rla_client.contract.sharded_checkpoint.files import WHOLE_FILE
from rla_client.contract.sharded_checkpoint.folder import read_whole
from rla_client.contract.sharded_checkpoint.publish import publish_all

SAVE = identity()


def test_a_damaged_whole_file_says_nothing(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_part(tmp_path, SAVE, rank)
    publish_all(tmp_path)
    path = tmp_path / "checkpoint_1.dcp"
    (path / WHOLE_FILE).write_bytes((path / WHOLE_FILE).read_bytes()[:-1])
    assert read_whole(path) is None
