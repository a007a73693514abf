"""State of stable-baselines3's callbacks.

The state consists of numbers and texts that changed since the training began, and of other attributes that
can be pickled and are not arguments of the callback. So paths, frequencies and thresholds stay those of the
script. Environments for evaluation are kept like those for training. Callbacks are identified by their class
and, among those of one class, by their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from rla_client.contract.process.call_signature import signature_of
from rla_client.integrations.sb3.environments import (
    environment_states,
    layers_of,
    members_of,
    restore_environments,
)
from rla_client.integrations.sb3.portable import portable

_MADE = "_rla_as_made"  # attribute of each callback with its plain values when the training began
_OF_THE_TRAINING = frozenset({"model", "locals", "globals", "parent", _MADE})
_PLAIN = (type(None), bool, int, float, str)
_ELSEWHERE = BaseCallback | BaseAlgorithm | BaseBuffer | Logger | VecEnv | gymnasium.Env


def note_beginning(root: BaseCallback, own: type[BaseCallback]) -> None:
    """Note the plain attributes of callbacks at their first training.

    Args:
        root: the callback that `learn` calls.
        own: a class of callbacks to skip.
    """
    for _, callback in _tree(root, own):
        plain = {name: value for name, value in vars(callback).items() if isinstance(value, _PLAIN)}
        vars(callback).setdefault(_MADE, plain)


def callback_states(
    root: BaseCallback, model: BaseAlgorithm, own: type[BaseCallback]
) -> dict[str, dict[str, Any]]:
    """For each callback: `attributes`, and `environments` (attribute → states and names of layers)."""
    theirs = {id(part) for part in _parts(model)} | members_of(model.env)
    return {
        name: {
            "attributes": portable(_changed(callback), lambda value: _is_elsewhere(value, theirs)),
            "environments": {
                attribute: [environment_states(env), [layer for layer, _ in layers_of(env)]]
                for attribute, env in _environments(callback)
                if id(env) not in theirs
            },
        }
        for name, callback in _tree(root, own)
    }


def restore_callbacks(
    root: BaseCallback, states: Mapping[str, Mapping[str, Any]], own: type[BaseCallback]
) -> None:
    """Restore the states of `callback_states`; callbacks without a state stay as they are."""
    for name, callback in _tree(root, own):
        kept = states.get(name)
        if kept is None:
            continue
        vars(callback).update(kept["attributes"])
        for attribute, env in _environments(callback):
            if attribute in kept["environments"]:
                restore_environments(env, *kept["environments"][attribute])


def _tree(root: BaseCallback, own: type[BaseCallback]) -> Iterator[tuple[str, BaseCallback]]:
    """(name, callback) of each callback once, parents before children."""
    met: Counter[str] = Counter()
    waiting, known = [root], {id(root)}
    while waiting:
        callback = waiting.pop()
        if not isinstance(callback, own):
            kind = type(callback).__name__
            met[kind] += 1
            yield kind if met[kind] == 1 else f"{kind} {met[kind]}", callback
        within = [
            child for name, value in vars(callback).items() if name != "parent" for child in _held(value)
        ]
        new = {id(child): child for child in within if id(child) not in known}
        known |= new.keys()
        waiting += reversed(new.values())


def _held(value: object) -> list[BaseCallback]:
    entries = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
    )
    return [entry for entry in entries if isinstance(entry, BaseCallback)]


def _environments(callback: BaseCallback) -> list[tuple[str, VecEnv]]:
    return [(name, value) for name, value in vars(callback).items() if isinstance(value, VecEnv)]


def _changed(callback: BaseCallback) -> dict[str, Any]:
    made = vars(callback).get(_MADE, {})
    arguments: set[str] = set()
    for kind in type(callback).__mro__:
        if "__init__" in vars(kind):
            arguments.update(signature_of(kind.__init__).parameters)  # type: ignore[misc]
    return {
        name: value
        for name, value in vars(callback).items()
        if name not in _OF_THE_TRAINING
        and (
            name not in made or type(value) is not type(made[name]) or value != made[name]
            if isinstance(value, _PLAIN)
            else name not in arguments
        )
    }


def _parts(model: BaseAlgorithm) -> list[object]:
    parts = [
        value for value in vars(model).values() if isinstance(value, torch.nn.Module | torch.optim.Optimizer)
    ]
    modules = [part for each in parts if isinstance(each, torch.nn.Module) for part in each.modules()]
    optimizers = [
        value for part in modules for value in vars(part).values() if isinstance(value, torch.optim.Optimizer)
    ]
    return [*parts, *modules, *optimizers]


def _is_elsewhere(value: object, theirs: set[int] | frozenset[int]) -> bool:
    return isinstance(value, _ELSEWHERE) or id(value) in theirs
