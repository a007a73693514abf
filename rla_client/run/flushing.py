"""Flush of the current run.

Where none is open, all runs of this process are flushed: an ended run's rows are durable in the spool, but
perhaps not yet in their files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from rla_client.run.current_logger import get_current
from rla_client.run.process_end import ended, open_runs


def flush_current(timeout: float | None, *, media: bool) -> bool:
    """See `logger.flush`; without `media`, as `logger.flush_rows`."""
    current = get_current()
    return current.flush(timeout, media=media) and (current.outbox is not None or _flush_all(timeout, media))


def _flush_all(timeout: float | None, media: bool) -> bool:
    deadline = None if timeout is None else time.monotonic() + timeout

    def kept(flush: Callable[..., bool]) -> bool:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return flush(left, media=media)

    whole = True
    for run in [run for run in open_runs if run.pid == os.getpid()]:
        whole &= kept(run.logger.flush)
    for closed in tuple(ended):
        done = kept(closed[0].flush_kept)
        whole &= done
        in_time = deadline is None or time.monotonic() < deadline
        lost = not done and in_time and closed[0].agent_alive()  # this warns once
        if (done and media) or lost:
            with suppress(ValueError):  # another thread did the same
                ended.remove(closed)
    return whole
