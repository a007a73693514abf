"""`wandb_gql`, which comes with wandb: questions to its server, without a meaning here."""

from __future__ import annotations

__all__ = ["gql"]


def gql(request_string: str) -> str:
    """The question as it was given."""
    return request_string
