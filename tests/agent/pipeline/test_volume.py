"""One file system's thread: streams that come late, go, or cannot be taken in yet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.lone import LoneStream

from rla_agent.pipeline.lifecycle import (
    GONE_PREFIX,
    HALF_MADE_S,
    remove_stream,
    sweep_fork_copies,
    sweep_half_made,
    why_late,
)
from rla_agent.pipeline.stream import read_opening
from rla_agent.pipeline.volume import ASLEEP_S, LOCK_LOOK_S
from rla_client.contract.filesystem.atomic_write import FORK_COPY_PREFIX
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import stream_names
from rla_client.run.start import open_plain_run

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
    os.utime(tmp_path / f".rla-tmp-{NAME}", (time.time() - 2 * HALF_MADE_S,) * 2)
    sweep_half_made(tmp_path)
    assert os.listdir(tmp_path) == []


def let_sleep(wait_until: Callable[..., Any]) -> None:
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > ASLEEP_S + 2 * LOCK_LOOK_S, what="the streams' sleep")


@pytest.mark.slow
def test_a_row_whose_message_was_lost_wakes_a_sleeping_stream(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    run = open_plain_run(str(tmp_path / "run"), ("csv",), None, None, "", {})
    try:
        run.logger.record("x", 1)
        run.logger.dump()
        assert run.outbox is not None
        assert run.outbox.flush(60)
        let_sleep(wait_until)
        assert run.outbox._writer is not None
        run.outbox._writer.append(encode_frame(FrameKind.ROW, pack([2, 2.0, {"x": 2}])), 1)  # and no message
        csv = tmp_path / "run" / "progress.csv"
        wait_until(lambda: len(csv.read_text().splitlines()) == 3, what="the second row")
    finally:
        run.close("finished", "")


@pytest.mark.slow
def test_a_file_that_somebody_removed_comes_back_with_what_follows(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    run = open_plain_run(str(tmp_path / "run"), ("csv",), None, None, "", {})
    csv = tmp_path / "run" / "progress.csv"
    try:
        assert run.outbox is not None
        for value in range(2):
            run.logger.record("x", value)
            run.logger.dump()
            assert run.outbox.flush(60)
            if value == 0:
                csv.unlink()
        run.logger.record("x", 2)
        run.logger.dump()
        wait_until(lambda: csv.exists() and len(csv.read_text().splitlines()) >= 2, what="a new file")
        assert run.outbox.flush(60)
        assert csv.read_text().splitlines()[0] == "time-step,timestamp,x"
        assert csv.read_text().splitlines()[-1].endswith(",2")
    finally:
        run.close("finished", "")


@pytest.mark.slow
def test_a_sleeping_run_that_is_killed_is_known(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    code = (
        "import sys\n"
        "from rla_client import logger\n"
        "logger.configure(sys.argv[1], ['csv'])\n"
        "logger.logkv('x', 1); logger.dumpkvs(); print(logger.flush(60), flush=True); sys.stdin.read()\n"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert trainer.stdout is not None
    with trainer:
        assert b"True" in trainer.stdout.readline()
        let_sleep(wait_until)
        trainer.send_signal(signal.SIGKILL)
    file = tmp_path / "run" / "run.json"
    wait_until(lambda: json.loads(file.read_bytes())["state"] == "killed", what="state killed")


def test_a_stream_that_cannot_be_taken_in_yet_says_of_which_run_it_is() -> None:
    class Opening:
        log_folder = "/data/log/t/1"

    text = why_late(Opening(), OSError(30, "Read-only file system", "warn.txt"))  # type: ignore[arg-type]
    assert all(
        part in text for part in ("/data/log/t/1", "Read-only file system", "warn.txt", "wait in the spool")
    )


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
