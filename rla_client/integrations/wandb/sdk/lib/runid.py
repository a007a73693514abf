"""`wandb.sdk.lib.runid`: ids of runs."""

from __future__ import annotations

import secrets


def generate_id(length: int = 8) -> str:
    """A random run id."""
    return secrets.token_hex(length)[:length]
