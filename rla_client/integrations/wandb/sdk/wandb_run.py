"""`wandb.sdk.wandb_run`: the class of a run."""

from rla_client.integrations.wandb.session import Run

__all__ = ["Run"]
