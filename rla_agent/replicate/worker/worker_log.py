"""Logs of the worker's process.

`worker.log` has the details; outages and losses appear in the agent's own log as well.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from rla_agent.model.log_format import LOG_FORMAT, OneLine
from rla_agent.replicate.worker.outage_log import outage_log

AGENT_LOG: Final = "agent.log"  # of places.Places.log
WORKER_LOG: Final = "worker.log"
LOG_BYTES: Final = 4 << 20  # beside the current file one rotated file is kept
_losses = logging.getLogger("rla_agent.replicate.worker.confirm")  # its records go to the agent's log, too


class _OwnLog(logging.handlers.RotatingFileHandler):
    """`worker.log`, to which stdout and stderr lead as well: they follow when it is rotated."""

    def doRollover(self) -> None:  # noqa: N802 - logging's name
        """Continue in a new file."""
        super().doRollover()
        if self.stream is not None:
            for descriptor in (1, 2):
                os.dup2(self.stream.fileno(), descriptor)


def log_to(path: Path) -> None:
    """Log to stderr; where that is `worker.log`, it does not grow for ever."""
    handler: logging.Handler = logging.StreamHandler()
    with suppress(OSError):
        if os.path.samestat(os.fstat(2), os.stat(path)):
            handler = _OwnLog(path, maxBytes=LOG_BYTES, backupCount=1)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def log_beside_the_agent(state: Path) -> None:
    """Let outages appear in the agent's own log, which `rla-agent logs` shows; `worker.log` has the details.

    The agent rotates that file when it is long, so it is reopened whenever it has been replaced.
    """
    handler = logging.handlers.WatchedFileHandler(state / AGENT_LOG, delay=True)
    handler.setFormatter(OneLine(LOG_FORMAT))
    outage_log.addHandler(handler)
    _losses.addHandler(handler)
