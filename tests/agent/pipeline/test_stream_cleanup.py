"""What is swept, and what is left alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

from support.lone import LoneStream

from rla_agent.pipeline.remove_stream import GONE_PREFIX, remove_stream
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.pipeline.stream_cleanup import HALF_MADE_S, sweep_fork_copies, sweep_half_made
from rla_client.contract.filesystem.atomic_write import FORK_COPY_PREFIX

NAME = "0000000000000001-1-0123abcd"


def stream_folder(spool: Path) -> Path:
    folder = spool / NAME
    (folder / "blobs").mkdir(parents=True)
    for name in ("lock", "000001.seg", "000001.base", "blobs/1"):
        (folder / name).write_bytes(b"x")
    return folder


def test_a_removal_that_was_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    stream_folder(tmp_path).rename(tmp_path / f"{GONE_PREFIX}{NAME}")
    sweep_half_made(tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_a_client_makes_right_now_is_left_alone(tmp_path: Path) -> None:
    stream_folder(tmp_path).rename(tmp_path / f".rla-tmp-{NAME}")
    sweep_half_made(tmp_path)
    assert os.listdir(tmp_path) == [f".rla-tmp-{NAME}"]
    os.utime(tmp_path / f".rla-tmp-{NAME}", (time.time() - 2 * HALF_MADE_S,) * 2)
    sweep_half_made(tmp_path)
    assert os.listdir(tmp_path) == []


def test_copies_of_a_fork_go_before_the_last_stream_of_the_run(tmp_path: Path) -> None:
    """So a kill between the two leaves none for ever: what ends streams comes by again."""
    lone = LoneStream(tmp_path)
    copies = [lone.root / f"{FORK_COPY_PREFIX}{number}" for number in range(2)]
    for copy in copies:
        copy.mkdir()
        (copy / "progress.csv").write_text("x")
    other = lone.new_writer()
    opening = read_opening(lone.spool / lone.writer.name)[0]
    sweep_fork_copies(lone.spool, lone.writer.name, opening)
    assert all(copy.exists() for copy in copies), "another stream of the run may still place them"
    remove_stream(lone.spool / other.name)
    sweep_fork_copies(lone.spool, lone.writer.name, opening)
    assert (lone.spool / lone.writer.name).exists()
    assert not any(copy.exists() for copy in copies)
