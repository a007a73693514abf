"""Description of an environment's steps, in garage's terms."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class StepType(IntEnum):
    """Position of a step in its episode."""

    FIRST = 0
    MID = 1
    TERMINAL = 2  # the environment ended the episode
    TIMEOUT = 3  # a limit of steps ended it: the value of the next state is not zero


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """Spaces and episode limit of an environment, in garage's terms.

    Attributes:
        observation_space: gymnasium space of one observation.
        action_space: gymnasium space of one action.
        max_episode_length: steps after which an episode is cut off; None: the environment's own limit.
    """

    observation_space: Any
    action_space: Any
    max_episode_length: int | None = None

    @classmethod
    def of(cls, env: object, max_episode_length: int | None) -> EnvSpec | None:
        """The spec of an environment; None if `env` has no spaces, e.g. a function that makes one."""
        if not hasattr(env, "observation_space") or not hasattr(env, "action_space"):
            return None
        return cls(env.observation_space, env.action_space, max_episode_length)
