"""Parallel copies of memory.

Above PARALLEL_MIN_BYTES a few short-lived threads share the work (memmove runs without the GIL), because one
core does not fill the memory bus. When the call returns, all of them have ended, also when an exception
(Ctrl-C) passes through: nobody writes to the destination afterwards.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import time
from collections.abc import Sequence
from typing import TypeAlias

PARALLEL_MIN_BYTES = 8 << 20  # below, starting a thread costs more than it saves
CUT_SLACK_BYTES = 1 << 20  # excess of a share before a piece is split
POLL_S = 0.0001  # a copy takes milliseconds
MAX_COPY_THREADS = 4  # two already fill the memory bus of a laptop
Copy: TypeAlias = tuple[int, int, int]  # destination, source, bytes


def copy_memory(jobs: Sequence[Copy]) -> None:
    """Copy each (destination, source, bytes) of this process's memory; large amounts by several threads."""
    wait_for_copies()  # copies of an interrupted call
    total = sum(nbytes for _, _, nbytes in jobs)
    threads = 1 if total < PARALLEL_MIN_BYTES else min(MAX_COPY_THREADS, len(os.sched_getaffinity(0)))
    if threads == 1:
        _copy_all(jobs)
    else:
        _copy_in_parallel(jobs, total, threads)


def _copy_all(jobs: Sequence[Copy]) -> None:
    move = ctypes.memmove
    for to, source, nbytes in jobs:
        move(to, source, nbytes)


class _Share:
    """A part of the work that one thread does: the helper, or the caller when it comes first.

    `owner` may be called repeatedly, so an interrupted caller can always find out who has it.
    """

    def __init__(self, jobs: Sequence[Copy]) -> None:
        self.jobs = jobs
        self.finished = False
        self._box: dict[str, str] = {}

    def owner(self, who: str) -> str:
        """`who`, if nobody has the share yet; else who has it."""
        return self._box.setdefault("owner", who)

    def wait(self) -> None:
        """Wait for the helper, by polling, because an interrupted Event or lock is left in any state."""
        while not self.finished:
            time.sleep(POLL_S)

    def help(self) -> None:
        """Body of a helper thread."""
        try:
            if self.owner("helper") == "helper":
                _copy_all(self.jobs)
        finally:
            self.finished = True
            _running.discard(self)


_running: set[_Share] = set()
os.register_at_fork(after_in_child=_running.clear)  # helpers of the parent process


def wait_for_copies() -> None:
    """Return when no helper writes, or ever will, so that the copies' destinations may be reused.

    Copies of an interrupted caller are in `_running`, begun or not.
    """
    for share in list(_running):
        if share.owner("caller") != "caller":
            share.wait()
        _running.discard(share)


def _copy_in_parallel(jobs: Sequence[Copy], total: int, threads: int) -> None:
    first, *others = (_Share(share) for share in _shares(jobs, -(-total // threads)))
    try:
        _running.update(others)  # before any of them begins
        for share in others:
            try:
                _thread.start_new_thread(share.help, ())  # Thread.start waits on an Event
            except RuntimeError:  # no more threads: do it here
                break
        _copy_all(first.jobs)
        for share in others:
            if share.owner("caller") == "caller":  # its helper has not begun, and will not
                _copy_all(share.jobs)
    finally:
        _settle()


def _settle() -> None:
    """`wait_for_copies`, repeated when a signal handler's exception interrupts it."""
    try:
        wait_for_copies()
    except BaseException:
        wait_for_copies()
        raise


def _shares(jobs: Sequence[Copy], share_bytes: int) -> list[list[Copy]]:
    """Split jobs into runs of about `share_bytes` each, cutting storages where need be."""
    shares: list[list[Copy]] = [[]]
    room = share_bytes
    for job in jobs:
        to, source, nbytes = job
        while nbytes > room + CUT_SLACK_BYTES:
            shares[-1].append((to, source, room))
            to, source, nbytes = to + room, source + room, nbytes - room
            shares.append([])
            room = share_bytes
        shares[-1].append((to, source, nbytes))
        room -= nbytes
        if room <= 0:
            shares.append([])
            room = share_bytes
    return [share for share in shares if share]
