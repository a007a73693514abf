"""Temp files of jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rla_client.contract.filesystem.atomic_write import NEW_FLAGS, TEMP_PREFIX
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.spool.writer_liveness import process_start

_OWN_TEMP = re.compile(r"-(?P<process>\d+-\d+)(-2)?\Z")


def fresh_temp(folder: Path, token: str) -> str:
    """A temp name for a job that no other process uses; what dead processes left of the job is removed.

    The name bears the process: an agent that ends may still be at a job that the next one begins again.

    Raises:
        OSError: the folder cannot be listed.
    """
    stem = f"{TEMP_PREFIX}{token}"
    me = f"{os.getpid()}-{process_start(os.getpid()) or 0}"
    for name in os.listdir(folder):
        if not name.startswith(stem):
            continue
        rest = name.removeprefix(stem)
        owner = _OWN_TEMP.match(rest)
        if rest in {"", "-2"} or (
            owner is not None and (owner["process"] == me or not _lives(owner["process"]))
        ):
            with suppress(FileNotFoundError):
                os.unlink(folder / name)
    return f"{stem}-{me}"


def _lives(process: str) -> bool:
    pid, _, start = process.partition("-")
    return process_start(int(pid)) == int(start)


@contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """A new file for writing; on leaving without an exception it was fsynced.

    Raises:
        OSError: it exists, or the disk does not take it.
    """
    with open(os.open(path, NEW_FLAGS, file_mode(path.parent)), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
