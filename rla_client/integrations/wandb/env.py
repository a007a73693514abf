"""`wandb.env`: the environment variables of wandb.

The module has their names, and functions for some of their values.
"""

from __future__ import annotations

import os

from rla_client.integrations.wandb.unknown_names import Unknown, unknown_part

ENTITY, MODE, NAME, NOTES, PROJECT = (
    "WANDB_ENTITY",
    "WANDB_MODE",
    "WANDB_NAME",
    "WANDB_NOTES",
    "WANDB_PROJECT",
)
API_KEY, BASE_URL, DIR, SILENT = "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_DIR", "WANDB_SILENT"
RESUME, RUN_GROUP, RUN_ID, TAGS = "WANDB_RESUME", "WANDB_RUN_GROUP", "WANDB_RUN_ID", "WANDB_TAGS"


def get_project(default: str | None = None) -> str | None:
    """$WANDB_PROJECT, the table of a run whose `init` names none."""
    return os.environ.get(PROJECT, default)


def get_entity(default: str | None = None) -> str | None:
    """$WANDB_ENTITY, which has no effect here."""
    return os.environ.get(ENTITY, default)


def __getattr__(name: str) -> Unknown:
    return unknown_part("env", name)
