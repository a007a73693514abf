"""The description of an environment's steps, in garage's words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class StepType(IntEnum):
    """Where in its episode a step lies."""

    FIRST = 0
    MID = 1
    TERMINAL = 2  # the environment ended the episode
    TIMEOUT = 3  # a limit of steps ended it: the value of what follows is not zero


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What an environment takes and gives, in garage's words.

    Attributes:
        observation_space: gymnasium's, of one observation.
        action_space: likewise, of one action.
        max_episode_length: steps after which an episode is cut; None: the environment's own affair.
    """

    observation_space: Any
    action_space: Any
    max_episode_length: int | None = None

    @classmethod
    def of(cls, env: object, max_episode_length: int | None) -> EnvSpec | None:
        """The spec of an environment; None for what has no spaces, as a function that makes one."""
        if not hasattr(env, "observation_space") or not hasattr(env, "action_space"):
            return None
        return cls(env.observation_space, env.action_space, max_episode_length)
