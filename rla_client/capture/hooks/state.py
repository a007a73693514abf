"""State of the hooks in this process."""

from __future__ import annotations

import os
import sys
from _thread import _local

from ...contract.capture.parts import CAPTURE_VARIABLE, parse_parts

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

MAX_ERRORS = 3  # errors that switch a part off


class _Thread(_local):
    inside = False  # in a captured call, whose own calls are not captured again
    event: Any = None  # the last event that the captured call wrote


class CapturePart:
    """One part of the capture.

    Attributes:
        name: one of PARTS.
        on: whether it captures.
        errors: texts of its internal errors.
        counts: what it captured, by kind: values, parameters, images, …
        skipped: what it left out: kind → (number, bytes).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.on = True
        self.errors: list[str] = []
        self.counts: dict[str, int] = {}
        self.skipped: dict[str, tuple[int, int]] = {}

    def failed(self, error: BaseException) -> None:
        """Note an internal error; the third one switches the part off.

        Raises:
            BaseException: the error itself, if a signal handler of the program raised it.
        """
        if _is_of_handler(error):
            raise error
        self.errors.append(f"{type(error).__name__}: {error}"[:500])
        if len(self.errors) >= MAX_ERRORS:
            self.on = False

    def count(self, kind: str, number: int = 1) -> None:
        """Count what was captured."""
        self.counts[kind] = self.counts.get(kind, 0) + number

    def skip(self, kind: str, size: int) -> None:
        """Count something of `size` bytes that was left out."""
        number, total = self.skipped.get(kind, (0, 0))
        self.skipped[kind] = number + 1, total + size


def _is_of_handler(error: BaseException) -> bool:
    """Whether a signal handler of the program raised the exception during a captured call."""
    module = sys.modules.get("signal")
    if module is None:
        return False
    codes = {getattr(module.getsignal(number), "__code__", None) for number in module.valid_signals()} - {
        None
    }
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


thread = _Thread()
parts: dict[str, CapturePart] = {}
chosen: frozenset[str] = parse_parts(os.environ.get(CAPTURE_VARIABLE, ""))
adapted: set[str] = set()  # packages with a hook of their own; what they write to other loggers is ignored
loaded_pid = os.getpid()
loaded_cwd = os.getcwd()  # the program may change it


def part(name: str) -> CapturePart:
    """The part with a name, created on first use."""
    found = parts.get(name)
    if found is None:
        found = parts[name] = CapturePart(name)
    return found
