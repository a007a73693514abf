"""Hyper-parameters of a configuration object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.process.loaded_modules import loaded
from rla_client.stream.param_values import resolved


def to_parameters(config: object) -> dict[str, Any]:
    """Hyper-parameters by name, values as they are.

    Raises:
        ArgumentError: it has no names.
    """
    if config is None:
        return {}
    omegaconf = loaded("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(config):
        config = resolved(config)
    if isinstance(config, Mapping):
        return {str(key): value for key, value in config.items()}
    fields = getattr(type(config), "__dataclass_fields__", None)
    if fields is not None and not isinstance(config, type):
        return {name: getattr(config, name) for name in fields if hasattr(config, name)}
    if hasattr(config, "_asdict"):
        return dict(config._asdict())
    if isinstance(config, type) or not hasattr(config, "__dict__"):
        raise ArgumentError(
            "config takes the hyper-parameters as a dict, Namespace, dataclass or OmegaConf, "
            f"got {type(config).__name__}"
        )
    return dict(vars(config))
