"""`wandb.errors`: the exceptions of wandb.

Unknown exceptions are `Error`.
"""

from __future__ import annotations

from rla_client.integrations.wandb.values import Error, UsageError

__all__ = ["CommError", "Error", "UsageError"]
CommError = Error


def __getattr__(name: str) -> type[Error]:
    if name.startswith("__"):
        raise AttributeError(name)
    return Error
