"""State of the hooks in this process."""

from __future__ import annotations

import os
import sys
from _thread import _local

from ...contract.capture.parts import CAPTURE_VARIABLE, parse_parts

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

MAX_ERRORS = 3  # after which a part is off


class _Thread(_local):
    inside = False  # a captured call is at work: what it calls is not captured again
    event: Any = None  # the last event that such a call wrote


class CapturePart:
    """One part of the capture.

    Attributes:
        name: of PARTS.
        on: it takes part.
        errors: texts of its own errors.
        counts: what it has taken, by kind: values, parameters, images, …
        skipped: what it has left out: kind → (number, bytes).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.on = True
        self.errors: list[str] = []
        self.counts: dict[str, int] = {}
        self.skipped: dict[str, tuple[int, int]] = {}

    def failed(self, error: BaseException) -> None:
        """Note an error of ours; the third switches the part off.

        Raises:
            BaseException: the error, where a signal handler of the program has raised it.
        """
        if _is_of_handler(error):
            raise error
        self.errors.append(f"{type(error).__name__}: {error}"[:500])
        if len(self.errors) >= MAX_ERRORS:
            self.on = False

    def count(self, kind: str, number: int = 1) -> None:
        """Count what was taken."""
        self.counts[kind] = self.counts.get(kind, 0) + number

    def skip(self, kind: str, size: int) -> None:
        """Count what was left out, of so many bytes."""
        number, total = self.skipped.get(kind, (0, 0))
        self.skipped[kind] = number + 1, total + size


def _is_of_handler(error: BaseException) -> bool:
    """Whether a signal handler raised an exception, which came while we were at work."""
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
adapted: set[str] = set()  # packages whose own adapter is at work: what they write elsewhere is not taken
loaded_pid = os.getpid()
loaded_cwd = os.getcwd()  # the program may go elsewhere


def part(name: str) -> CapturePart:
    """The part of a name."""
    found = parts.get(name)
    if found is None:
        found = parts[name] = CapturePart(name)
    return found
