"""`wandb.data_types`: types of values for `log`."""

from __future__ import annotations

from rla_client.integrations.wandb.unknown_names import Unknown, unknown_part
from rla_client.integrations.wandb.values import Audio, Histogram, Html, Image, Object3D, Table, Video

__all__ = ["Audio", "Histogram", "Html", "Image", "Object3D", "Table", "Video"]


def __getattr__(name: str) -> Unknown:
    return unknown_part("data_types", name)
