"""Taking a stream up: its opening frame, then its outputs; and what keeps it from being taken up now.

What one stream brings must not end the agent for all others. So there are four ends: taken up; gone (its
folder is no more); not yet (tried again all the time); and parked, where trying again would change nothing.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Iterable

from rla_agent.open_files import OpenFiles
from rla_agent.opening import StreamOpening, same_root, why_late, why_parked
from rla_agent.recovery import recover
from rla_agent.state import AgentDatabase
from rla_agent.stream import Stream
from rla_agent.volume_items import Adopt
from rla_client.errors import RlaError

NO_SENSE = (RlaError, csv.Error, ValueError, LookupError, TypeError)  # of what its files and base say

_log = logging.getLogger("rla_agent.adopting")


class NotYetError(Exception):
    """A stream cannot be taken up now; the message is for `status`."""


def open_stream(item: Adopt, adjust: Callable[[StreamOpening], StreamOpening] | None) -> Stream | None:
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
        message = f"not taken in yet, tried again all the time: {error}; its rows wait in the spool"
        raise NotYetError(message) from error


def align_outputs(stream: Stream, database: AgentDatabase, files: OpenFiles) -> None:
    """Bring a stream's outputs to where it can go on; `parked` says why that will not be.

    Raises:
        NotYetError: the disk does not take it now.
    """
    if not same_root(stream.opening):
        stream.root_away = True
        stream.parked = why_parked(stream.opening.root)
        return
    try:
        recover(stream, database, files)
    except OSError as error:
        raise NotYetError(why_late(stream.opening, error)) from error
    except NO_SENSE as error:
        _log.exception("stream %s is not taken in", stream.name)
        stream.root_away = False
        stream.parked = f"not taken in, its rows stay in the spool: {error}"
    else:
        stream.root_away = False
        stream.parked = ""


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


def must_wait(stream: Stream, others: Iterable[Stream]) -> bool:
    """Whether an earlier stream of the same run has still to be taken in to its end."""
    opening = stream.opening
    return opening.continues is not None and any(
        other.opening.run == opening.run and other.opening.primary and other.opening.epoch < opening.epoch
        for other in others
    )
