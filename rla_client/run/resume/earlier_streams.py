"""Streams of an earlier run that wait in the spool.

A fork awaits their ingest before it copies the run's files, a resume before it truncates them. No agent is
required: without one the records stay in the spool, and the caller decides how to proceed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.config.schema import password_variables
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.agent_start import drain_once, start_agent
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.spool.opening import Opening, stream_opening
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import LOCK_NAME, writer_alive
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders

TAKEN_IN_S = 30.0  # for the agent to ingest the rest of a run
ENDS_S = 30.0  # for the former process of a run to end
POLL_S = 0.02


class StillWritingError(RlaError):
    """A run that should be continued is still being written by a living process."""


@dataclass(frozen=True, slots=True)
class EarlierStream:
    """One stream in the spool with its opening; None where that cannot be read."""

    folder: Path
    opening: Opening | None


def streams_of(places: Places, item: ItemFolders, content: dict[str, Any]) -> list[EarlierStream]:
    """The streams of a run that are in the spool, oldest first.

    Args:
        places: where the spool is.
        item: the run, wherever its database lies now.
        content: its run.json; empty for a run that no agent has taken in yet.
    """
    named = {str(name) for name in content.get("streams") or ()}
    own = content.get("run_id")
    root = os.path.realpath(item.root)

    def is_of_run(stream: EarlierStream) -> bool:
        opening = stream.opening
        if stream.folder.name in named:
            return True
        if opening is None:
            return False
        where = root_of(opening), opening.table, opening.index
        return bool(own and opening.run == own) or where == (root, item.table, item.index.path)

    return [stream for stream in all_streams(places) if is_of_run(stream)]


def root_of(opening: Opening) -> str:
    """The data root that a stream writes into; links may lead to where it was moved since."""
    return os.path.realpath(opening.root)


def all_streams(places: Places) -> list[EarlierStream]:
    """All streams in the spool, oldest first; none where it cannot be read."""
    with suppress(OSError):
        folders = [places.spool / name for name in stream_names(places.spool)]
        return [EarlierStream(folder, stream_opening(folder)) for folder in folders]
    return []


def newest_epoch(content: dict[str, Any], streams: Iterable[EarlierStream]) -> int:
    """The epoch of a run's newest opening, by its run.json and its streams in the spool; 0 for none."""
    known = [content.get("epoch"), *(stream.opening.epoch for stream in streams if stream.opening)]
    return max((epoch for epoch in known if isinstance(epoch, int)), default=0)


def await_taken_in(places: Places, streams: Sequence[EarlierStream], *, autostart: bool) -> str:
    """Wait until streams are ingested to their ends: by an agent, or by a drain where none may be started.

    It waits TAKEN_IN_S at most in all.

    Args:
        places: of the agent.
        streams: of writers that have ended.
        autostart: start an agent where none runs.

    Returns:
        Why that did not happen; empty when it did.

    Raises:
        StillWritingError: a writer lives.
    """
    waiting = [stream.folder for stream in streams]
    deadline = time.monotonic() + TAKEN_IN_S
    await_ended(streams, 0.0)
    if not any(map(os.path.isdir, waiting)):
        return ""
    if not agent_alive(places) and not (autostart and start_for(places, [one.opening for one in streams])):
        drain_once(TAKEN_IN_S)  # the user wants no agent, but surely no restart of the training from 0
        nobody = not agent_alive(places)  # else another process drains
        if nobody and any(map(os.path.isdir, waiting)):
            return (
                f"no agent runs to take in what waits in {places.spool}; start one: rla-agent start --detach"
            )
    while any(map(os.path.isdir, waiting)):
        if time.monotonic() > deadline:
            return f"the agent has not stored what it left within {TAKEN_IN_S:g} s; see: rla-agent status"
        time.sleep(POLL_S)
    return ""


def start_for(places: Places, openings: Iterable[Opening | None]) -> bool:
    """Start an agent for streams of earlier runs, with the configuration and the secrets of theirs.

    Returns:
        See `start_agent`.
    """
    configs = [Path(one.config) for one in openings if one is not None and one.config is not None]
    return start_agent(places, configs[0] if configs else None, password_variables(configs))


def await_ended(streams: Sequence[EarlierStream], ends_s: float) -> None:
    """Wait until no living process writes these streams.

    Args:
        streams: of a run.
        ends_s: so long at most: the former process of a restarted job may be about to end.

    Raises:
        StillWritingError: a writer lives; at once where it is this process.
    """
    waited, deadline = False, time.monotonic() + ends_s
    for stream in streams:
        if is_open_here(stream.folder / LOCK_NAME):
            raise StillWritingError(
                "this process itself still writes the run; close it first: exp_manager.close()"
            )
        while writer_alive(stream.folder):
            told = stream.opening
            who = "unknown" if told is None else f"process {told.pid} on {told.host}"
            if time.monotonic() >= deadline:
                raise StillWritingError(
                    f"the run is still being written by a living process ({who}); end that one first"
                )
            if not waited:
                warn(f"the run is still being written by {who}; waiting up to {ends_s:g} s for its end")
            waited = True
            time.sleep(POLL_S)


def is_open_here(path: Path) -> bool:
    """Whether this process has a file open: to close another descriptor of it would drop its lock."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.path.samestat(os.fstat(int(name)), found):
                return True
    return False
