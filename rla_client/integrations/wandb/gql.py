"""`wandb_gql`: questions to wandb's server, a package that comes with wandb; they have no meaning here."""

from __future__ import annotations

__all__ = ["gql"]


def gql(request_string: str) -> str:
    """The question as it was given."""
    return request_string
