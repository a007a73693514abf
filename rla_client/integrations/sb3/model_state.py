"""State of a model for an exact resume.

`model_state` takes it, `restore_state` puts it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm

from rla_client.contract.errors import ArgumentError
from rla_client.contract.process.call_signature import signature_of
from rla_client.integrations.sb3.environments import environment_states, layers_of, restore_environments
from rla_client.integrations.sb3.portable import portable
from rla_client.run.current_logger import warn

# set by `learn` or by the script, and not a state of the training
_OF_THE_SCRIPT = frozenset({"start_time", "_total_timesteps", "_num_timesteps_at_start", "lr_schedule"})
_OF_THE_EPISODE = ("_last_obs", "_last_episode_starts", "_last_original_obs", "_last_lstm_states")


def model_state(model: BaseAlgorithm, *, replay_buffer: bool = True) -> dict[str, Any]:
    """Everything that a model needs to continue exactly, between two rollouts; for `restore_state`.

    Returns:
        `attributes`, `parameters` (state dicts), `variables` (tensors), `replay_buffer`, `environments` (from
        the outermost wrapper inwards; None for a layer that cannot be kept), `environment_names` (of these
        layers), `exploration` (the noise of gSDE), `pending` (values of the next row).
    """
    _, variables = _saved_by_torch(model)
    buffer = getattr(model, "replay_buffer", None)
    pending = model.logger
    return {
        "algorithm": type(model).__name__,
        "attributes": portable(_attributes(model)),
        "parameters": model.get_parameters(),
        "variables": {name: attrgetter(name)(model).data for name in variables},
        "replay_buffer": _buffer_state(buffer) if replay_buffer and buffer is not None else None,
        "exploration": {name: value for name, value in exploration(model).items() if "exploration" in name},
        "environments": environment_states(model.env),
        "environment_names": [name for name, _ in layers_of(model.env)],
        "pending": [dict(pending.name_to_value), dict(pending.name_to_count), dict(pending.name_to_excluded)],
    }


def restore_state(model: BaseAlgorithm, state: Mapping[str, Any]) -> None:
    """Restore a model; to be called after `learn` has begun, as by the callback.

    If the environments cannot continue, they begin new episodes; everything else is restored.

    Raises:
        ArgumentError: the state is of another algorithm, or its networks have other shapes.
    """
    if state.get("algorithm") != type(model).__name__:
        raise ArgumentError(f"this checkpoint is of {state.get('algorithm')}, not of {type(model).__name__}")
    try:
        model.set_parameters(state["parameters"], exact_match=True, device=model.device)
    except (ValueError, RuntimeError) as error:
        raise ArgumentError(f"this checkpoint does not fit the model: {error}") from error
    for name, value in state["variables"].items():
        attrgetter(name)(model).data.copy_(value)
    held, attributes = vars(model), dict(state["attributes"])
    continues = restore_environments(model.env, state["environments"], state.get("environment_names"))
    if not continues:
        for name in _OF_THE_EPISODE:
            attributes.pop(name, None)
    held.update({name: _placed(held.get(name), value) for name, value in attributes.items()})
    model._num_timesteps_at_start = model.num_timesteps  # noqa: SLF001 - start of the count for fps
    if state["replay_buffer"] is not None:
        buffer = vars(model.replay_buffer)
        buffer.update(
            {name: _placed(buffer.get(name), value) for name, value in state["replay_buffer"].items()}
        )
    if not continues:
        warn("the environments could not be kept with the checkpoint: they begin a new episode")
        _begin_episodes(model)
    for kept, values in zip(("value", "count", "excluded"), state["pending"], strict=True):
        getattr(model.logger, f"name_to_{kept}").update(values)


def exploration(model: BaseAlgorithm) -> dict[str, Any]:
    """The attributes of the distribution that draws gSDE's noise; empty without gSDE."""
    for owner in (model.policy, getattr(model, "actor", None)):
        distribution: Any = getattr(owner, "action_dist", None)
        if hasattr(distribution, "exploration_mat"):
            return vars(distribution)
    return {}


