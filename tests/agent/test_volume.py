"""One file system's thread: streams that come late, go, or cannot be taken in yet."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_agent.start_up import sweep_half_made
from rla_agent.stream_removal import GONE_PREFIX, remove_stream
from rla_client.spool import stream_names

NAME = "0000000000000001-1-0123abcd"


def stream_folder(spool: Path) -> Path:
    folder = spool / NAME
    (folder / "blobs").mkdir(parents=True)
    for name in ("lock", "000001.seg", "000001.base", "blobs/1"):
        (folder / name).write_bytes(b"x")
    return folder


def test_a_stream_goes_from_sight_before_any_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stream_folder(tmp_path)
    seen: list[list[str]] = []
    real_unlink, real_remove = os.unlink, os.rmdir

    def unlink(path: object, **named: object) -> None:
        seen.append(stream_names(tmp_path))
        real_unlink(path, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "unlink", unlink)
    remove_stream(folder)
    assert real_remove is os.rmdir
    assert seen
    assert all(names == [] for names in seen)
    assert os.listdir(tmp_path) == []


def test_a_removal_that_was_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    stream_folder(tmp_path).rename(tmp_path / f"{GONE_PREFIX}{NAME}")
    sweep_half_made(tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_a_client_makes_right_now_is_left_alone(tmp_path: Path) -> None:
    stream_folder(tmp_path).rename(tmp_path / f".rla-tmp-{NAME}")
    sweep_half_made(tmp_path)
    assert os.listdir(tmp_path) == [f".rla-tmp-{NAME}"]
    sweep_half_made(tmp_path, older_than_s=-1.0)
    assert os.listdir(tmp_path) == []
