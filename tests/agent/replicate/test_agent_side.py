"""The worker's process, as the agent starts and ends it."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from rla_agent.replicate import agent_side
from rla_agent.replicate.agent_side import LOG_BYTES, ReplicatorProcess, rotate


def test_a_worker_that_does_not_end_keeps_nobody_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_side, "KILL_AFTER_S", -1.0)
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    worker = ReplicatorProcess(tmp_path)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        worker._process = process
        with caplog.at_level(logging.WARNING):
            worker.stop(0.0)
        assert process.wait(60) < 0
    assert worker.pid is None


def test_a_long_log_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    rotate(log)
    log.write_bytes(b"x")
    rotate(log)
    assert log.exists()
    for content in (b"1", b"2"):
        log.write_bytes(content * (LOG_BYTES + 1))
        rotate(log)
        assert not log.exists()
        assert (tmp_path / "worker.log.1").read_bytes()[:1] == content
