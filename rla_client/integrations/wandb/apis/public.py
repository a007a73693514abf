"""`wandb.apis.public`: objects of wandb's server, which have no effect here."""

from __future__ import annotations

from rla_client.integrations.wandb.run_object import Run
from rla_client.integrations.wandb.unknown_names import Unknown, unknown_part

__all__ = ["Run"]


def __getattr__(name: str) -> Unknown:
    return unknown_part("apis.public", name)