def _saved_by_torch(model: BaseAlgorithm) -> tuple[list[str], list[str]]:
    modules, variables = model._get_torch_save_params()  # noqa: SLF001 - as BaseAlgorithm.save
    return list(modules), list(variables)


def _attributes(model: BaseAlgorithm) -> dict[str, Any]:
    """The attributes of the training's state, without networks, optimizers and arguments of the script.

    They include attributes that the class does not save, such as the states of an LSTM within an episode.
    """
    modules, variables = _saved_by_torch(model)
    apart = {name.partition(".")[0] for name in (*modules, *variables)} | _OF_THE_SCRIPT
    apart.update(BaseAlgorithm._excluded_save_params(model))  # noqa: SLF001
    apart.update(name for kind in type(model).__mro__ for name in _arguments(kind) if name != "action_noise")
    unsaved = set(model._excluded_save_params())  # noqa: SLF001
    return {
        name: value
        for name, value in vars(model).items()
        if name not in apart
        and not (name in unsaved and isinstance(value, torch.nn.Module | torch.optim.Optimizer))
    }


def _arguments(kind: type) -> set[str]:
    return set(signature_of(kind.__init__).parameters) if "__init__" in vars(kind) else set()  # type: ignore[misc]


def _begin_episodes(model: Any) -> None:
    """Begin new episodes in the environments, and end the last ones in the replay buffer."""
    model._last_obs = model.env.reset()  # noqa: SLF001 - as `learn` does, here and below
    model._last_episode_starts = np.ones(model.n_envs, dtype=bool)  # noqa: SLF001
    if model.get_vec_normalize_env() is not None:
        model._last_original_obs = model.get_vec_normalize_env().get_original_obs()  # noqa: SLF001
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None or not (buffer.full or buffer.pos):
        return
    if hasattr(buffer, "truncate_last_trajectory"):
        buffer.truncate_last_trajectory()
    elif getattr(buffer, "optimize_memory_usage", False):
        buffer.dones[buffer.pos - 1] = True
    elif getattr(buffer, "handle_timeout_termination", False):  # ends returns over several steps
        buffer.timeouts[buffer.pos - 1] += buffer.dones[buffer.pos - 1] == 0


def _buffer_state(buffer: Any) -> dict[str, Any]:
    """The filled part of a replay buffer; the checkpoint copies its arrays.

    With `optimize_memory_usage`, the place after the newest transition has its next observation.
    """
    filled = buffer.buffer_size if buffer.full else min(buffer.pos + 1, buffer.buffer_size)
    return {
        name: _tensors(value, buffer.buffer_size, filled)
        for name, value in vars(buffer).items()
        if name not in {"env", "device"}
    }


def _tensors(value: Any, size: int, filled: int) -> Any:
    if isinstance(value, dict):  # but not gymnasium's spaces.Dict, which stays as it is
        return {key: _tensors(entry, size, filled) for key, entry in value.items()}
    if isinstance(value, np.ndarray) and value.dtype != object and value.shape[:1] == (size,):
        return torch.from_numpy(value[:filled])
    return value


def _placed(held: Any, value: Any) -> Any:
    """A stored value, copied into the array of a replay buffer, or moved to the device of the old value."""
    if isinstance(value, dict) and isinstance(held, dict):
        return {key: _placed(held.get(key), entry) for key, entry in value.items()}
    if isinstance(value, tuple) and isinstance(held, tuple) and len(value) == len(held):
        entries = map(_placed, held, value)
        return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)
    if isinstance(value, torch.Tensor) and isinstance(held, np.ndarray):
        held[: len(value)] = value.numpy()
        return held
    if isinstance(value, torch.Tensor) and isinstance(held, torch.Tensor):
        return value.to(held.device)
    return value
