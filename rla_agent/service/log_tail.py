"""Tail of the agent's log."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

LOG_POLL_S = 0.25


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines, those before the last rotation included."""
    found: deque[str] = deque(maxlen=count)
    for file in (path.with_name(path.name + ".1"), path):
        if file.exists():
            with file.open(encoding="utf-8", errors="replace") as lines:
                found.extend(line.rstrip("\n") for line in lines)
    return list(found)


def follow_log(path: Path) -> Iterator[str]:
    """Lines written from this call on, without end; a rotated file is read to its end first."""
    descriptor = _open(path)
    if descriptor >= 0:
        os.lseek(descriptor, 0, os.SEEK_END)
    return _follow(path, descriptor)


def _follow(path: Path, descriptor: int) -> Iterator[str]:
    rest = b""
    try:
        while True:
            data = os.read(descriptor, 1 << 16) if descriptor >= 0 else b""
            if data:
                *lines, rest = (rest + data).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines)
            elif _replaced(path, descriptor):
                if descriptor >= 0:
                    os.close(descriptor)
                descriptor = _open(path)
            else:
                time.sleep(LOG_POLL_S)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def _replaced(path: Path, descriptor: int) -> bool:
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False
    if descriptor < 0:
        return True
    held = os.fstat(descriptor)
    return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino)
