"""Publication of sharded checkpoints: the files that its steps leave."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

from support.sharded_folders import check_whole, identity, parts_path, write_part

from rla_client.contract.sharded_checkpoint.files import LOCK_FILE, receipt_name, shard_name
from rla_client.contract.sharded_checkpoint.folder import look, parts_of
from rla_client.contract.sharded_checkpoint.publish import publish, publish_all

SAVE = identity()


def test_a_save_is_published_when_the_last_receipt_is_there(tmp_path: Path) -> None:
    write_part(tmp_path, SAVE, 1)
    assert publish_all(tmp_path) == []
    assert look(tmp_path, parts_of(tmp_path)[0]).missing == [0]
    write_part(tmp_path, SAVE, 0)
    (whole,) = publish_all(tmp_path)
    assert check_whole(tmp_path / "checkpoint_1.dcp") == whole.order
    assert parts_of(tmp_path) == []
    assert publish(tmp_path, parts_path(tmp_path, SAVE).name) == whole  # again: nothing to do


def test_what_is_no_receipt_is_passed_over(tmp_path: Path) -> None:
    write_part(tmp_path, SAVE, 0)
    here = parts_path(tmp_path, SAVE)
    other = replace(SAVE, token="0" * 16)
    write_part(tmp_path, other, 1)
    os.rename(parts_path(tmp_path, other) / receipt_name(1), here / receipt_name(1))  # of another save
    assert publish(tmp_path, here.name) is None
    (here / receipt_name(1)).unlink()
    os.symlink(here / receipt_name(0), here / receipt_name(1))
    assert publish(tmp_path, here.name) is None
    os.unlink(here / receipt_name(1))
    write_part(tmp_path, SAVE, 1)
    os.rename(here / shard_name(1), tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", here / shard_name(1))
    assert publish(tmp_path, here.name) is None


def test_a_later_save_of_the_same_step_takes_the_name(tmp_path: Path) -> None:
    for attempt, order in ((0, 1), (1, 2)):
        save = identity(attempt=attempt)
        for rank in (1, 0):
            write_part(tmp_path, save, rank, order)
        publish_all(tmp_path)
        assert check_whole(tmp_path / "checkpoint_1.dcp") == order
    for rank in (1, 0):  # one that comes late is no newer
        write_part(tmp_path, identity(attempt=2), rank, 1)
    publish_all(tmp_path)
    assert check_whole(tmp_path / "checkpoint_1.dcp") == 2
    assert os.listdir(tmp_path / ".rla-parts") == [LOCK_FILE]


def test_what_is_no_checkpoint_of_ours_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_1.dcp").mkdir()
    (tmp_path / "checkpoint_1.dcp" / "mine").write_text("keep")
    for rank in (1, 0):
        write_part(tmp_path, SAVE, rank)
    publish_all(tmp_path)
    check_whole(tmp_path / "checkpoint_1.dcp")
    assert (tmp_path / "abandoned-1" / "checkpoint_1.dcp" / "mine").read_text() == "keep"


def test_several_publishers_at_once(tmp_path: Path) -> None:
    faults: list[BaseException] = []

    def work(start: threading.Barrier) -> None:
        try:
            start.wait(10)
            publish_all(tmp_path)
        except BaseException as error:  # noqa: BLE001 - told below
            faults.append(error)

    for attempt in range(20):
        for rank in (0, 1):
            write_part(tmp_path, identity(attempt=attempt), rank, attempt)
        start = threading.Barrier(4)
        threads = [threading.Thread(target=work, args=(start,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert not faults
        assert check_whole(tmp_path / "checkpoint_1.dcp") == attempt
        assert parts_of(tmp_path) == []
