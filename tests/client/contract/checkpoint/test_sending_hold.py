"""Checkpoints that retention leaves to whoever sends them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.sharded_folders import RUN, identity, write_part
from support.stamped import stamped

from rla_client.contract.checkpoint.checkpoint_removal import remove_dropped, remove_superseded
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.checkpoint.dropped_note import dropped
from rla_client.contract.checkpoint.sending_hold import hold, is_held
from rla_client.contract.sharded_checkpoint.files import WHOLE_FILE
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.retention import (
    remove_dropped_sharded,
    remove_superseded_sharded,
)

KEEP = Retention(max_to_keep=1)


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))


def test_a_held_file_goes_once_it_is_let_go(tmp_path: Path) -> None:
    held = hold(stamped(tmp_path, 1, 1))
    stamped(tmp_path, 2, 2)
    stamped(tmp_path, 3, 3)
    assert remove_superseded(tmp_path, "checkpoint", "r", KEEP) == ["checkpoint_2.pt"]
    assert names(tmp_path) == ["checkpoint_1.pt", "checkpoint_3.pt"]
    assert dropped(tmp_path).keys() == {"checkpoint_1.pt", "checkpoint_2.pt"}
    os.close(held)
    remove_dropped(tmp_path, "checkpoint_1.pt")
    remove_dropped(tmp_path, "checkpoint_3.pt")
    assert names(tmp_path) == ["checkpoint_3.pt"]


def test_a_file_that_took_the_name_of_a_dropped_one_stays(tmp_path: Path) -> None:
    held = hold(stamped(tmp_path, 1, 1))
    stamped(tmp_path, 2, 2)
    assert remove_superseded(tmp_path, "checkpoint", "r", KEEP) == []
    os.close(held)
    again = stamped(tmp_path, 1, 3)
    os.utime(again, ns=(2**61, 2**61))
    remove_dropped(tmp_path, again.name)
    assert again.exists()


def test_a_held_folder_goes_once_it_is_let_go(tmp_path: Path) -> None:
    def save(step: int) -> None:
        for rank in range(2):
            write_part(tmp_path, identity(step), rank, step)
        publish_all(tmp_path)

    save(1)
    held = hold(tmp_path / "checkpoint_1.dcp" / WHOLE_FILE)
    save(2)
    remove_superseded_sharded(tmp_path, "checkpoint", RUN, KEEP)
    assert names(tmp_path) == ["checkpoint_1.dcp", "checkpoint_2.dcp"]
    os.close(held)
    remove_dropped_sharded(tmp_path, "checkpoint_1.dcp")
    remove_dropped_sharded(tmp_path, "checkpoint_2.dcp")
    assert names(tmp_path) == ["checkpoint_2.dcp"]


def test_what_is_not_there_is_not_held(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        hold(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(tmp_path)
    assert not is_held(tmp_path / "link")
