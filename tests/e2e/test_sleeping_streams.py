"""Streams that sleep: what wakes them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.pipeline.volume import ASLEEP_S, LOCK_LOOK_S
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.run.plain_run import open_plain_run


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
