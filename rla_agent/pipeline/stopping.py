"""The end of volume threads: take in what is there, commit, wait for running jobs."""

from __future__ import annotations

import time
from collections.abc import Collection

from rla_agent.pipeline.commands import Stop
from rla_agent.pipeline.volume import Volume

LAST_COMMIT_S = 1.0  # beyond the deadline of a stop


def stop_volumes(volumes: Collection[Volume], deadline: float, jobs_s: float) -> None:
    """Have volumes take in what is there, commit and end.

    Args:
        volumes: one that is still alive afterwards has threads that write.
        deadline: of taking in (monotonic).
        jobs_s: what jobs that run get beyond the end of taking in.
    """
    for volume in volumes:
        volume.put(Stop(deadline))
    last = deadline + LAST_COMMIT_S
    for volume in volumes:
        volume.through.wait(max(0.0, last - time.monotonic()))
    last = min(last, time.monotonic() + jobs_s)
    for volume in volumes:
        volume.join(max(0.0, last - time.monotonic()))
