"""Calls of `learn` in a run.

The calls are counted in order, for each series of checkpoints. A checkpoint has a `Learn` for each call up to
its own. When the script is started again, it makes the same calls: calls that had ended train nothing,
training continues in the call in which the checkpoint was made, and later calls are unchanged.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm


@dataclass
class Learn:
    """A call of `learn`.

    Args:
        model: number of the model in the run, from 0.
        total: time-steps at which the call should end.
        end: time-steps at which it ended; None: it has not ended.
        iterations: of an on-policy algorithm so far.
    """

    model: int
    total: int
    end: int | None = None
    iterations: int = 0


class Learns:
    """The calls of this process so far, and the calls in the checkpoint from which the run is resumed."""

    def __init__(self) -> None:
        self.calls: list[Learn] = []
        self.former: list[Learn] = []
        self.read = False  # whether `former` was read
        self._models: list[weakref.ref[BaseAlgorithm]] = []

    def begin(self, model: BaseAlgorithm) -> Learn:
        """Count a call that has begun."""
        known = [ref() for ref in self._models]
        number = next((place for place, each in enumerate(known) if each is model), len(known))
        if number == len(known):
            self._models.append(weakref.ref(model))
        call = Learn(number, int(model._total_timesteps))  # noqa: SLF001 - the limit of `learn`
        self.calls.append(call)
        return call

    def had_ended(self) -> Learn | None:
        """The earlier call that the newest one repeats, if it had ended and its total has not increased."""
        if len(self.calls) > len(self.former):
            return None
        now, before = self.calls[-1], self.former[len(self.calls) - 1]
        ended = before.end is not None and not (self.continues() and now.total > before.total)
        return before if ended else None

    def continues(self) -> bool:
        """Whether the newest call is the one in which the checkpoint was made."""
        return len(self.calls) == len(self.former)

    def kept(self) -> list[dict[str, Any]]:
        """The calls as plain data, for a checkpoint."""
        return [asdict(call) for call in self.calls]


def learns_of(state: Mapping[str, Any]) -> list[Learn]:
    """The calls up to a checkpoint; a checkpoint without them belongs to the first call."""
    return [Learn(**call) for call in state.get("learns", [{"model": 0, "total": 0}])]


def frame_of(model: BaseAlgorithm) -> FrameType | None:
    """The frame of the model's `learn` on the call stack; None without one."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "learn" and frame.f_locals.get("self") is model:
            return frame
        frame = frame.f_back
    return None


def iterations(frame: FrameType | None) -> int:
    """Iterations of an on-policy `learn` so far; 0 for other algorithms."""
    return 0 if frame is None else int(frame.f_locals.get("iteration", 0))


def set_iterations(frame: FrameType | None, done: int) -> None:
    """Set the iterations of an on-policy `learn`, which logs their number each `log_interval`."""
    if frame is None or "iteration" not in frame.f_locals:
        return
    values = frame.f_locals
    values["iteration"] = done
    if sys.version_info < (3, 13):  # later versions write through `f_locals`
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
