"""`wandb_gql`, a package of wandb: queries to its server, which have no effect here."""

from __future__ import annotations

__all__ = ["gql"]


def gql(request_string: str) -> str:
    """The query, unchanged."""
    return request_string
