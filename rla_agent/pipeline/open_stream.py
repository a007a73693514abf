"""Opening of a stream by its volume.

A bad stream must not stop the agent for all others. So opening one has four outcomes: open; gone (its folder
was removed); not ready (retried); and parked, where a retry would change nothing because its files, its base
or its rows of agent.db are invalid (`RlaError`). Any other exception is a fault of the agent,
see `Volume`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rla_agent.model.stream_states import StreamEvent
from rla_agent.outputs.data_root_presence import same_root, why_parked
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.pipeline.recovery import recover
from rla_agent.pipeline.stream import Stream
from rla_agent.store.agent_db import AgentDatabase
from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.spool.opening import Opening

_log = logging.getLogger("rla_agent.pipeline.open_stream")


@dataclass(frozen=True, slots=True)
class Adopt:
    """A stream folder that a volume is to open; `root` is its data root, where that is known."""

    stream: str
    folder: Path
    root: str = ""


class StreamNotReadyError(Exception):
    """A stream cannot be opened now; the message is for `status`."""


def open_stream(item: Adopt, adjust: Callable[[Opening], Opening] | None) -> Stream | None:
    """Read a stream's opening frame; None when somebody removed its folder.

    Args:
        item: the stream.
        adjust: gives the opening that counts here, where the data root lies elsewhere now.

    Raises:
        StreamNotReadyError: it cannot be read; a cause like a lack of descriptors passes.
    """
    try:
        return Stream(item.stream, item.folder, adjust)
    except FileNotFoundError:
        return None
    except (RlaError, OSError) as error:
        raise StreamNotReadyError(f"not stored yet, retrying: {error}; its rows wait in the spool") from error


def align_outputs(stream: Stream, database: AgentDatabase, files: OpenFiles) -> None:
    """Align a stream's outputs to where it can continue; `parked` says why that is impossible.

    Raises:
        StreamNotReadyError: the disk refuses the write for now.
    """
    if not same_root(stream.opening):
        stream.handle(StreamEvent.ROOT_AWAY, why_parked(stream.opening.root))
        return
    waited = stream.parked
    if stream.root_away:
        stream.handle(StreamEvent.ROOT_FOUND)
    try:
        recover(stream, database, files)
    except OSError as error:
        close_files(stream, files)
        if waited:
            stream.handle(StreamEvent.ROOT_AWAY, waited)
        raise StreamNotReadyError(why_late(stream.opening, error)) from error
    except RlaError as error:
        close_files(stream, files)
        _log.warning("stream %s is not stored: %s", stream.name, error)
        stream.handle(StreamEvent.REFUSED, f"not stored, its rows stay in the spool: {error}")
    except Exception:
        close_files(stream, files)
        raise


def why_late(opening: Opening, error: OSError) -> str:
    """Message that names a late stream's run and the reason."""
    reason = error.strerror or str(error)
    file = f" ({error.filename})" if error.filename else ""
    return (
        f"not stored yet, retrying: the run in {opening.log_folder}: {reason}{file}; "
        "its rows wait in the spool"
    )


def close_files(stream: Stream, files: OpenFiles) -> None:
    """Close the open files of a stream's outputs."""
    for output in stream.outputs:
        files.close(output)


def open_spool(spool: Path) -> int:
    """Descriptor of a spool.

    Raises:
        StreamNotReadyError: it is away.
    """
    try:
        return open_root(spool)
    except OSError as error:
        raise StreamNotReadyError(f"not stored yet, retrying: {error}") from error
