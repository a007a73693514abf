"""Taking a stream up: its opening frame, then its outputs; and what keeps it from being taken up now.

What one stream brings must not end the agent for all others. So there are four ends: taken up; gone (its
folder is gone); not yet (tried again all the time); and parked, where trying again would change nothing:
its files, base or rows of agent.db make no sense (`RlaError`). Any other exception is a fault of the agent,
see `Volume`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rla_agent.model.states import StreamEvent
from rla_agent.outputs.item_folder import same_root, why_late, why_parked
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.pipeline.commands import Adopt
from rla_agent.pipeline.recovery import recover
from rla_agent.pipeline.stream import Stream
from rla_agent.store.state import AgentDatabase
from rla_client.contract.errors import RlaError
from rla_client.contract.opening import Opening

_log = logging.getLogger("rla_agent.pipeline.stream_open")


class NotYetError(Exception):
    """A stream cannot be taken up now; the message is for `status`."""


@dataclass(frozen=True, slots=True)
class StreamOpener:
    """What streams are taken up with: an adjustment of openings, the database, open files."""

    adjust: Callable[[Opening], Opening] | None
    database: AgentDatabase
    files: OpenFiles

    def take_up(
        self, item: Adopt, others: Iterable[Stream], late: Iterable[str]
    ) -> tuple[Stream | None, str | None]:
        """A stream, None when its folder is gone; and why it must wait, None when it is taken up.

        Raises:
            NotYetError: it cannot be taken up now.
        """
        stream = open_stream(item, self.adjust)
        why = None if stream is None else waits_behind(stream, others, late)
        if stream is not None and why is None:
            align_outputs(stream, self.database, self.files)
        return stream, why


def open_stream(item: Adopt, adjust: Callable[[Opening], Opening] | None) -> Stream | None:
    """Read what a stream says of itself; None when somebody removed its folder.

    Args:
        item: the stream.
        adjust: gives the opening that counts here, where the data root lies elsewhere now.

    Raises:
        NotYetError: it cannot be read; a cause like a lack of descriptors passes.
    """
    try:
        return Stream(item.stream, item.folder, adjust)
    except FileNotFoundError:
        return None
    except (RlaError, OSError) as error:
        message = f"not stored yet, retrying: {error}; its rows wait in the spool"
        raise NotYetError(message) from error


def align_outputs(stream: Stream, database: AgentDatabase, files: OpenFiles) -> None:
    """Bring a stream's outputs to where it can continue; `parked` says why that will not be.

    Raises:
        NotYetError: the disk does not take it now.
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
        raise NotYetError(why_late(stream.opening, error)) from error
    except RlaError as error:
        close_files(stream, files)
        _log.warning("stream %s is not stored: %s", stream.name, error)
        stream.handle(StreamEvent.REFUSED, f"not stored, its rows stay in the spool: {error}")
    except Exception:
        close_files(stream, files)
        raise


def close_files(stream: Stream, files: OpenFiles) -> None:
    """Close what is open of a stream's outputs."""
    for output in stream.outputs:
        files.close(output)


def root_is_back(stream: Stream, database: AgentDatabase, files: OpenFiles, faults: dict[str, str]) -> bool:
    """Take up a stream whose data root was away and is there now."""
    if not stream.root_away or not same_root(stream.opening):
        return False
    try:
        align_outputs(stream, database, files)
    except NotYetError as error:
        faults[stream.name] = str(error)
        return False
    faults.pop(stream.name, None)
    return not stream.parked


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
    """
    plan = stream.opening.continues
    if plan is None:
        return None
    if plan.after:
        before = _still_there(stream.folder.parent, plan.after)
        parked = {other.name: other.parked for other in others}
        return (
            _why_waiting(next((parked[name] for name in before if parked.get(name)), "")) if before else None
        )
    for other in others:
        earlier = other.opening
        if earlier.run == stream.opening.run and earlier.primary and earlier.epoch < stream.opening.epoch:
            return _why_waiting(other.parked)
    first = min(late, default=stream.name)
    return f"waits for the earlier stream {first}" if first < stream.name else None


def _still_there(spool: Path, names: Iterable[str]) -> list[str]:
    """Those streams that lie in a spool; of one folder, which may be renamed meanwhile.

    Raises:
        NotYetError: it is away.
    """
    try:
        folder = os.open(spool, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        message = f"not stored yet, retrying: {error}"
        raise NotYetError(message) from error
    try:
        return sorted(set(os.listdir(folder)) & set(names))
    finally:
        os.close(folder)


def _why_waiting(parked: str) -> str:
    return f"waits for an earlier stream of its run: {parked}" if parked else ""
