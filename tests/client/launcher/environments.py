"""Environments and policies of these tests; worker processes import them by name."""

# ruff: noqa: ARG002, NPY002
# (signatures are gymnasium's; the global generator is meant)
from __future__ import annotations

import os
import threading
import time
from typing import Any

import gymnasium
import numpy as np


class Counting(gymnasium.Env):  # type: ignore[misc]
    """Observations (episode seed draw, step); reward 1; ends after `length` steps."""

    observation_space = gymnasium.spaces.Box(-1, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: Any = 5, step_s: Any = 0.0) -> None:
        self.length = length
        self.step_s = step_s
        self.steps = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.drawn = self.np_random.random()
        return self._observation(), {"drawn": self.drawn}

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + self.step_s
        while time.perf_counter() < end:
            pass  # computing, not waiting
        self.steps += 1
        return self._observation(), 1.0, self.steps >= self.length, False, {"step": self.steps}

    def _observation(self) -> Any:
        return np.array([self.drawn, self.steps], dtype=np.float32)


class Locked(Counting):
    """Cannot be pickled, but made again from its spec."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


gymnasium.register("Locked-v0", entry_point=Locked)


class Crashing(Counting):
    """Raises at the third step of all, or ends its process, as long as `marker` is not there."""

    def __init__(self, marker: Any, *, how: str) -> None:
        super().__init__()
        self.marker = str(marker)
        self.how = how
        self.total = 0

    def step(self, action: Any) -> Any:
        self.total += 1
        if self.total == 3 and (self.how == "always" or not os.path.exists(self.marker)):
            with open(self.marker, "w"):
                pass
            if self.how == "exit":
                os._exit(7)
            raise RuntimeError("the simulator fell over")
        return super().step(action)


class Alternating:
    """A policy that knows how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def get_action(self, observation: Any) -> Any:
        self.asked += 1
        return self.asked % 2, {"asked": self.asked}


class Seeing:
    """A policy that draws nothing: its actions follow from what it sees."""

    def get_action(self, observation: Any) -> Any:
        return int(observation.sum() * 10_000) % 2, {}


class Drawing:
    """A policy that draws from numpy's global generator."""

    def get_action(self, observation: Any) -> Any:
        return int(np.random.randint(2)), {"u": np.random.rand()}
