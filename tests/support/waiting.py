"""Waiting for what other processes do: polled, with a deadline that a slow shared machine keeps too.

A deadline only ends a test that would fail anyway; none of them is a promise about speed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

import psutil

TIME_FACTOR: Final = float(os.environ.get("RLA_TEST_TIME_FACTOR", "3"))
"""All deadlines times this: such as 1 to see a hang sooner, 10 under an emulator."""
DEADLINE_S: Final = 20.0
POLL_S: Final = 0.01

Found = TypeVar("Found")


def wait_until(
    condition: Callable[[], Found | None], deadline_s: float = DEADLINE_S, what: str | Callable[[], str] = ""
) -> Found:
    """Poll `condition` until its result is true, and return that.

    A file or folder that goes while `condition` looks at it (`Path.glob` of Python < 3.13 raises where a
    folder is removed under it) counts as not yet: it is asked again.

    Args:
        condition: what is waited for.
        deadline_s: seconds on a machine of its own; `TIME_FACTOR` times as many are granted.
        what: names the condition in a failure; a function is called then, so that it can tell of how
            things stand at the end.

    Raises:
        AssertionError: it was not true in time.
    """
    patience_s = deadline_s * TIME_FACTOR
    end = time.monotonic() + patience_s
    while True:
        gone = None
        try:
            found = condition()
        except FileNotFoundError as exc:
            gone = exc
        else:
            if found:
                return found
        if time.monotonic() > end:
            name = what() if callable(what) else what or getattr(condition, "__name__", "condition")
            message = f"{name}: not within {patience_s:g} s"
            raise AssertionError(message) from gone
        time.sleep(POLL_S)


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
