"""`rla top` in a real terminal: seconds to the first frame, and what 50 live runs cost.

    python tests/bench/bench_top.py [--seconds 60] [--runs 50]

Each run gets a row and a new run.json every second. Fails on nothing but wrong output.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY)]

from support.written_runs import write_run  # noqa: E402 - the paths come first

PROGRAM = """
import sys, time
from rla_client.database.database import Database
from rla_client.top.app import TopApp
from rla_client.top.runs_on_screen import MAX_SHOWN, RunsOnScreen
database = Database(sys.argv[1])
open(sys.argv[2], "w").write(repr(time.time()))
TopApp(RunsOnScreen(database.data_root, lambda where: database.records(where=where, limit=MAX_SHOWN))).run()
"""


def grow(root: Path, indexes: list[str], step: int) -> None:
    now = time.time()
    for index in indexes:
        folder = root / "log" / "task" / index
        with (folder / "progress.csv").open("a") as file:
            file.write(f"{step},{now},{step / 7},{1 / step}\n")
        run = {"format": 1, "state": "running", "opened": now - step, "updated": now}
        (folder / "new").write_text(json.dumps(run))
        os.replace(folder / "new", folder / "run.json")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, default=50)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rla-bench-") as folder:
        root = Path(folder, "data")
        root.mkdir()
        os.environ["RLA_STATE_DIR"] = f"{folder}/state"
        indexes = [
            write_run(root, number=number, info=f"&seed={number}", state="running")
            for number in range(chosen.runs)
        ]
        for index in indexes:
            table = root / "log" / "task" / index / "progress.csv"
            table.write_text("time-step,timestamp,perf/return,loss\n")
        grow(root, indexes, 1)
        first = watch(root, Path(folder, "began"), indexes, chosen.seconds)
        print(f"first frame with rows {first[0]:.2f} s after the import")
        print(f"{chosen.runs} live runs: {first[1]:.1f} % of a core over {chosen.seconds} s")


def watch(root: Path, began: Path, indexes: list[str], seconds: int) -> tuple[float, float]:
    """Run the program in a terminal of its own; seconds to the first frame, per cent of a core after it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM, str(root), str(began)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = psutil.Process(pid)
    shown, first, before, step = b"", 0.0, 0.0, 1
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.02)[0]:
            shown += os.read(terminal, 1 << 16)
        if not first and b"seed=1" in shown:
            first = time.time() - float(began.read_text())
            before, end = sum(process.cpu_times()[:2]), time.monotonic() + seconds
        if first and time.monotonic() > end - seconds + step:
            step += 1
            grow(root, indexes, step)
    used = sum(process.cpu_times()[:2]) - before
    os.write(terminal, b"q")
    while select.select([terminal], [], [], 5)[0]:
        try:
            shown += os.read(terminal, 1 << 16)
        except OSError:
            break  # its other end is closed
    os.waitpid(pid, 0)
    assert first, shown[-2000:]
    return first, 100 * used / seconds


if __name__ == "__main__":
    main()
