"""Writing rank of a job.

What the others log goes nowhere, unless they join its run (`rank_meeting`, `all_ranks`).
"""

from __future__ import annotations

from rla_client.run.rank_variables import rank
from rla_client.run.run_mode import disabled


def writes_runs() -> bool:
    """Whether this process writes what it opens: rank 0, where recording is not disabled.

    Raises:
        ArgumentError: RLA_MODE is none of disabled, offline, online.
    """
    return not disabled() and rank() == 0
