"""The clock of a run: its time-step, set by the training loop and read by every record."""

from __future__ import annotations

import math
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias

from rla_client.contract.errors import ArgumentError

MAX_TIME = 1 << 1000  # what a float can hold, with room for sums
TimeStep: TypeAlias = SupportsFloat | SupportsIndex  # numbers of numpy and torch, too


class TimeStepHolder:
    """Holds the current time-step (RLA's `time_step_holder`).

    Every row, figure and checkpoint carries the time-step of the moment it was made. It may be
    set before or after the run is opened, and to a smaller value.
    """

    def __init__(self) -> None:
        self._time: int | float = 0
        self.was_set = False  # by anybody since the run was opened

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # a function that is sent to another process finds that one's own there
        return "time_step_holder" if self is time_step_holder else super().__reduce_ex__(protocol)

    def clear(self) -> None:
        """Back to 0, as before the first `set_time`."""
        self._time, self.was_set = 0, False

    def config(self, time: TimeStep = 0, *_ignored: object, **_also_ignored: object) -> None:
        """Start at `time` (RLA's name; its further arguments have no meaning here)."""
        self.set_time(time)

    def set_time(self, time: TimeStep) -> None:
        """Set the time-step.

        Args:
            time: a whole number, or a float where a run counts in parts; numpy and torch
                scalars are taken.

        Raises:
            ArgumentError: not a number, NaN or infinite, or an integer that no file can hold.
        """
        if type(time) is not int or not -MAX_TIME < time < MAX_TIME:
            time = _number(time)
        self._time = time
        self.was_set = True

    def get_time(self) -> int | float:
        """The current time-step, 0 before the first `set_time`."""
        return self._time

    def count(self) -> None:
        """Advance by one, unless the time-step was set explicitly."""
        if not self.was_set:
            self._time += 1

    def inc_time(self) -> None:
        """One step further."""
        self._time += 1
        self.was_set = True

    def add_time(self, add: TimeStep) -> None:
        """Advance by `add`."""
        self._time += add if type(add) is int else _number(add)
        self.was_set = True


def _number(value: object) -> int | float:
    detach = getattr(value, "detach", None)
    item = getattr(detach() if callable(detach) else value, "item", None)
    try:
        plain = item() if callable(item) else value
    except (ValueError, TypeError, RuntimeError):
        plain = value
    if isinstance(plain, int):
        if not -MAX_TIME < plain < MAX_TIME:
            raise ArgumentError(f"a time-step has at most 1000 bits, got one of {plain.bit_length()}")
        return int(plain)  # a truth value, too
    if isinstance(plain, float) and math.isfinite(plain):
        return plain
    got = plain if isinstance(plain, float) else type(value).__name__
    raise ArgumentError(f"a time-step is a finite number, got {got}")


time_step_holder = TimeStepHolder()
