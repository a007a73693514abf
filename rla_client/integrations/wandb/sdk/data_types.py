"""`wandb.sdk.data_types`: types of values for `log`."""

from __future__ import annotations

from rla_client.integrations.wandb.data_types import Audio, Histogram, Html, Image, Table, Video
from rla_client.integrations.wandb.unknown_names import Unknown, unknown_part

__all__ = ["Audio", "Histogram", "Html", "Image", "Table", "Video"]


def __getattr__(name: str) -> Unknown:
    return unknown_part("sdk.data_types", name)
