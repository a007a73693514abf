"""How old checkpoint files are: by their stamps, whatever their time-steps, copies and clocks say."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from support.sharded_folders import identity, write_part
from support.stamped import stamped

from rla_client.contract.checkpoint.checkpoint_age import SaveTime, newest_order, oldest_first, save_time
from rla_client.contract.item.prune_notes import PrunedFile, write_note
from rla_client.contract.sharded_checkpoint.publish import publish_all


def test_the_order_of_saves_counts_and_survives_copies(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    for order, step in ((3, 30), (1, 10), (2, 40), (4, 5)):
        stamped(first, step, order)
    shutil.copytree(first, second, copy_function=shutil.copyfile)
    for name in sorted(os.listdir(second)):
        os.utime(second / name)  # all in another order, and now
    for folder in (first, second):
        found = [save_time(folder, f"checkpoint_{step}.pt", step) for step in (5, 10, 30, 40)]
        assert [one.time_step for one in oldest_first(found)] == [10, 40, 30, 5]
        assert newest_order(folder) == 4


def test_files_without_a_stamp_are_ordered_by_number_or_stand_among_others_by_time() -> None:
    bare = [
        SaveTime("a_10.pt", 10, 5, None),
        SaveTime("a_9.pt", 9, 7, None),
        SaveTime("best.pt", -1, 9, None),
    ]
    assert [one.name for one in oldest_first(bare)] == ["best.pt", "a_9.pt", "a_10.pt"]
    mixed = [*bare, SaveTime("a_3.pt", 3, 0, 6)]
    assert [one.name for one in oldest_first(mixed)] == ["a_10.pt", "a_3.pt", "a_9.pt", "best.pt"]


def test_a_note_of_a_pruned_file_keeps_its_order(tmp_path: Path) -> None:
    stamped(tmp_path, 20, 8)
    note = PrunedFile("c/checkpoint_10.pt", 1, "00", 7, "sftp://a@b/c", 1.5, 0o600, 9)
    write_note(tmp_path, note)
    assert save_time(tmp_path, "checkpoint_10.pt", 10) == SaveTime("checkpoint_10.pt", 10, 7, 9)
    assert newest_order(tmp_path) == 9
    assert newest_order(tmp_path / "none") == 0


def test_a_sharded_checkpoint_has_the_age_of_its_save(tmp_path: Path) -> None:
    for step, order in ((5, 70), (9, 60)):
        for rank in (0, 1):
            write_part(tmp_path, identity(step), rank, order)
    publish_all(tmp_path)
    ages = oldest_first(save_time(tmp_path, f"checkpoint_{step}.dcp", step) for step in (5, 9))
    assert [one.time_step for one in ages] == [9, 5]
    assert newest_order(tmp_path) == 70
