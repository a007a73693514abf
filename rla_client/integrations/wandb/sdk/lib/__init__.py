"""`wandb.sdk.lib`: small parts that frameworks import."""

from __future__ import annotations

import importlib
from typing import Any

from rla_client.integrations.wandb.unknown_names import unknown_part

_MODULES = frozenset({"config_util", "runid"})


class RunDisabled:
    """The result of `init` with mode "disabled" in some releases of wandb; never used here."""


def __getattr__(name: str) -> Any:
    return (
        importlib.import_module(f"{__name__}.{name}") if name in _MODULES else unknown_part("sdk.lib", name)
    )
