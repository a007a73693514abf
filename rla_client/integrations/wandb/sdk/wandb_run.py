"""`wandb.sdk.wandb_run`: the class of a run."""

from rla_client.integrations.wandb.run_object import Run

__all__ = ["Run"]
