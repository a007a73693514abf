"""Environment variables of a process's rank."""

from __future__ import annotations

import os

RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
MAX_RANK_DIGITS = 9  # no job has a billion processes


def rank() -> int:
    """Rank of this process in its job, 0 outside of one."""
    for name in RANK_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdecimal() and len(value) <= MAX_RANK_DIGITS:
            return int(value)
    return 0
