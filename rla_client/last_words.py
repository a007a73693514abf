"""The traceback of what ended a run, for its text log: Python prints it to stderr, which may be gone."""

from __future__ import annotations

import sys

TRACEBACK_LINES = 100  # the end tells where it happened; a deep recursion has thousands
TRACEBACK_BYTES = 64 << 10  # a message may hold a whole array


def traceback_text(error: BaseException) -> str:
    """The last lines of a traceback, at most TRACEBACK_BYTES; empty where it cannot be made."""
    import traceback  # noqa: PLC0415 - not at import of the package

    try:
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    except Exception:  # noqa: BLE001 - inside sys.excepthook: an odd exception must not hide itself
        return ""
    text = "\n".join(lines[-TRACEBACK_LINES:]).encode("utf-8", "backslashreplace")
    return text[-TRACEBACK_BYTES:].decode("utf-8", "ignore")


def active_traceback() -> str:
    """The same of the exception that is being handled; empty where there is none."""
    error = sys.exc_info()[1]
    return "" if error is None else traceback_text(error)
