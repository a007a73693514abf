"""Rate-limited warnings."""

from __future__ import annotations

import time

WARN_INTERVAL_S = 60.0


def warn_rarely(said: dict[str, float], what: str, message: str, *arguments: object) -> None:
    """Warn unless the same kind was warned of within WARN_INTERVAL_S.

    Args:
        said: kind of warning → its last time, monotonic; updated here.
        what: the kind.
        message: with the placeholders of `logging`.
        arguments: for it.
    """
    now = time.monotonic()
    if now - said.get(what, float("-inf")) >= WARN_INTERVAL_S:
        try:
            import logging  # noqa: PLC0415 - not at import of the package
        except (ImportError, OSError):  # no descriptor free to read it
            return
        said[what] = now
        logging.getLogger("rla_client").warning(message, *arguments)
