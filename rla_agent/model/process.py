"""What the agent process does before it serves (its log, its limits, leftovers in the spool), and its end."""

from __future__ import annotations

import gc
import logging
import logging.handlers
import os
import resource
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from rla_agent.pipeline.remove import GONE_PREFIX
from rla_client.contract.files import TEMP_PREFIX
from rla_client.contract.paths import Places
from rla_client.contract.textformat import printable

LOG_BYTES = 4 << 20
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
GC_THRESHOLD = 20_000  # new containers between looks: some batches of rows


def sweep_half_made(spool: Path, older_than_s: float = 60.0) -> None:
    """Remove what a client was killed in the middle of making, or an agent of removing."""
    now = time.time()
    with suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            old = entry.name.startswith(TEMP_PREFIX) and now - entry.stat().st_mtime > older_than_s
            if old or entry.name.startswith(GONE_PREFIX):
                shutil.rmtree(entry.path, ignore_errors=True)


class OneLine(logging.Formatter):
    """A message is one line, whatever a client called its things; tracebacks stay below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line, with control characters escaped."""
        return printable(super().formatMessage(record))


def set_up_logging(places: Places, *, to_console: bool) -> None:
    """Log to `<state>/agent.log`, two files of LOG_BYTES, and to stderr when in the foreground."""
    form = OneLine(LOG_FORMAT)
    handlers: list[logging.Handler] = [
        logging.handlers.RotatingFileHandler(places.log, maxBytes=LOG_BYTES, backupCount=1)
    ]
    if to_console:
        handlers.append(logging.StreamHandler())
    for handler in handlers:
        handler.setFormatter(form)
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)


def spare_collections() -> None:
    """Let the garbage collector look at what comes from here on, and seldom.

    Records are plain data that die by reference count; there are hardly any cycles to find.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 10, 10)


def raise_limits() -> None:
    """Use all that this user may have: the limits of a training job are not meant for its agent."""
    for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, hard = resource.getrlimit(which)
        if soft != hard:
            with suppress(ValueError, OSError):
                resource.setrlimit(which, (hard, hard))


def end_process(code: int) -> NoReturn:
    """End at once: at a usual exit Python waits for the threads of pools, while they write on."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
