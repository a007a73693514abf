"""Letting go of a stream so that another one of the same run goes on in its files.

The new stream's agent-side work begins only when the old one was taken in to its end. With an
agent that is a short wait; without one, the old stream is withdrawn from the spool and its
records are put into the new stream, so that nothing is lost and nobody waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rla_client.autostart import agent_alive, start_agent
from rla_client.errors import RlaError
from rla_client.places import Places
from rla_client.protocol import Frame, FrameKind, whole_frames
from rla_client.spool import segment_numbers, segment_path, writer_alive
from rla_client.storage import TEMP_PREFIX

SETTLE_TIMEOUT_S = 30.0
POLL_S = 0.02
HANDED_OVER = "handed over"


class StillWritingError(RlaError):
    """A run that should be continued is still being written by a living process."""


def settle(places: Places, streams: Iterable[str], timeout_s: float = SETTLE_TIMEOUT_S) -> None:
    """Wait until streams whose writers are gone were taken in to their end.

    Raises:
        StillWritingError: a writer lives.
        RlaError: no agent takes them in, or not in time.
    """
    waiting = [places.spool / name for name in streams if (places.spool / name).is_dir()]
    for folder in waiting:
        if writer_alive(folder):
            message = "the run is still being written by a living process; end that one first"
            raise StillWritingError(message)
    if waiting and not agent_alive(places):
        start_agent(places)
    deadline = time.monotonic() + timeout_s
    while any(folder.exists() for folder in waiting):
        if time.monotonic() > deadline:
            message = (
                f"the agent has not taken in the run's earlier records within {timeout_s:g} s; "
                "see: rla-agent status"
            )
            raise RlaError(message)
        time.sleep(POLL_S)


def withdraw(places: Places, stream: Path) -> list[Frame] | None:
    """Take a released stream that no agent has seen out of the spool.

    Returns:
        Its frames without the opening ones, also those behind damage; None when an agent serves and will
        take it in.
    """
    import shutil  # noqa: PLC0415 - not at import of the package

    if agent_alive(places):
        return None
    hidden = stream.with_name(f"{TEMP_PREFIX}{stream.name}")
    try:
        os.rename(stream, hidden)
    except FileNotFoundError:
        return None
    frames: list[Frame] = []
    for number in segment_numbers(hidden):
        frames += whole_frames(segment_path(hidden, number).read_bytes())
    with suppress(OSError):
        shutil.rmtree(hidden)
    return [frame for frame in frames if frame.kind not in {FrameKind.OPEN, FrameKind.CLOSE}]
