"""`rla top` in a terminal of its own, and where there is none."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from support.waiting import TIME_FACTOR
from support.written_runs import MakeRun

pytest.importorskip("textual")

COMMAND = [sys.executable, "-m", "rla_client.cli.app", "top", "--data-root"]


def test_it_shows_the_runs_and_leaves_the_terminal_as_it_was(root: Path, make_run: MakeRun) -> None:
    make_run(number=1, info="&seed=41")
    outer, inner = pty.openpty()
    fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(inner)
    process = subprocess.Popen(
        [*COMMAND, str(root)],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    shown = read_until(outer, b"seed=41")
    os.write(outer, b"q")
    while process.poll() is None:
        shown += read_some(outer)
    assert process.returncode == 0, shown[-1000:]
    shown += read_some(outer)
    assert shown.rfind(b"\x1b[?1049l") > shown.rfind(b"\x1b[?1049h"), "the screen before is there again"
    assert termios.tcgetattr(inner)[:4] == before[:4]
    os.close(outer)
    os.close(inner)


def read_some(terminal: int) -> bytes:
    return os.read(terminal, 1 << 16) if select.select([terminal], [], [], 0.1)[0] else b""


def read_until(terminal: int, text: bytes) -> bytes:
    shown, deadline = b"", time.monotonic() + 60 * TIME_FACTOR
    while text not in shown:
        assert time.monotonic() < deadline, shown
        shown += read_some(terminal)
    return shown


def test_without_a_terminal(root: Path, make_run: MakeRun) -> None:
    make_run(number=1)
    done = subprocess.run([*COMMAND, str(root)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "needs a terminal" in done.stderr
