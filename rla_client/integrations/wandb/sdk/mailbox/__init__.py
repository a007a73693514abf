"""`wandb.sdk.mailbox`: errors of waiting for wandb's server, which frameworks import."""

from __future__ import annotations

import importlib
from typing import Any

from rla_client.integrations.wandb.unknown_names import unknown_part

_MODULES = frozenset({"mailbox_handle"})


def __getattr__(name: str) -> Any:
    return (
        importlib.import_module(f"{__name__}.{name}")
        if name in _MODULES
        else unknown_part("sdk.mailbox", name)
    )
