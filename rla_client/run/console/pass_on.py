"""Pass-through of captured output."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable


def ready(descriptors: Iterable[int], wait_s: float | None) -> list[int]:
    """Descriptors that can be read or have ended, after `wait_s` at the latest; any number is possible."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(None if wait_s is None else 1000 * wait_s)]


def pass_on(data: bytes, target: int) -> None:
    """Write all of `data`, however long that takes; it is dropped where the reader is gone."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(target, rest) :]
        except BlockingIOError:  # another process has made the terminal non-blocking
            poll = select.poll()
            poll.register(target, select.POLLOUT)
            poll.poll()
        except OSError:  # the terminal is closed, the pipe's reader gone, the disk full
            return
