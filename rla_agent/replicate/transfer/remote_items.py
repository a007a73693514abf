"""Files of items on the master.

The master's answers are untrusted: a name must be one safe path component, an item's path must parse; other
names are left out and reported.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from rla_agent.replicate.backend.errors import LinkError, MissingError, TargetError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.transfer.selection import ItemSelection, chosen, item_of
from rla_agent.replicate.transfer.tally import Tally
from rla_agent.replicate.worker.scan import MAX_DEPTH
from rla_client.contract.layout import OWN_NAMES
from rla_client.contract.safe_names import component_problem
from rla_client.contract.sharded_checkpoint.files import FOLDER_ENDING
from rla_client.contract.text.terminal_text import printable


class Lists(Protocol):
    """What tells what is in a folder of the master: a `TargetSession`, or several (`Readers`)."""

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `TargetSession`."""


def remote_files(
    session: Lists, selection: ItemSelection, tally: Tally
) -> Iterator[tuple[bytes, RemoteStat]]:
    """Files of the selected items on the master; unsafe names are left out and reported."""
    for kind in selection.kinds:
        yield from _walk(session, kind.encode(), selection, tally, inside=False)


def item_files(session: Lists, path: bytes, tally: Tally) -> Iterator[tuple[bytes, RemoteStat]]:
    """Files below one item's folder on the master; none where that is not there."""
    yield from _walk(session, path, ItemSelection(), tally, inside=True)


def _walk(
    session: Lists, path: bytes, selection: ItemSelection, tally: Tally, *, inside: bool
) -> Iterator[tuple[bytes, RemoteStat]]:
    entries = _listed(session, path, tally)
    twice = {name for name, count in Counter(name for name, _ in entries).items() if count > 1}
    for name, state in entries:
        if name.startswith(b".rla-tmp-") or os.fsdecode(name) in OWN_NAMES:
            continue
        if name in twice and state.kind != _kind_of_both(name, inside=inside):
            shown = printable(os.fsdecode(path + b"/" + name))
            tally.failed.append(
                f"{shown}: the master has a file and a folder there; the {state.kind} is left out"
            )
            continue
        problem = component_problem(os.fsdecode(name))
        if problem:
            tally.failed.append(f"{os.fsdecode(path)!r}: the master's name {name!r} is refused: {problem}")
            continue
        inner = path + b"/" + name
        taken = inside or chosen(inner, selection)
        if state.kind == "folder" and (taken or item_of(inner) is None):
            yield from _walk(session, inner, selection, tally, inside=taken)
        elif state.kind == "file" and taken:
            yield inner, state


def _kind_of_both(name: bytes, *, inside: bool) -> str:
    """The kind to use where a file and a folder have one name, as in a bucket, judged by the name."""
    looks_like_a_file = inside and b"." in name[1:] and not name.endswith(os.fsencode(FOLDER_ENDING))
    return "file" if looks_like_a_file else "folder"


def _listed(session: Lists, path: bytes, tally: Tally) -> list[tuple[bytes, RemoteStat]]:
    """A folder's entries; an unreadable one affects only entries below it."""
    if path.count(b"/") > MAX_DEPTH:
        tally.failed.append(f"{os.fsdecode(path)}: nested more than {MAX_DEPTH} folders deep")
        return []
    try:
        return sorted(session.listing(path), key=lambda entry: entry[0])
    except MissingError:
        return []  # no such kind there, or moved to the trash since its parent was listed
    except LinkError:
        raise
    except TargetError as error:
        tally.failed.append(str(error))
        return []
