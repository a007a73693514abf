"""Rate-limited warnings."""

from __future__ import annotations

import time

WARN_INTERVAL_S = 60.0


def warn_rarely(said: dict[str, float], what: str, message: str, *arguments: object) -> None:
    """Warn unless the same was said within WARN_INTERVAL_S.

    Args:
        said: when each kind of warning was given last, monotonic; updated here.
        what: the kind.
        message: with the placeholders of `logging`.
        arguments: for it.
    """
    now = time.monotonic()
    if now - said.get(what, float("-inf")) >= WARN_INTERVAL_S:
        try:
            import logging  # noqa: PLC0415 - not at import of the package
        except (ImportError, OSError):  # no descriptors left to read it by
            return
        said[what] = now
        logging.getLogger("rla_client").warning(message, *arguments)
