"""The place of sharded saves, and what becomes of those of earlier openings."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from support.sharded_folders import identity, write_part

from rla_client.checkpoint.rank_group import rank_group
from rla_client.checkpoint.sharded_save import CheckpointPlace
from rla_client.contract.layout import CHECKPOINT, HYPARAMETER, PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.folder import waiting_parts
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.run import sharded_place
from rla_client.run.sharded_place import PlaceMeeting, Told
from rla_client.run.sharded_run import ShardedRun

torch = pytest.importorskip("torch", reason="needs PyTorch")


def test_what_a_closed_opening_saved_is_asked_for_before_the_next_one_abandons_it(
    open_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(sharded_place, "warn", told.append)
    folder = Path(open_run.item.folder(CHECKPOINT))
    write_part(folder, identity(7), 0, 7, beside=(0,))
    publish_all(folder)
    assert len(waiting_parts(folder)) == 1
    assert ShardedRun(folder, open_run.run.opening, open_run.setup).place is not None
    assert len(told) == 1
    assert "could not be asked: no agent" in told[0]


def test_a_word_that_shows_late_is_waited_for_on_a_shared_disk(open_run: Any) -> None:
    folder = Path(open_run.item.folder(CHECKPOINT))
    word = folder / PARTS_FOLDER / "here-x"
    made = PlaceMeeting(rank_group(), None, None, open_run.setup)
    told = Told(
        CheckpointPlace(folder, open_run.run.opening.run, 1), open_run.run.opening, "another", word.name
    )

    def leave() -> None:
        word.parent.mkdir(parents=True, exist_ok=True)
        word.write_bytes(b"")

    late = threading.Timer(0.5, leave)
    late.start()
    assert made._look(told)[1].word == word.name
    late.join()


def test_machines_may_have_own_disks_at_one_path(open_run: Any) -> None:
    folder = Path(open_run.item.folder(CHECKPOINT))
    made = PlaceMeeting(rank_group(), None, None, open_run.setup)
    told = Told(
        CheckpointPlace(folder, open_run.run.opening.run, 1), open_run.run.opening, "another", "here-x"
    )
    shutil.rmtree(open_run.item.folder(HYPARAMETER))  # as where another machine has the main process
    where, answer = made._look(told)
    assert (where, answer.problem) == (folder, "")
    assert answer.word != told.word
