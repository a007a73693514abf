"""Environments of any library.

    gymnasium     reset(seed=…) → (observation, info)    step → (o, r, terminated, truncated, info)
    older gym     seed(…), reset() → observation          step → (o, r, done, info)
    garage        reset() → (observation, episode_info)   step → EnvStep (reward, observation, env_info,
                                                          step_type, …)

An environment without a seed argument of `reset` is seeded by its `seed` method, else through an
environment that it wraps (one of its attributes), which is reset once more for that. Without either, one
warning says that its episodes repeat only if they draw from seeded generators.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rla_client.contract.process.call_signature import signature_of
from rla_client.launcher.sampling.env_spec import StepType

NEW_STEP = 5  # observation, reward, terminated, truncated, info
TRUNCATED_KEY = "TimeLimit.truncated"  # older gym's mark that a limit of steps ended the episode
_log = logging.getLogger("rla_client")
_takes_seed: dict[type, bool] = {}
_warned: set[type] = set()


class Env(Protocol):
    """An environment of any library."""

    @property
    def reset(self) -> Callable[..., Any]:
        """Begins an episode."""

    @property
    def step(self) -> Callable[..., Any]:
        """Acts once."""


def reset_env(env: Env, seed: int | None) -> tuple[Any, dict[str, Any]]:
    """Begin an episode; returns (first observation, info).

    Args:
        env: the environment.
        seed: seed of this and later episodes; None continues with the current generator.
    """
    answer = env.reset() if seed is None else _reset_seeded(env, seed)
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping):  # noqa: PLR2004
        return answer[0], dict(answer[1])
    return answer, {}


def step_env(env: Env, action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Act once; returns (observation, reward, terminated, truncated, info)."""
    answer = env.step(action)
    if hasattr(answer, "step_type"):
        kind = int(answer.step_type)
        ends = kind == StepType.TERMINAL, kind == StepType.TIMEOUT
        return answer.observation, float(answer.reward), *ends, dict(answer.env_info)
    if len(answer) == NEW_STEP:
        observation, reward, terminated, truncated, info = answer
        return observation, float(reward), bool(terminated), bool(truncated), info
    observation, reward, done, info = answer
    cut = bool(done) and bool(info.get(TRUNCATED_KEY))
    return observation, float(reward), bool(done) and not cut, cut, info


def updated_env(env: Any, update: Any) -> object:  # noqa: ANN401
    """The environment after an update, which is an environment or a function of the old one."""
    if update is None:
        return env
    return update if hasattr(update, "step") else update(env)


def seed_spaces(env: object, seed: int) -> None:
    """Seed the spaces of an environment, from which exploring policies draw actions."""
    for name in ("action_space", "observation_space"):
        space = getattr(env, name, None)
        if space is not None and hasattr(space, "seed"):
            space.seed(seed)


def _reset_seeded(env: Env, seed: int) -> object:
    if _reset_takes_seed(env):
        return env.reset(seed=seed)
    if not _seed_otherwise(env, seed) and type(env) not in _warned:
        _warned.add(type(env))
        _log.warning(
            "reset() of %s takes no seed and there is no seed(): its episodes repeat only if they draw "
            "from generators that set_seed seeds", type(env).__name__,
        )  # fmt: skip
    return env.reset()


def _seed_otherwise(env: Any, seed: int) -> bool:  # noqa: ANN401
    if callable(getattr(env, "seed", None)):
        env.seed(seed)
        return True
    for inner in list(getattr(env, "__dict__", {}).values()):
        if callable(getattr(inner, "reset", None)) and callable(getattr(inner, "step", None)):
            if _reset_takes_seed(inner):
                inner.reset(seed=seed)
                return True
            return _seed_otherwise(inner, seed)
    return False


def _reset_takes_seed(env: Env) -> bool:
    kind = type(env)
    known = _takes_seed.get(kind)
    if known is None:
        try:
            parameters = signature_of(env.reset).parameters.values()
        except (TypeError, ValueError):  # written in C
            known = True
        else:
            known = any(one.name == "seed" or one.kind is one.VAR_KEYWORD for one in parameters)
        _takes_seed[kind] = known
    return known
