"""State of the hooks in this process: which parts are on, what each has seen, where each thread is."""

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


class Part:
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
        """Note an error of ours; the third switches the part off."""
        if "warnings" in sys.modules and os.environ.get("RLA_CAPTURE_DEBUG"):
            sys.excepthook(type(error), error, error.__traceback__)
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


thread = _Thread()
parts: dict[str, Part] = {}
chosen: frozenset[str] = parse_parts(os.environ.get(CAPTURE_VARIABLE, ""))
adapted: set[str] = set()  # packages whose own adapter is at work: what they write elsewhere is not taken
loaded_pid = os.getpid()
loaded_cwd = os.getcwd()  # the program may go elsewhere


def part(name: str) -> Part:
    """The part of a name."""
    found = parts.get(name)
    if found is None:
        found = parts[name] = Part(name)
    return found
