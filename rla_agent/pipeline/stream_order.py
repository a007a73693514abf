"""Order of the streams of one run.

A stream of a run that was forked or resumed waits until the earlier ones are read to their ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from rla_agent.pipeline.open_stream import open_spool
from rla_agent.pipeline.stream import Stream
from rla_client.contract.process.descriptors import closing_fd


def waits_behind(stream: Stream, others: Iterable[Stream]) -> str | None:
    """Why a stream of a run that was forked or resumed has to wait; None when it has not.

    Its client names the streams that come before it; each has to come to its end first.

    Args:
        stream: one that is to be opened.
        others: those that are open.

    Returns:
        The reason where a person should see it, else an empty text.

    Raises:
        StreamNotReadyError: the spool is missing.
    """
    plan = stream.opening.continues
    if plan is None or not plan.after:
        return None
    with closing_fd(open_spool(stream.folder.parent)) as folder:  # it may be renamed meanwhile
        before = sorted(set(os.listdir(folder)) & set(plan.after))
    if not before:
        return None
    parked = {other.name: other.parked for other in others}
    why = next((parked[name] for name in before if parked.get(name)), "")
    return f"waits for an earlier stream of its run: {why}" if why else ""
