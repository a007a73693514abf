"""Order of the streams of one run.

A stream of a run that was forked or resumed waits until the earlier ones are taken in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from rla_agent.pipeline.open_stream import open_spool
from rla_agent.pipeline.stream import Stream
from rla_client.contract.process.descriptors import closing_fd


def waits_behind(stream: Stream, others: Iterable[Stream], late: Iterable[str]) -> str | None:
    """Why a stream of a run that was forked or resumed has to wait; None when it has not.

    Its client names the streams that come before it. Earlier releases' clients did not: there the epochs
    tell, and the names, which sort by time.

    Args:
        stream: one that is to be taken up.
        others: those that are taken up. An earlier one of the same run has to come to its end first.
        late: names of those that could not be taken up yet. An earlier one may be of the same run: its
            opening frame cannot be read now.

    Returns:
        The reason if it is one for a human, else an empty text.

    Raises:
        StreamNotReadyError: the spool is away.
    """
    plan = stream.opening.continues
    if plan is None:
        return None
    if plan.after:
        with closing_fd(open_spool(stream.folder.parent)) as folder:  # which may be renamed meanwhile
            before = sorted(set(os.listdir(folder)) & set(plan.after))
        parked = {other.name: other.parked for other in others}
        why = next((parked[name] for name in before if parked.get(name)), "")
        return _why_waiting(why) if before else None
    for other in others:
        earlier = other.opening
        if earlier.run == stream.opening.run and earlier.primary and earlier.epoch < stream.opening.epoch:
            return _why_waiting(other.parked)
    first = min(late, default=stream.name)
    return f"waits for the earlier stream {first}" if first < stream.name else None


def _why_waiting(parked: str) -> str:
    return f"waits for an earlier stream of its run: {parked}" if parked else ""
