"""Copies of sharded checkpoints: whole or not there, whenever they are killed."""

from __future__ import annotations

import os
from pathlib import Path

from support.killed_child import killed_at
from support.sharded_folders import check_whole, identity, write_part

from rla_client.contract.sharded_checkpoint.copy import copy_sharded
from rla_client.contract.sharded_checkpoint.folder import read_whole
from rla_client.contract.sharded_checkpoint.publish import publish_all


def saved(folder: Path) -> Path:
    folder.mkdir()
    for rank in range(2):
        write_part(folder, identity(), rank)
    publish_all(folder)
    return folder / "checkpoint_1.dcp"


def test_a_copy_is_whole_or_not_there(tmp_path: Path) -> None:
    source, target = saved(tmp_path / "a"), tmp_path / "b"
    calls = 0

    def copy() -> None:
        copy_sharded(source, target, lambda final: final.rename(tmp_path / f"aside-{calls}"))

    while killed_at(calls, copy):
        calls += 1
        if os.path.lexists(target / source.name):
            check_whole(target / source.name)
    assert calls > 5
    check_whole(target / source.name)
    check_whole(source)


def test_what_has_the_name_makes_way_and_what_is_not_whole_is_left(tmp_path: Path) -> None:
    source, target = saved(tmp_path / "a"), tmp_path / "b"
    (target / source.name).mkdir(parents=True)
    (target / source.name / "mine").write_text("keep")
    copy_sharded(source, target, lambda final: final.rename(tmp_path / "aside"))
    check_whole(target / source.name)
    assert (tmp_path / "aside" / "mine").read_text() == "keep"
    (source / ".rla" / "whole.json").unlink()
    copy_sharded(source, tmp_path / "c")
    assert os.listdir(tmp_path / "c") == []
    assert read_whole(tmp_path / "c" / source.name) is None
