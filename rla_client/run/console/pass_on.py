"""Output passed on to where it went before."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable


def ready(descriptors: Iterable[int], wait_s: float | None) -> list[int]:
    """Which descriptors, of any number, can be read or have ended, after `wait_s` at the latest."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if wait_s is None else 1000 * wait_s)]


def pass_on(data: bytes, target: int) -> None:
    """Write all of `data`, however long that takes; what nobody reads there is dropped."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:  # another process has made the terminal so
            poll = select.poll()
            poll.register(target, select.POLLOUT)
            poll.poll()
        except OSError:  # the terminal is closed, the pipe's reader gone, the disk full
            return
