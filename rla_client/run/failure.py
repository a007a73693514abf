"""Failure of a run by an exception or signal.

The reason is a line in run.json, the traceback is in the text log, since stderr may be lost. This code runs
in sys.excepthook, where an exception of our own would hide the user's: so any exception of a user's class
while its text is made is caught.

The program's own signal handlers are never wrapped, replaced or called. A call of one is detected while it is
still running (it is on the stack, or its exception is propagating): at `sys.exit`, at `close`, in
sys.excepthook. A handler that only sets a flag leaves no trace: that run is `finished`, unless `rla-agent
run` passed the signal on and records it. Either way it can be continued (`resume_mode.where_to_continue`).
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Iterator
from signal import SIGALRM, Signals, getsignal
from types import CodeType, FrameType
from typing import Literal, TypeAlias

from rla_client.contract.process.stop_signals import FOR_ANYTHING, STOPS, stopped_by
from rla_client.stream.values import text_of

EndStatus: TypeAlias = Literal["finished", "interrupted", "failed"]
FOR_ANYTHING_ELSE = FOR_ANYTHING | {
    SIGALRM
}  # a time limit of one step, say: its handler's exception does not mean a stop
MAX_CHAIN = 100  # chained exceptions that are examined
TRACEBACK_HEAD = "Traceback (most recent call last):"
TRACEBACK_LINES = 100  # the end has the cause; a deep recursion has thousands of lines
TRACEBACK_BYTES = 64 << 10  # a message may hold a whole array


def ending(error: BaseException) -> tuple[EndStatus, str]:
    """State and reason of a run that this exception ended."""
    reason = reason_text(error)
    if isinstance(error, SystemExit):
        behind = _interrupt_behind(error)
        if behind is not None:
            return "interrupted", reason_text(behind)
        named = stopped_by(error.code)
        if named is not None:
            return "interrupted", f"{reason} ({named.name})"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", reason
    by = stop_at_work(error)
    return ("failed", reason) if by is None else ("interrupted", f"told to stop by {by.name}; {reason}")


def stop_at_work(error: BaseException | None = None) -> Signals | None:
    """The signal whose handler in the program is running: it calls us, or raised this exception."""
    handlers = {_code_of(getsignal(number)): number for number in STOPS}
    handlers.pop(None, None)
    if not handlers:
        return None
    if threading.current_thread() is threading.main_thread():  # where Python calls handlers
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - CPython's; what else walks a stack
        while frame is not None:
            number = handlers.get(frame.f_code)
            if number is not None and _was_given(frame, number):
                return number
            frame = frame.f_back
    for behind in _causes(error):
        traceback = behind.__traceback__
        while traceback is not None:
            number = handlers.get(traceback.tb_frame.f_code)
            if (
                number is not None
                and number not in FOR_ANYTHING_ELSE
                and _was_given(traceback.tb_frame, number)
            ):
                return number
            traceback = traceback.tb_next
    return None


def _was_given(frame: FrameType, number: int) -> bool:
    """Whether a frame's function was called with a signal's number, as Python calls handlers."""
    code, values = frame.f_code, frame.f_locals
    given = [values.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & inspect.CO_VARARGS:
        rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        given += rest if isinstance(rest, tuple) else ()
    return any(isinstance(value, int) and value == number for value in given)


def _code_of(handler: object) -> CodeType | None:
    """The code of a handler that is written in Python; None for any other."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    code = getattr(handler, "__code__", None)
    if code is None and callable(handler):
        code = getattr(type(handler).__call__, "__code__", None)  # an object with a method of that name
    return code if isinstance(code, CodeType) else None


def _interrupt_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The KeyboardInterrupt in an exception's chain."""
    return next((behind for behind in _chain(error) if isinstance(behind, KeyboardInterrupt)), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and its chain."""
    for _ in range(MAX_CHAIN):
        if error is None:
            return
        yield error
        error = error.__context__ if error.__cause__ is None else error.__cause__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and its causes; of one that ends the program also its contexts."""
    for _ in range(MAX_CHAIN):
        if error is None:
            return
        yield error
        ends = isinstance(error, SystemExit | KeyboardInterrupt)
        error = error.__context__ if ends and error.__cause__ is None else error.__cause__


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
    if len(lines) > TRACEBACK_LINES:  # with the header by which readers recognize it
        lines = [TRACEBACK_HEAD, "  ...", *lines[-TRACEBACK_LINES:]]
    text = "\n".join(lines).encode("utf-8", "backslashreplace")
    if len(text) > TRACEBACK_BYTES:
        head = f"{TRACEBACK_HEAD}\n  ...\n".encode()
        text = head + text[len(head) - TRACEBACK_BYTES :]
    return text.decode("utf-8", "ignore")


def active_traceback() -> str:
    """Traceback of the exception that is being handled; empty where there is none."""
    error = sys.exc_info()[1]
    return "" if error is None else traceback_text(error)
