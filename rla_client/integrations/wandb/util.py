"""`wandb.util`: functions that scripts use."""

from __future__ import annotations

from rla_client.integrations.wandb.sdk.lib.runid import generate_id
from rla_client.integrations.wandb.unknown_names import Unknown, unknown_part
from rla_client.media.row_media import safe_name

__all__ = ["generate_id", "make_artifact_name_safe"]
make_artifact_name_safe = safe_name


def __getattr__(name: str) -> Unknown:
    return unknown_part("util", name)
