"""Removal of sharded checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

from support.sharded_folders import check_whole, identity, write_part

from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.removal import remove_final

SAVE = identity()


def test_a_checkpoint_goes_at_once(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_part(tmp_path, SAVE, rank)
    publish_all(tmp_path)
    remove_final(tmp_path, "checkpoint_1.dcp", SAVE.token)
    assert os.listdir(tmp_path) == [".rla-parts"]
    remove_final(tmp_path, "checkpoint_1.dcp", SAVE.token)


def test_a_newer_checkpoint_of_the_name_stays(tmp_path: Path) -> None:
    for attempt, order in ((0, 1), (1, 2)):
        for rank in (0, 1):
            write_part(tmp_path, identity(attempt=attempt), rank, order)
        publish_all(tmp_path)
    remove_final(tmp_path, "checkpoint_1.dcp", identity(attempt=0).token)
    assert check_whole(tmp_path / "checkpoint_1.dcp") == 2
