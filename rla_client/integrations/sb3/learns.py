"""Calls of `learn` in a run.

They are counted in the order in which the script makes them, for each series of checkpoints. A checkpoint
holds one `Learn` for each up to its own. When the script is started again it makes the same calls: those that
had ended train nothing, in the one in which the checkpoint was made training continues, the later ones are as
ever.
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
        model: which model of the run it trains, counted from 0.
        total: time-steps at which it is to end.
        end: time-steps at which it ended; None: it has not.
        iterations: of on-policy algorithms, done so far.
    """

    model: int
    total: int
    end: int | None = None
    iterations: int = 0


class Learns:
    """The calls of this process so far, and those that the checkpoint knew from which the run is resumed."""

    def __init__(self) -> None:
        self.calls: list[Learn] = []
        self.former: list[Learn] = []
        self.read = False  # whether `former` was looked for
        self._models: list[weakref.ref[BaseAlgorithm]] = []

    def begin(self, model: BaseAlgorithm) -> Learn:
        """Count a call that has begun."""
        known = [ref() for ref in self._models]
        number = next((place for place, each in enumerate(known) if each is model), len(known))
        if number == len(known):
            self._models.append(weakref.ref(model))
        call = Learn(number, int(model._total_timesteps))  # noqa: SLF001 - what `learn` compares with
        self.calls.append(call)
        return call

    def had_ended(self) -> Learn | None:
        """The earlier call that the newest one repeats, if that had ended and no more is asked for now."""
        if len(self.calls) > len(self.former):
            return None
        now, before = self.calls[-1], self.former[len(self.calls) - 1]
        ended = before.end is not None and not (self.continues() and now.total > before.total)
        return before if ended else None

    def continues(self) -> bool:
        """Whether the newest call is the one in which the checkpoint was made."""
        return len(self.calls) == len(self.former)

    def kept(self) -> list[dict[str, Any]]:
        """As plain data, for a checkpoint."""
        return [asdict(call) for call in self.calls]


def learns_of(state: Mapping[str, Any]) -> list[Learn]:
    """The calls up to a checkpoint; one that was written before they were counted is of the first."""
    return [Learn(**call) for call in state.get("learns", [{"model": 0, "total": 0}])]


def frame_of(model: BaseAlgorithm) -> FrameType | None:
    """The frame of the `learn` that has called us; None when something else has."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "learn" and frame.f_locals.get("self") is model:
            return frame
        frame = frame.f_back
    return None


def iterations(frame: FrameType | None) -> int:
    """Those that an on-policy `learn` has done; 0 of others."""
    return 0 if frame is None else int(frame.f_locals.get("iteration", 0))


def set_iterations(frame: FrameType | None, done: int) -> None:
    """Have `learn` go on counting where it was: it logs each `log_interval`th, and their number."""
    if frame is None or "iteration" not in frame.f_locals:
        return
    values = frame.f_locals
    values["iteration"] = done
    if sys.version_info < (3, 13):  # from then on, `f_locals` writes through by itself
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
