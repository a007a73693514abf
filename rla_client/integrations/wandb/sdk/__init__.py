"""`wandb.sdk`: internal parts of wandb that frameworks import."""

from __future__ import annotations

import importlib
from typing import Any

from rla_client.integrations.wandb.unknown_names import unknown_part

_MODULES = frozenset({"data_types", "lib", "mailbox", "wandb_run", "wandb_settings"})


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}") if name in _MODULES else unknown_part("sdk", name)
