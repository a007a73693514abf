"""What is said of sharded checkpoints, whole or not."""

from __future__ import annotations

from pathlib import Path

from support.sharded_folders import identity, parts_path, write_part

from rla_client.contract.sharded_checkpoint.files import plan_note_name
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.records import PlanNote
from rla_client.contract.sharded_checkpoint.status import sharded_status


def test_whole_ones_come_first_and_others_name_what_is_missing(tmp_path: Path) -> None:
    for rank in range(2):
        write_part(tmp_path, identity(1), rank)
    publish_all(tmp_path)
    save = identity(2, world=8)
    for rank in (0, 1, 2, 4, 5, 6):
        write_part(tmp_path, save, rank)
    for rank in (3, 7):
        note = PlanNote(save.token, rank, 8, 1, "0" * 32, "node-b", {})
        (parts_path(tmp_path, save) / plan_note_name(rank)).write_bytes(note.encode())
    whole, other = sharded_status(tmp_path)
    assert str(whole) == "checkpoint_1: whole, 2 shards"
    assert (whole.whole, whole.path) == (True, tmp_path / "checkpoint_1.dcp")
    assert str(other) == "checkpoint_2: 6 of 8 shards; missing: rank 3, 7 (node-b)"
    assert (other.whole, other.shards, other.world, other.missing) == (False, 6, 8, (3, 7))
    assert sharded_status(tmp_path, "another") == []
    assert sharded_status(tmp_path / "nowhere") == []


def test_one_that_is_complete_but_has_not_its_name_is_whole(tmp_path: Path) -> None:
    for rank in range(2):
        write_part(tmp_path, identity(1), rank)
    publish_all(tmp_path)
    (tmp_path / "checkpoint_1.dcp").rename(parts_path(tmp_path, identity(1)))  # killed before the last step
    (found,) = sharded_status(tmp_path)
    assert found.whole
    assert found.path == parts_path(tmp_path, identity(1))


def test_a_folder_without_anything_says_so(tmp_path: Path) -> None:
    parts_path(tmp_path, identity(3)).mkdir(parents=True)
    (found,) = sharded_status(tmp_path)
    assert str(found) == "checkpoint_3: no shard is there"
