"""The worker's process under the agent."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.waiting import wait_until

from rla_agent.replicate import child_process
from rla_agent.replicate.replicator_process import LOG_BYTES, STEADY_S, ReplicatorProcess, rotate
from rla_agent.replicate.status import replication_status


def test_a_dead_worker_is_started_again(tmp_path: Path) -> None:
    from rla_agent.replicate.replicator_process import ReplicatorProcess

    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    process = ReplicatorProcess(state)
    process.start(time.monotonic())
    first: int = wait_until(lambda: process.pid, 10)
    wait_until(lambda: replication_status(state)["running"], 20)
    os.kill(first, 9)

    def again() -> bool:
        process.poll(time.monotonic())
        return process.pid not in {None, first}

    wait_until(again, 20)
    wait_until(lambda: replication_status(state)["running"], 20)
    process.stop()
    assert process.pid is None


def test_a_worker_that_does_not_end_keeps_nobody_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child_process, "KILL_AFTER_S", -1.0)
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


def test_a_worker_that_cannot_live_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it said last is its reason, until a later one lives long."""
    (tmp_path / "replicate" / "hints.sock").mkdir(parents=True)
    process = ReplicatorProcess(tmp_path)
    process.start(100.0)
    wait_until(lambda: process.pid is None, 30)
    process.poll(101.0)
    assert "hints.sock" in process.fault
    assert "exit status 1" in process.fault
    assert caplog.text.count("the replicator exited within a minute") == 1
    (tmp_path / "replicate" / "hints.sock").rmdir()
    process.poll(200.0)
    assert process.pid is not None
    assert process.fault, "it may end at once again"
    process.poll(200.0 + STEADY_S + 1)
    assert process.fault == ""
    process.stop()


def test_one_that_could_not_be_started_is_told_of_until_it_is(tmp_path: Path) -> None:
    (tmp_path / "replicate").write_text("")
    process = ReplicatorProcess(tmp_path)
    process.poll(100.0)
    assert "cannot be started; retrying" in process.fault
    (tmp_path / "replicate").unlink()
    process.poll(200.0)
    assert process.pid is not None
    assert process.fault == ""
    process.stop()


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


def test_the_agent_goes_on_where_its_worker_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No room for its log, or no process: said once, and tried again, more and more rarely."""
    worker, really = ReplicatorProcess(tmp_path), subprocess.Popen

    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    (tmp_path / "replicate").mkdir()
    worker._log_path.mkdir()  # cannot be opened
    worker.poll(1.0)
    worker._log_path.rmdir()
    monkeypatch.setattr(subprocess, "Popen", fail)
    for now in range(100, 1000, 100):
        worker.poll(float(now))
    assert worker._not_before > 900.0
    assert [record.message.count("cannot be started") for record in caplog.records] == [1, 1]
    monkeypatch.setattr(subprocess, "Popen", really)
    worker.poll(2000.0)
    assert worker.pid
    worker.stop()
