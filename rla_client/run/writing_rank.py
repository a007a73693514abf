"""Writing rank of a job.

It is rank 0. Records of the others are discarded, unless they join its run (`rank_meeting`, `all_ranks`).
"""

from __future__ import annotations

from rla_client.run.rank_variables import rank
from rla_client.run.run_mode import disabled


def writes_runs() -> bool:
    """Whether this process writes the runs that it opens: rank 0, where recording is not disabled.

    Raises:
        ArgumentError: RLA_MODE is none of disabled, offline, online.
    """
    return not disabled() and rank() == 0
