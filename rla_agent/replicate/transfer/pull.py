"""Fetching of selected items by command.

It needs no daemon and no ledger, and works on any machine that may log in to the master. Files that are newer
here, or of a run that this machine made, stay (`own_items`). Several files are fetched at a time
(`reading_sessions`), each with promised room on the disk here (`local_room`): a file that does not fit is not
begun, or removed where it turns out not to fit. Fetched files of an ended run are checked against its
`checksums`. Sharded checkpoints become complete at the end, where none of their files failed
(`arriving_sharded`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final

from rla_agent.replicate.backend.errors import LinkError, TargetError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.checksums import damaged
from rla_agent.replicate.transfer import arriving_sharded
from rla_agent.replicate.transfer.fetch_file import PARTIAL_PREFIX, fetch
from rla_agent.replicate.transfer.local_room import Room
from rla_agent.replicate.transfer.own_items import OwnItems
from rla_agent.replicate.transfer.reading_sessions import Readers
from rla_agent.replicate.transfer.remote_items import Lists, remote_files
from rla_agent.replicate.transfer.selection import ItemSelection, item_of_file
from rla_agent.replicate.transfer.tally import Say, Tally
from rla_client.contract.errors import UnsafeNameError
from rla_client.contract.filesystem.safe_paths import held_folder

MAX_LISTED: Final = 10_000_000  # files that one pull may see
LEFT_S: Final = 3600.0  # a partial file without writes for so long is a leftover


def pull(
    source: TargetSession | Readers, root: str, selection: ItemSelection, say: Say = lambda *_: None
) -> Tally:
    """Fetch the selected items into the data root; equal (size, time) or newer files stay.

    Args:
        source: a session at the master, or several readers, to fetch several files at a time.
        root: the data root.
        selection: which items.
        say: called with a file's progress, from any thread.

    Raises:
        LinkError: the link broke; fetched files stay, and the next attempt continues.
    """
    tally, room = Tally(), Room()
    readers = source if isinstance(source, Readers) else Readers(source)

    def told(path: str, done: int, total: int) -> None:
        readers.go_on()
        say(path, done, total)

    def bring(session: TargetSession, wanted: _Wanted) -> bool | Exception:
        path, state = wanted.path, wanted.state
        try:
            return fetch(session, root, path, state, told, ours=wanted.ours, room=room)
        except LinkError:
            raise
        except (TargetError, UnsafeNameError, OSError) as error:
            return error

    came, marks = _Came(tally), list[_Wanted]()
    others = _others(_all_wanted(readers, root, selection, tally), marks)
    for jobs in (others, _complete(marks, came.failed)):  # the marks are known once the others are through
        with closing(readers.each(jobs, bring)) as results:
            for wanted, done in results:
                came.take(wanted, done)
    tally.left_out += readers.first.left_out()
    for folder in came.fetched - came.failed:
        _clear_partials(root, folder)
    tally.failed += [
        f"{path}: not what the run's SHA256SUMS says; on the machine that made it: rla verify --fix"
        for item, paths in came.new.items()
        for path in damaged(root, item, paths)
    ]
    return tally


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A file of the master; `ours`: its run was made here."""

    path: bytes
    state: RemoteStat
    item: str | None
    ours: bool


@dataclass
class _Came:
    """Results of a pull. `fetched`, `failed`: folders of such files; `new`: files by item."""

    tally: Tally
    fetched: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    new: dict[str, list[str]] = field(default_factory=dict)

    def take(self, wanted: _Wanted, done: bool | Exception) -> None:
        """Count a file that came, was here, or failed."""
        path = os.fsdecode(wanted.path)
        folder = path.rpartition("/")[0]
        if isinstance(done, Exception):
            self.failed.add(folder)
            self.tally.failed.append(f"{path}: {done}")
            return
        self.tally.same += not done
        if done:
            self.fetched.add(folder)
            self.tally.files += 1
            self.tally.bytes += wanted.state.size
            if wanted.item is not None:
                self.new.setdefault(wanted.item, []).append(path)


def _all_wanted(session: Lists, root: str, selection: ItemSelection, tally: Tally) -> Iterator[_Wanted]:
    ours = OwnItems(root)
    for count, (path, state) in enumerate(remote_files(session, selection, tally)):
        if count >= MAX_LISTED:
            tally.failed.append(f"the master has more than {MAX_LISTED} such files; select fewer")
            return
        item = item_of_file(os.fsdecode(path))
        yield _Wanted(path, state, item, item is not None and ours.made(item))


def _others(wanted: Iterable[_Wanted], marks: list[_Wanted]) -> Iterator[_Wanted]:
    """All files except `whole.json` of sharded checkpoints, which go to `marks`."""
    for one in wanted:
        if arriving_sharded.is_mark(one.path):
            marks.append(one)
        else:
            yield one


def _complete(marks: list[_Wanted], failed: set[str]) -> Iterator[_Wanted]:
    """The marks of checkpoints without failures."""
    for one in marks:
        own = os.fsdecode(one.path).rpartition("/")[0]
        if not {own, own.rpartition("/")[0]} & failed:
            yield one


def _clear_partials(root: str, folder: str) -> None:
    """Delete leftovers of interrupted pulls in a folder whose files are all here."""
    with suppress(OSError, UnsafeNameError), held_folder(root, folder) as here:
        for name in os.listdir(here):
            if name.startswith(PARTIAL_PREFIX) and time.time() - os.lstat(here / name).st_mtime > LEFT_S:
                os.unlink(here / name)
