"""What ended a run: a line for its run.json, and the traceback for its text log.

Python prints the traceback to stderr, which may be gone. All this runs inside of sys.excepthook, where
an exception of our own would stand before the user's, and the run would end as finished: so whatever
a user's class raises when it is asked for its text is caught.
"""

from __future__ import annotations

import sys

from rla_client.stream.values import text_of

REASON_CHARS = 2000  # of what run.json says
TRACEBACK_HEAD = "Traceback (most recent call last):"
TRACEBACK_LINES = 100  # the end tells where it happened; a deep recursion has thousands
TRACEBACK_BYTES = 64 << 10  # a message may hold a whole array


def ending(error: BaseException) -> tuple[str, str]:
    """State and reason of a run that this exception ended."""
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed", reason_text(error)


def reason_text(error: BaseException) -> str:
    """Class and message of an exception."""
    return f"{type(error).__name__}: {text_of(error)}".rstrip(": ")


def traceback_text(error: BaseException) -> str:
    """The last lines of a traceback, at most TRACEBACK_BYTES; empty where it cannot be made."""
    import traceback  # noqa: PLC0415 - not at import of the package

    try:
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    except Exception:  # noqa: BLE001 - see above; the traceback module asks more of it than its text
        return ""
    if len(lines) > TRACEBACK_LINES:  # with the head by which readers find it
        lines = [TRACEBACK_HEAD, "  ...", *lines[-TRACEBACK_LINES:]]
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    if len(text) > TRACEBACK_BYTES:
        head = f"{TRACEBACK_HEAD}\n  ...\n".encode()
        text = head + text[len(head) - TRACEBACK_BYTES :]
    return text.decode("utf-8", "ignore")


def active_traceback() -> str:
    """The same of the exception that is being handled; empty where there is none."""
    error = sys.exc_info()[1]
    return "" if error is None else traceback_text(error)
