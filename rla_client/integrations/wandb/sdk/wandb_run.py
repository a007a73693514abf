"""`wandb.sdk.wandb_run`: the class of a run."""

from rla_client.integrations.wandb.open_run import Run

__all__ = ["Run"]
