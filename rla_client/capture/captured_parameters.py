"""Hyper-parameters of a captured run, chosen from those that the hooks observed."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rla_client.run.parameters.config_objects import to_parameters
from rla_client.run.parameters.hyper_params import parameters_of_table
from rla_client.stream.values import MAX_DEPTH

if TYPE_CHECKING:
    from rla_client.capture.hooks.seen_parameters import ParameterSource

MAX_TRACKED = 6
MAX_TRACKED_CHARS = 60  # of a value in the run's index
TORCH_UNSEEDED = 67280421310721  # torch.initial_seed() before manual_seed
MAX_SEED = 1 << 32
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


def merged(sources: Iterable[ParameterSource]) -> dict[str, Any]:
    """Name → value. Sources of a higher rank win; among equal ranks, the later source wins."""
    found: dict[str, Any] = {}
    for source in sorted(sources, key=lambda one: one.rank):
        found |= plain(source.values)
    return found


def counted(sources: Iterable[ParameterSource]) -> dict[str, int]:
    """Origin → number of the values that come from it."""
    winners: dict[str, str] = {}
    for source in sorted(sources, key=lambda one: one.rank):
        winners |= dict.fromkeys(plain(source.values), source.origin)
    origins = list(winners.values())
    return {origin: origins.count(origin) for origin in dict.fromkeys(origins)}


def plain(values: Any) -> dict[str, Any]:  # noqa: ANN401 - of any kind
    """The entries or attributes of an object; nested dataclasses and Namespaces become dicts."""
    text = getattr(values, "text", None)
    if type(values).__name__ == "MarkdownParameters" and isinstance(text, str):
        return dict(parameters_of_table(text))
    if not isinstance(values, Mapping) and hasattr(values, "items"):  # wandb's config
        values = dict(values.items())
    found = to_parameters(values).items()
    return {str(name): _value(value, 1) for name, value in found if _is_parameter(str(name), value)}


def _value(value: Any, depth: int) -> Any:  # noqa: ANN401
    nested = hasattr(type(value), "__dataclass_fields__") or type(value).__name__ == "Namespace"
    if not nested or isinstance(value, type) or depth > MAX_DEPTH:
        return value
    inside = to_parameters(value)
    return {name: _value(one, depth + 1) for name, one in inside.items() if _is_parameter(name, one)}


def _is_parameter(name: str, value: object) -> bool:
    return not name.startswith("_") and not isinstance(value, _CODE)


def tracked(parameters: Mapping[str, Any], given: Iterable[str], wanted: Iterable[str] = ()) -> list[str]:
    """Names for the run's index: `wanted`, or else the options on the command line and the seed."""
    wanted = [name for name in wanted if _at(parameters, name) is not None]
    if wanted:
        return wanted
    found = [name for name in dict.fromkeys(given) if _is_short(_at(parameters, name))]
    if "seed" not in found and _is_short(parameters.get("seed")):
        found = [*found[: MAX_TRACKED - 1], "seed"]
    return found[:MAX_TRACKED]


def _is_short(value: object) -> bool:
    return isinstance(value, bool | int | float | str) and 0 < len(str(value)) <= MAX_TRACKED_CHARS


def _at(parameters: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401
    if path in parameters:
        return parameters[path]
    found: Any = parameters
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def seed_of_torch() -> int | None:
    """The seed that the program gave torch, None without one. Reading it changes no random state."""
    torch = sys.modules.get("torch")
    read = getattr(torch, "initial_seed", None)
    if read is None:
        return None
    seed = int(read())
    return seed if seed != TORCH_UNSEEDED and 0 <= seed < MAX_SEED else None
