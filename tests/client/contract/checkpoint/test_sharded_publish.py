"""Publication of sharded checkpoints: the table of steps, and the files they leave."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.sharded_folders import RUN, check_whole, identity, parts_path, write_part

from rla_client.contract.checkpoint import sharded_publish
from rla_client.contract.checkpoint.sharded_files import (
    LOCK_FILE,
    METADATA,
    STAGED_METADATA,
    WHOLE_FILE,
    Fence,
    KeptFile,
    Receipt,
    receipt_name,
    shard_name,
)
from rla_client.contract.checkpoint.sharded_publish import (
    NO_CHECKPOINT,
    Found,
    Step,
    finals_of,
    look,
    next_step,
    parts_of,
    publish,
    publish_all,
    raise_fence,
    read_fence,
    read_whole,
    remove,
    remove_final,
    whole_of,
)
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.process.locks import try_lock

SAVE = identity()
SHA = "0" * 64
ZERO = Receipt(SAVE, 0, "a", 5, (KeptFile("__0_0.distcp", 3, SHA),), KeptFile(METADATA, 9, SHA))
ONE = Receipt(SAVE, 1, "b", 4, (KeptFile("__1_0.distcp", 4, SHA),))
SIZES = {"__0_0.distcp": 3, "__1_0.distcp": 4, STAGED_METADATA: 9}
BOTH = Found(SAVE.token, {0: ZERO, 1: ONE}, SIZES)
PLACED = replace(BOTH, sizes={"__0_0.distcp": 3, "__1_0.distcp": 4, METADATA: 9})
WHOLE = replace(PLACED, whole=whole_of(BOTH.receipts))
LATER = Fence(RUN, SAVE.epoch + 1)

TABLE = {
    "nothing": (Found(SAVE.token, {}, {}), Step.WAIT),
    "rank 0 alone": (replace(BOTH, receipts={0: ZERO}), Step.WAIT),
    "without rank 0": (replace(BOTH, receipts={1: ONE}), Step.WAIT),
    "a shard is not there": (replace(BOTH, sizes={"__0_0.distcp": 3, STAGED_METADATA: 9}), Step.WAIT),
    "a shard is short": (replace(BOTH, sizes={**SIZES, "__1_0.distcp": 3}), Step.WAIT),
    "the metadata are short": (replace(BOTH, sizes={**SIZES, STAGED_METADATA: 8}), Step.WAIT),
    "rank 0 has no metadata": (replace(BOTH, receipts={0: replace(ZERO, metadata=None), 1: ONE}), Step.WAIT),
    "another layout": (
        replace(BOTH, receipts={0: ZERO, 1: replace(ONE, save=replace(SAVE, layout="M"))}),
        Step.WAIT,
    ),
    "another world": (
        replace(BOTH, receipts={0: ZERO, 1: replace(ONE, save=replace(SAVE, world=3))}),
        Step.WAIT,
    ),
    "all parts": (BOTH, Step.PUT_METADATA),
    "all parts, something older under the final name": (replace(BOTH, holder=1), Step.PUT_METADATA),
    "metadata placed": (PLACED, Step.WRITE_WHOLE),
    "whole": (WHOLE, Step.TAKE_NAME),
    "whole, and an older one": (replace(WHOLE, holder=4), Step.PUT_AWAY_OLDER),
    "whole, and a newer one": (replace(WHOLE, holder=6), Step.DISCARD),
    "whole, and something else": (replace(WHOLE, holder=NO_CHECKPOINT), Step.SET_ASIDE),
    "all parts of an earlier opening": (replace(BOTH, fence=LATER), Step.ABANDON),
    "whole, of an earlier opening": (replace(WHOLE, fence=LATER), Step.ABANDON),
    "some parts of an earlier opening": (replace(BOTH, receipts={1: ONE}, fence=LATER), Step.ABANDON),
    "of this opening": (replace(BOTH, fence=Fence(RUN, SAVE.epoch)), Step.PUT_METADATA),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_next_step(case: str) -> None:
    found, expected = TABLE[case]
    assert next_step(found) is expected


def test_every_step_is_in_the_table() -> None:
    assert {step for _, step in TABLE.values()} == set(Step)


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


def test_a_raised_fence_publishes_what_is_ready_and_abandons_the_rest(tmp_path: Path) -> None:
    ready, cut = identity(1, epoch=5), identity(2, epoch=5)
    for rank in (0, 1):
        write_part(tmp_path, ready, rank)
    write_part(tmp_path, cut, 0)
    raise_fence(tmp_path, RUN, 6)
    check_whole(tmp_path / "checkpoint_1.dcp")
    assert parts_of(tmp_path) == []
    aside = tmp_path / ".rla-parts"
    assert (aside / "abandoned-1" / parts_path(tmp_path, cut).name / shard_name(0)).is_file()
    for rank in (0, 1):  # a process that did not notice
        write_part(tmp_path, cut, rank)
    assert publish_all(tmp_path) == []
    assert finals_of(tmp_path) == ["checkpoint_1.dcp"]
    assert (aside / "abandoned-2" / parts_path(tmp_path, cut).name).is_dir()
    raise_fence(tmp_path, RUN, 5)  # never down again
    assert read_fence(tmp_path) == Fence(RUN, 6)


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


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: raise_fence(folder, RUN, 9),
        lambda folder: remove(folder, parts_path(folder, SAVE).name),
        lambda folder: remove_final(folder, "checkpoint_1.dcp", SAVE.token),
        publish_all,
    ],
    ids=["raise_fence", "remove", "remove_final", "publish"],
)
def test_what_changes_something_waits_for_the_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    write_part(tmp_path, SAVE, 0)
    monkeypatch.setattr(sharded_publish, "PUBLISHER_S", 0.1)
    with closing_fd(os.open(tmp_path / ".rla-parts" / LOCK_FILE, os.O_RDWR | os.O_CREAT)) as other:
        assert try_lock(other)
        before = sorted(os.listdir(tmp_path / ".rla-parts"))
        with pytest.raises(BlockingIOError, match="for long"):
            change(tmp_path)
        assert sorted(os.listdir(tmp_path / ".rla-parts")) == before
    change(tmp_path)


def test_a_damaged_whole_file_says_nothing(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_part(tmp_path, SAVE, rank)
    publish_all(tmp_path)
    path = tmp_path / "checkpoint_1.dcp"
    (path / WHOLE_FILE).write_bytes((path / WHOLE_FILE).read_bytes()[:-1])
    assert read_whole(path) is None
