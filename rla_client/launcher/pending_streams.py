"""Streams of a log folder that the agent has yet to write.

A stream's folder is in the spool until the agent has written everything in it and finalised the stream. So
a run's outputs are complete, and the agent no longer changes them, when no stream of its log folder is
left: `await_end` waits for that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import AgentNotRunningError, LaunchError
from rla_client.contract.layout import CHECKPOINT, LOG
from rla_client.contract.spool.opening import Opening, stream_opening
from rla_client.contract.spool.segments import segment_numbers, segment_size, stream_names
from rla_client.contract.spool.writer_liveness import writer_alive
from rla_client.database.records.liveness import log_folder
from rla_client.launcher.folder_lock import DYING_S
from rla_client.run.resume.earlier_streams import start_for
from rla_client.stream.messenger import Messenger

POLL_S = 0.05


def await_end(log_dir: str | os.PathLike[str], timeout_s: float = 30.0) -> None:
    """Wait until no stream of `log_dir` is left in the spool.

    Raises:
        LaunchError: a process is still writing there.
        AgentNotRunningError: no agent writes it within `timeout_s`.
    """
    started = time.monotonic()
    deadline = started + timeout_s
    places = find_places()
    folder = os.path.realpath(log_dir)
    while True:
        left = list(streams_of(folder))
        if not left:
            return
        if any(writer_alive(stream) for stream in left):
            if time.monotonic() - started > DYING_S:
                raise LaunchError(f"{folder} is being written by a running process; it cannot be resumed now")
        elif not agent_alive(places):
            start_for(places, map(stream_opening, left))
        if time.monotonic() > deadline:
            raise AgentNotRunningError(
                f"rows of {folder} still wait in {places.spool}; "
                "start the agent (rla-agent start --detach) and try again"
            )
        time.sleep(POLL_S)


def streams_of(log_dir: str) -> Iterator[Path]:
    """Folders of the spool's streams that write into `log_dir` (an absolute path without links)."""
    spool = find_places().spool
    for name in stream_names(spool) if spool.is_dir() else ():
        if log_folder(spool / name) == log_dir:
            yield spool / name


def await_written(folder: str, timeout_s: float, *, own: bool) -> str:
    """Wait until the agent has written all that runs of `folder`, ended or not, have sent by now.

    Args:
        folder: of logs or checkpoints, an absolute path without links.
        timeout_s: at most.
        own: also wait for runs of this process.

    Returns:
        Reason why the wait failed; empty on success.
    """
    places, deadline = find_places(), time.monotonic() + timeout_s
    messenger = Messenger(places, autostart=False, config_path=None)
    for name in stream_names(places.spool) if places.spool.is_dir() else ():
        stream = places.spool / name
        if name.split("-")[1] == str(os.getpid()) and not own:
            continue
        opening = stream_opening(stream)
        if opening is None or kind_of(folder, opening) is None:
            continue
        try:
            number = segment_numbers(stream)[-1]
            end = {"s": name, "n": number, "o": segment_size(stream, number), "m": False}
        except (OSError, IndexError):
            continue  # all of it is written
        if not agent_alive(places):
            return "no agent runs that would write it; start one: rla-agent start --detach"
        if not messenger.await_flushed(end, deadline).done:
            return "the agent has not written it; see: rla-agent status"
    return ""


def kind_of(folder: str, opening: Opening) -> str | None:
    """Kind of a run's folder, checkpoints or logs, at an absolute path without links; None if neither."""
    for kind in (CHECKPOINT, LOG):
        if kind in opening.folders and os.path.realpath(opening.folder(kind)) == folder:
            return kind
    return None
