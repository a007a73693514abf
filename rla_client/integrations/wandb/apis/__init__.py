"""`wandb.apis`: queries to wandb's server, which have no effect here."""

from __future__ import annotations

from rla_client.integrations.wandb.unknown_names import Unknown, unknown_part


def __getattr__(name: str) -> Unknown:
    return unknown_part("apis", name)
