"""Process-wide settings of the agent.

These are logging, garbage collection and limits.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
from contextlib import suppress
from typing import NoReturn

from rla_agent.model.fault_log import Repeats
from rla_agent.model.log_format import LOG_FORMAT, OneLine
from rla_client.contract.agent.places import Places

LOG_BYTES = 4 << 20
GC_THRESHOLD = 20_000  # new containers between collections: some batches of rows


def set_up_logging(places: Places, *, to_console: bool) -> None:
    """Log to `<state>/agent.log`, two files of LOG_BYTES, and to stderr when in the foreground."""
    from logging.handlers import RotatingFileHandler  # noqa: PLC0415 - commands need none of it

    form = OneLine(LOG_FORMAT)
    handlers: list[logging.Handler] = [RotatingFileHandler(places.log, maxBytes=LOG_BYTES, backupCount=1)]
    if to_console:
        handlers.append(logging.StreamHandler())
    for handler in handlers:
        handler.setFormatter(form)
        handler.addFilter(Repeats())
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)


def spare_collections() -> None:
    """Make the garbage collector ignore present objects, and run rarely.

    Records are plain data that die by reference count; there are hardly any cycles to find.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 10, 10)


def raise_limits() -> None:
    """Raise soft limits to the hard ones, since the limits of a training job are not meant for its agent."""
    for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, hard = resource.getrlimit(which)
        if soft != hard:
            with suppress(ValueError, OSError):
                resource.setrlimit(which, (hard, hard))


def end_process(code: int) -> NoReturn:
    """Exit at once: at a normal exit Python waits for pool threads, which continue to write."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
