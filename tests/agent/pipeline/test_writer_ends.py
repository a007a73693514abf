"""How a process that is nobody's child ended, by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla_agent.model.process_ending import UNKNOWN_END, Ending, WriterEnd
from rla_agent.pipeline import writer_ends
from rla_agent.pipeline.writer_ends import LOOK_S, LOOKS, WriterEnds
from rla_client.contract.process.syscalls import exit_status, process_descriptor
from rla_client.contract.spool.writer_liveness import process_start

LIVES = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read(); import os; os._exit(3)"]


def tells_exits() -> bool:
    """Whether this kernel tells the exit status of a process (Linux 6.15)."""
    child = subprocess.Popen(["true"])
    descriptor = process_descriptor(child.pid)
    child.wait()
    try:
        return exit_status(descriptor) == 0
    finally:
        os.close(descriptor)


@pytest.fixture
def ends() -> Iterator[WriterEnds]:
    found = WriterEnds()
    yield found
    found.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(LIVES, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def lock(folder: Path, pid: int, start: int | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "lock").write_text(f"{pid} {process_start(pid) if start is None else start}")
    return folder


@pytest.mark.skipif(not tells_exits(), reason="Linux before 6.15 does not tell exits")
def test_signal_and_exit_code_are_told(
    ends: WriterEnds, child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    ends.watch("s", lock(tmp_path / "s", child.pid), child.pid)
    child.kill()
    child.wait()
    assert ends.end("s") == WriterEnd(Ending(None, signal.SIGKILL))
    assert ends.end("s") == WriterEnd()  # told once


@pytest.mark.skipif(not tells_exits(), reason="Linux before 6.15 does not tell exits")
def test_an_exit_without_a_word(ends: WriterEnds, child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    ends.watch("s", lock(tmp_path / "s", child.pid), child.pid)
    child.communicate()
    assert ends.end("s").words == "exit code 3, without closing the run"


def test_another_process_of_that_number_is_not_watched(
    ends: WriterEnds, child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    ends.watch("other start", lock(tmp_path / "a", child.pid, start=1), child.pid)
    ends.watch("other pid", lock(tmp_path / "b", os.getpid()), child.pid)
    ends.watch("no lock", tmp_path / "c", child.pid)
    child.kill()
    child.wait()
    ends.watch("gone", lock(tmp_path / "d", 2**22 + 1, start=5), 2**22 + 1)
    for name in ("other start", "other pid", "no lock", "gone"):
        assert ends.end(name).words == UNKNOWN_END


@pytest.mark.parametrize(("looks", "told"), [(1, True), (LOOKS - 1, True), (LOOKS, False)])
def test_a_kill_is_counted_some_looks_before_the_process_is_gone(
    ends: WriterEnds,
    child: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    looks: int,
    told: bool,
) -> None:
    counts = tmp_path / "memory.events"  # as the kernel writes it
    counts.write_text("oom_kill 0\n")
    monkeypatch.setattr(writer_ends, "memory_groups", lambda _: [tmp_path])
    ends.watch("s", lock(tmp_path / "s", child.pid), child.pid)
    counts.write_text("oom_kill 1\n")
    for number in range(looks):
        ends.look(1.0 + LOOK_S * number)
    child.kill()
    child.wait()
    assert ("out of memory" in ends.end("s").words) is told


def test_words() -> None:
    memory = "out of memory: 31.2 of 32 GiB"
    assert WriterEnd(Ending(None, 9), memory).words == f"killed by SIGKILL, likely {memory}"
    assert WriterEnd(Ending(None, 15), memory).words == "killed by SIGTERM"  # whatever else was killed then
    assert WriterEnd(Ending(0, None), memory).words == "exit code 0, without closing the run"
    assert WriterEnd(None, memory).words == f"{UNKNOWN_END}, likely {memory}"
    assert WriterEnd().words == UNKNOWN_END
