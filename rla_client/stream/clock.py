"""Clock of a run's time-steps.

The training loop sets the time-step.
"""

from __future__ import annotations

import math
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias

from rla_client.contract.errors import ArgumentError
from rla_client.stream import run_scope

MAX_TIME = 1 << 1000  # within a float's range, with room for sums
MAX_LEADERS = 100  # names that a clock remembers; scripts with a number in each name have endless ones
MAX_LEADER_NAME = 1000  # characters of those that are part of a checkpoint's state
TimeStep: TypeAlias = SupportsFloat | SupportsIndex  # numbers of numpy and torch, too


class TimeStepHolder:
    """Holds the current time-step (RLA's `time_step_holder`).

    Every row, figure and checkpoint carries the time-step of the moment it was made. It may be
    set before or after the run is opened, and to a smaller value.
    """

    def __init__(self) -> None:
        self._time: int | float = 0
        self.was_set = False  # whether it was set since the run was opened
        self._led = False  # whether the script sets it: then nothing else moves it
        self._leaders: dict[str, float] = {}  # names that advanced it → their last step
        self._fallen: dict[str, float] = {}  # names whose next step was far below that → that step

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # in a function sent to another process it is that one's own
        return "time_step_holder" if self is time_step_holder else super().__reduce_ex__(protocol)

    def clear(self) -> None:
        """Reset to 0, as before the first `set_time`."""
        self._time, self.was_set, self._led = 0, False, False
        self._leaders.clear()
        self._fallen.clear()

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
        now = time if type(time) is int and -MAX_TIME < time < MAX_TIME else _number(time)
        if now and now != self._time:  # setting it to 0 or to its present value does not count
            self._led = True
        self._time = now
        self.was_set = True

    def put(self, time: TimeStep, leaders: object = None) -> None:
        """Set it from another source than the script: a checkpoint, a library's training loop.

        Args:
            time: as for `set_time`.
            leaders: those of the checkpoint's clock, as plain data.
        """
        self._time = time if type(time) is int and -MAX_TIME < time < MAX_TIME else _number(time)
        self.was_set = True
        self._fallen.clear()
        if isinstance(leaders, dict):
            self._leaders = {
                name: step
                for name, step in leaders.items()
                if isinstance(name, str) and isinstance(step, int | float)
            }

    def follow(self, step: float, name: str = "") -> None:
        """Advance to the step of a logged value, unless the script sets the clock itself.

        Where the steps of a name that advanced the clock restart (the next stage of a curriculum), the clock
        does, too: at the second consecutive step below half of the name's last one. A late value is nearer
        than that, and a name that is logged on two scales (steps, and epochs) returns to the higher one in
        between.

        Args:
            step: of the value.
            name: of the value; without one the clock only goes forward.
        """
        if self._led:
            return
        leaders, fallen = self._leaders, self._fallen
        if step > self._time:
            self._time = step
            self.was_set = True
        elif name not in leaders or step == self._time:
            return
        elif 2 * step < leaders[name] and self._time <= 2 * leaders[name]:
            if step <= fallen.get(name, math.inf):
                fallen[name] = step
                return
            leaders.clear()
            fallen.clear()
            self._time = step
        if name:
            fallen.pop(name, None)
            if len(leaders) >= MAX_LEADERS and name not in leaders:
                leaders.clear()
                fallen.clear()
            leaders[name] = step

    @property
    def leaders(self) -> dict[str, float]:
        """Names that advanced the clock, with their last steps; `put` takes them."""
        return {
            name.encode("utf-8", "backslashreplace").decode(): step
            for name, step in self._leaders.items()
            if isinstance(name, str) and len(name) <= MAX_LEADER_NAME
        }

    def take_over(self, other: TimeStepHolder) -> None:
        """Take over the state of another clock."""
        self._time, self.was_set, self._led = other._time, other.was_set, other._led
        self._leaders, self._fallen = other._leaders.copy(), other._fallen.copy()

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
        self.was_set = self._led = True

    def add_time(self, add: TimeStep) -> None:
        """Advance by `add`."""
        self._time += add if type(add) is int else _number(add)
        self.was_set = self._led = True


class CurrentClock(TimeStepHolder):
    """`time_step_holder`: the clock of the run that the calling thread writes to."""

    def __init__(self) -> None:
        self._one: TimeStepHolder | None = None  # of all threads
        run_scope.changes.append(self._take)
        self._take(run_scope.current())

    def _take(self, one: run_scope.Scope | None) -> None:
        self._one = None if one is None else clock.of(one)

    @property
    def was_set(self) -> bool:  # type: ignore[override]
        """Whether it was set since the run was opened."""
        return (self._one or clock()).was_set

    def clear(self) -> None:
        """See `TimeStepHolder`."""
        (self._one or clock()).clear()

    def set_time(self, time: TimeStep) -> None:
        """See `TimeStepHolder`."""
        (self._one or clock()).set_time(time)

    def put(self, time: TimeStep, leaders: object = None) -> None:
        """See `TimeStepHolder`."""
        (self._one or clock()).put(time, leaders)

    def follow(self, step: float, name: str = "") -> None:
        """See `TimeStepHolder`."""
        (self._one or clock()).follow(step, name)

    def get_time(self) -> int | float:
        """The current time-step, 0 before the first `set_time`."""
        return (self._one or clock())._time  # noqa: SLF001 - a call less for each row

    def count(self) -> None:
        """See `TimeStepHolder`."""
        (self._one or clock()).count()

    def inc_time(self) -> None:
        """See `TimeStepHolder`."""
        (self._one or clock()).inc_time()

    def add_time(self, add: TimeStep) -> None:
        """See `TimeStepHolder`."""
        (self._one or clock()).add_time(add)


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


clock = run_scope.PerScope(TimeStepHolder)
time_step_holder = CurrentClock()
