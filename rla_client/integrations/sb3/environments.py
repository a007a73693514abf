"""State of environments for an exact resume.

`layers_of` names the layers of a `VecEnv`, from the outermost wrapper inwards. The state of a wrapper are its
attributes that can be pickled. The innermost layer contains the environments and is kept completely or not at
all, as an episode cannot continue with a part of its state. Environments are kept as objects or, if one has
something that belongs to the process (an open file of `Monitor`, a lambda of a wrapper), wrapper by wrapper
without that thing, which stays that of the script::

    {…, "envs": [environment, …]}            {…, "envs": [[{attributes of a wrapper}, …], …]}

Environments in other processes have no state here. Then only the wrappers are restored, and all environments
begin a new episode.
"""

from __future__ import annotations

import functools
import io
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.monitor import ResultsWriter
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from rla_client.integrations.sb3.portable import portable

State = dict[str, Any]
_HOW_MADE = frozenset({"class_attributes", "_saved_kwargs"})  # set by a wrapper's class and arguments
# things of the process that do not affect the next steps of an environment: code, outputs, pictures
_CODE = types.FunctionType | types.BuiltinFunctionType | types.MethodType | types.ModuleType | type
_OUTLETS = _CODE | functools.partial | io.IOBase | ResultsWriter | EnvSpec
_OUTLET_MODULES = frozenset({"pygame", "matplotlib", "logging", "_csv", "_thread"})


def layers_of(env: Any) -> Iterator[tuple[str, VecEnv]]:
    """(name, layer) from the outermost wrapper inwards; nothing for None."""
    met: Counter[str] = Counter()
    while env is not None:
        name = type(env).__name__
        met[name] += 1
        yield name if met[name] == 1 else f"{name} {met[name]}", env
        env = env.venv if isinstance(env, VecEnvWrapper) else None


def environment_states(env: VecEnv | None) -> list[State | None]:
    """The state of each layer; None for a layer that cannot be kept."""
    members = members_of(env)
    return [
        _wrapper_state(layer, members)
        if isinstance(layer, VecEnvWrapper)
        else _innermost_state(layer, members)
        for _, layer in layers_of(env)
    ]


def members_of(env: VecEnv | None) -> frozenset[int]:
    """Ids of all layers, and of the environments and wrappers inside them."""
    layers = [layer for _, layer in layers_of(env)]
    inner = [part for layer in layers for each in _environments(layer) for part in _chain(each)]
    return frozenset(map(id, layers + inner))


def restore_environments(
    env: VecEnv | None, states: Sequence[State | None], names: Sequence[str] | None
) -> bool:
    """Restore the states of layers.

    Args:
        env: the environments.
        states: of the layers.
        names: of the layers; None for a checkpoint without names.

    Returns:
        Whether all layers were restored. If not, the environments have to begin new episodes.
    """
    layers = dict(layers_of(env))
    if names is None:
        names = list(layers) if len(layers) == len(states) else []
    whole = list(layers) == list(names)
    for name, kept in zip(names, states, strict=False):
        layer = layers.get(name)
        if layer is None or kept is None:
            whole = False
        elif isinstance(layer, VecEnvWrapper):
            vars(layer).update(kept)
        elif whole:
            whole = _restore_innermost(layer, kept)
    return whole


def _environments(layer: Any) -> list[Any]:
    found = vars(layer).get("envs")
    return found if isinstance(found, list) else []


def _chain(environment: Any) -> Iterator[Any]:
    while isinstance(environment, gymnasium.Wrapper):
        yield environment
        environment = environment.env
    yield environment


def _wrapper_state(layer: Any, members: frozenset[int]) -> State:
    values = {name: value for name, value in vars(layer).items() if name not in _HOW_MADE}
    return portable(values, foreign=lambda part: id(part) in members)


def _innermost_state(layer: VecEnv, members: frozenset[int]) -> State | None:
    values = {name: value for name, value in vars(layer).items() if name not in _HOW_MADE}
    kept = portable(values)
    if len(kept) == len(values):
        return kept
    environments = _environments(layer)
    values.pop("envs", None)
    if not environments or not _nothing_lost(values, kept, members):
        return None
    chains = [_chain_state(environment, members) for environment in environments]
    return None if None in chains else {**kept, "envs": chains}


def _chain_state(environment: Any, members: frozenset[int]) -> list[State] | None:
    found = []
    for layer in _chain(environment):
        kept = _wrapper_state(layer, members)
        if not _nothing_lost(vars(layer), kept, members):
            return None
        found.append(kept)
    return found


def _nothing_lost(values: State, kept: State, members: frozenset[int]) -> bool:
    """Whether everything that was left out belongs to the process or is another layer."""
    return all(
        id(value) in members
        or isinstance(value, _OUTLETS)
        or type(value).__module__.partition(".")[0] in _OUTLET_MODULES
        for name, value in values.items()
        if name not in kept and name not in _HOW_MADE
    )


def _restore_innermost(layer: Any, kept: State) -> bool:
    chains = kept.get("envs")
    if not (isinstance(chains, list) and chains and isinstance(chains[0], list)):
        vars(layer).update(kept)
        return True
    there = [list(_chain(environment)) for environment in _environments(layer)]
    if [len(chain) for chain in there] != [len(chain) for chain in chains]:
        return False
    for chain, states in zip(there, chains, strict=True):
        for each, state in zip(chain, states, strict=True):
            vars(each).update(state)
    vars(layer).update({name: value for name, value in kept.items() if name != "envs"})
    return True
