"""Descriptors that the training process, or a library in it, closes or uses itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spooled import rows, stop_autostart

from rla_client.descriptors import FLOOR, close_own, identity, leads_to, lift
from rla_client.places import Places

TRAINING = """
import os, sys
from rla_client import logger

def log(first, last):
    for step in range(first, last):
        logger.record_tabular("step", step)
        logger.dump_tabular()

def own_descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass
    return found

before = set(own_descriptors())
logger.configure(sys.argv[1], ["csv"])
log(0, 100)
"""

CLOSING = """
os.closerange(3, 1024)
taken = [open(f"{sys.argv[2]}/{number}", "wb+", buffering=0) for number in range(int(sys.argv[3]))]
for file in taken:
    file.write(b"mine")
"""

ENDING = """
log(100, 3000)
for file in taken:
    file.seek(0)
    assert file.read() == b"mine"
logger.reset()
assert all(not file.closed and os.fstat(file.fileno()) for file in taken)
"""


def train(code: str, tmp_path: Path, *arguments: object, **options: Any) -> None:
    (tmp_path / "user").mkdir(exist_ok=True)
    command = [sys.executable, "-c", code, tmp_path / "run", tmp_path / "user", *map(str, arguments)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=300, **options)
    assert done.returncode == 0, done.stderr


def steps(places: Places) -> list[int]:
    return [row.values["step"] for row in rows(places)]


@pytest.mark.parametrize("taken", [0, 1000])
def test_all_descriptors_are_closed_in_the_middle_of_a_training(
    taken: int, places: Places, tmp_path: Path
) -> None:
    """Rows go on without loss or double, and none goes into a file that got the number of ours."""
    stop_autostart(places)
    train(TRAINING + CLOSING + ENDING, tmp_path, taken)
    assert steps(places) == list(range(3000))


def test_the_agent_gets_all_rows_of_a_training_whose_descriptors_were_closed(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    assert agent.alive
    train(TRAINING + CLOSING + ENDING, tmp_path, 1000)

    def written() -> list[int]:
        lines = (tmp_path / "run" / "progress.csv").read_text().splitlines()
        column = lines[0].split(",").index("step")
        return [int(line.split(",")[column]) for line in lines[1:]]

    wait_until(lambda: written() == list(range(3000)), what="all rows, once")


AGAIN = """
for step in range(100, 3000, 100):
    os.closerange(3, 1024)
    log(step, step + 100)
logger.reset()
"""


def test_descriptors_that_are_closed_again_and_again(places: Places, tmp_path: Path) -> None:
    stop_autostart(places)
    train(TRAINING + AGAIN, tmp_path)
    assert steps(places) == list(range(3000))


LOW = """
held = {number: name for number, name in own_descriptors().items() if number not in before}
assert held and min(held) >= 3, held
log(100, 200)
logger.reset()
"""


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)])
def test_ours_are_no_standard_streams(closed: tuple[int, ...], places: Places, tmp_path: Path) -> None:
    stop_autostart(places)
    shell = 'exec "$@" ' + " ".join(f"{number}>&-" for number in closed)
    (tmp_path / "user").mkdir()
    code = TRAINING + LOW
    command = ["/bin/sh", "-c", shell, "sh", sys.executable, "-c", code, tmp_path / "run", tmp_path / "user"]
    assert subprocess.run(command, check=False, timeout=300).returncode == 0
    assert steps(places) == list(range(200))


DAEMON = """
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        kept = os.dup2(write, 200)
        os.closerange(0, 200)
        os.closerange(201, 1024)
        os.open("/dev/null", os.O_RDWR), os.dup(0), os.dup(0)
        log(100, 200)
        logger.reset()
        os.write(kept, b"x")
        os._exit(0)
    os._exit(0)
os.close(write)
os.wait()
assert os.read(read, 1) == b"x"
log(200, 300)
logger.reset()
"""


def test_a_training_that_turns_itself_into_a_daemon(places: Places, tmp_path: Path) -> None:
    stop_autostart(places)
    train(TRAINING + DAEMON, tmp_path)
    assert sorted(steps(places)) == list(range(300))


def test_lifted_closed_and_told_apart(tmp_path: Path) -> None:
    low = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    high = lift(low)
    known = identity(high)
    assert high >= FLOOR
    assert not os.get_inheritable(high)
    other = os.open(tmp_path / "b", os.O_RDWR | os.O_CREAT)
    os.dup2(other, high)
    assert not leads_to(high, known)
    close_own(high, known)
    assert leads_to(high, identity(other)), "somebody else's is not closed"
    close_own(high, identity(other))
    os.close(other)
