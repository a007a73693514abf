"""Constructor arguments of a model, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla_client.contract.errors import extra
from rla_client.contract.process.call_signature import signature_of

with extra("sb3", "rla_client.integrations.sb3"):
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.vec_env import VecEnv


def model_parameters(model: BaseAlgorithm) -> dict[str, Any]:
    """The constructor arguments of a model, as plain data; a constant schedule becomes its number."""
    names = signature_of(type(model).__init__).parameters
    found: dict[str, Any] = {"algo": type(model).__name__, "env_id": _env_id(model.env)}
    found["n_envs"], found["policy"] = model.n_envs, model.policy_class.__name__
    for name in names:
        if name not in found and name not in {"self", "env", "_init_setup_model"} and hasattr(model, name):
            found[name] = _shown(getattr(model, name))
    return found


def _shown(value: Any) -> Any:
    if isinstance(value, (type(None), bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _shown(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(entry) for entry in value]
    if callable(value) and not isinstance(value, type):
        try:
            first, last = float(value(1.0)), float(value(0.0))
        except Exception:  # noqa: BLE001 - a function of the user, with unknown arguments
            return repr(value)
        return first if first == last else f"from {first:g} to {last:g}"
    return str(getattr(value, "__name__", value))


def _env_id(env: VecEnv | None) -> str:
    try:
        specs = [] if env is None else env.get_attr("spec", 0)
        return str(specs[0].id)
    except (AttributeError, IndexError):
        return "environment"
