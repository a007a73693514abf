"""Calls of a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rla_client.launcher.sampling.episode_batch import stack


def reset_agent(agent: object, begins: Sequence[bool] = (True,)) -> None:
    """Reset a policy with a state, for the environments in which an episode begins."""
    reset = getattr(agent, "reset", None)
    if not callable(reset):
        return
    if len(begins) == 1:
        reset()
    else:
        reset(np.array(begins))


def is_parameters(update: object) -> bool:
    """Whether an update of a policy has only its parameters."""
    return isinstance(update, (dict, tuple, np.ndarray))


def choose_action(agent: Any, observation: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
    """Ask a policy for one action and its infos."""
    choose: Callable[[Any], Any] = getattr(agent, "get_action", agent)
    return _with_infos(choose(observation))


def choose_actions(agent: object, observations: list[Any]) -> list[tuple[Any, dict[str, Any]]]:
    """Ask a policy for an action per observation, in one call if possible."""
    choose = getattr(agent, "get_actions", None)
    if choose is None:
        return [choose_action(agent, observation) for observation in observations]
    actions, infos = _with_infos(choose(stack(observations)))
    return [
        (action, {key: values[number] for key, values in infos.items()})
        for number, action in enumerate(actions)
    ]


def _with_infos(answer: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict):  # noqa: PLR2004 - a pair
        return answer
    return answer, {}
