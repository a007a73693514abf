"""`wandb.plot`: charts, of which the table is kept."""

from __future__ import annotations

from typing import Any

from rla_client.integrations.wandb.values import Unknown, unknown_part


def line(table: Any, *_: Any, **__: Any) -> Any:
    """The table itself."""
    return table


scatter = bar = histogram = line


def __getattr__(name: str) -> Unknown:
    return unknown_part("plot", name)
