"""Format of the agent's log lines."""

from __future__ import annotations

import logging

from rla_client.contract.text.terminal_text import printable

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class OneLine(logging.Formatter):
    """Formatter with one line for each message, whatever names are in it; tracebacks are below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line, with control characters escaped."""
        return printable(super().formatMessage(record))
