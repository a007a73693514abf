"""`wandb.wandb_run`: the class of a run, by its former place."""

from rla_client.integrations.wandb.open_run import Run

__all__ = ["Run"]
