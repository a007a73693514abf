"""`wandb.sdk.wandb_settings`: the class of settings."""

from __future__ import annotations

import types

from rla_client.integrations.wandb.unknown_names import Unknown, unknown_part

__all__ = ["Settings"]


class Settings(types.SimpleNamespace):
    """Settings as attributes; `mode`, `x_label` and `x_primary` have an effect."""

    def __getattr__(self, name: str) -> Unknown:
        return unknown_part("Settings", name)
