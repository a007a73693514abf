"""Discarding of streams for a lost data root (`rla-agent forget`).

A stream whose data root is missing waits in the spool without a limit, since the root may only be unmounted.
With `forget_streams` a user declares that it will not come back. Streams that a process still writes, and
those with an existing root, are never touched. A serving agent notices that a stream's folder is gone and
drops its state.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from rla_agent.model.run_record import RunRecord
from rla_agent.model.run_states import RunEvent
from rla_agent.outputs.data_root_presence import same_root
from rla_agent.pipeline.remove_stream import remove_stream
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.service.agent_lock import AgentLock
from rla_agent.service.lock_holder import DRAIN_HOLDER
from rla_agent.store.agent_db import AgentDatabase, CommitChanges
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.segments import stream_names, stream_size
from rla_client.contract.spool.writer_liveness import writer_alive

GIVEN_UP = "its data root is gone, and its waiting rows were given up: rla-agent forget"


@dataclass(frozen=True, slots=True)
class WaitingStream:
    """A stream that waits for a data root.

    Attributes:
        folder: in the spool.
        opening: its opening frame.
        size: bytes in the spool, payloads included.
        written: Unix seconds of the last write.
    """

    folder: Path
    opening: Opening
    size: int
    written: float


def waiting_streams(spool: Path) -> list[WaitingStream]:
    """Streams of ended processes whose data root is not there, or another one."""
    found: list[WaitingStream] = []
    for name in stream_names(spool):
        folder = spool / name
        with suppress(RlaError, OSError):
            opening, _ = read_opening(folder)
            if writer_alive(folder) is False and not same_root(opening):
                size, _, changed = stream_size(folder)
                found.append(WaitingStream(folder, opening, size, changed))
    return found


def chosen(streams: Sequence[WaitingStream], roots: Collection[str], *, every: bool) -> list[WaitingStream]:
    """Those of some data roots, or all.

    Raises:
        ArgumentError: nothing waits for one of the roots.
    """
    if every:
        return list(streams)
    known = {stream.opening.root for stream in streams}
    wanted = {os.path.abspath(root) for root in roots}
    for root in sorted(wanted - known):
        raise ArgumentError(
            f"no ended stream waits for the data root {root}; those that do: rla-agent forget"
        )
    return [stream for stream in streams if stream.opening.root in wanted]


def forget_streams(places: Places, streams: Sequence[WaitingStream]) -> None:
    """Delete streams and record that in their runs.

    Raises:
        AgentRunningError: a drain is under way.
        OSError: a stream could not be deleted.
    """
    if agent_alive(places):
        for stream in streams:
            remove_stream(stream.folder)
        return
    lock = AgentLock(places, DRAIN_HOLDER)
    try:
        with closing(AgentDatabase(places.database)) as database:
            for stream in streams:
                remove_stream(stream.folder)
                changes = CommitChanges(forgotten=[stream.folder.name])
                plain = database.run(stream.opening.run)
                if plain is not None:
                    now = time.time()
                    record = RunRecord.from_plain(plain).after(RunEvent.ITEM_GONE, now, GIVEN_UP)
                    changes.runs.append((record.run, now, record.live, {**plain, **record.to_plain(now)}))
                database.commit(changes)
    finally:
        lock.release()


def listing(streams: Sequence[WaitingStream]) -> list[str]:
    """One line for each data root, then one for each of its streams."""
    lines: list[str] = []
    for root in sorted({stream.opening.root for stream in streams}):
        some = [stream for stream in streams if stream.opening.root == root]
        size = sum(stream.size for stream in some)
        lines.append(f"{root}: {len(some)} streams, {size >> 10} KiB")
        for stream in some:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(stream.written))
            lines.append(f"  {stream.folder.name}  last written {when}  {stream.opening.title}")
    return lines
