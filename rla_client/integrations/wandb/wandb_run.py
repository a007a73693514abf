"""`wandb.wandb_run`: the class of a run, in its former place."""

from rla_client.integrations.wandb.run_object import Run

__all__ = ["Run"]
