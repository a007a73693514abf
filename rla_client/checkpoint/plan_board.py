"""Notice board of the ranks of a sharded save.

Each rank describes its pieces once for each layout, and leaves a note of what it could write to each save.
Rank 0 reads them, and leaves its decision for the others, with the shares of all ranks once for each layout.
Where all ranks share the folder of the saves, all of that are files there; else it is in the store of
torch's process group. Nobody waits for a key of it: who asks gets what is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

from rla_client.checkpoint.shard_plan import LocalPlan
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import DECISION_FILE, layout_file, plan_note_name
from rla_client.contract.sharded_checkpoint.folder import UNREADABLE, parts_of
from rla_client.contract.sharded_checkpoint.records import PlanDecision, PlanNote

MAX_BYTES: Final = 256 << 20  # of a note or a description
LOOK_S: Final = 0.02
CHUNK_BYTES: Final = 1 << 20  # torch's TCPStore closes the connection at values over 8 MiB
TOGETHER: Final = 64  # values in one request, which the store's process answers in one piece


class StoreGoneError(OSError):
    """The store's process has ended, so that no further entries can come."""


class PlanBoard(Protocol):
    """A board; a missing entry raises one of UNREADABLE, and one that can never come StoreGoneError."""

    def describe(self, rank: int, plan: LocalPlan) -> None:
        """Put the description of a rank's pieces, unless it is there."""

    def description(self, rank: int, layout: str) -> bytes:
        """That of a rank."""

    def tell(self, parts: str, note: PlanNote) -> None:
        """Put a rank's note to the save with this folder of parts."""

    def note(self, parts: str, rank: int) -> bytes:
        """That of a rank."""

    def notes(self, parts: str, ranks: Sequence[int]) -> list[bytes]:
        """Those of the first of these ranks, of as many as are there."""

    def notes_of(self, ranks: Sequence[int]) -> Iterator[bytes]:
        """Notes of some ranks to other saves, the newest one of each."""

    def leave_out(self, note: PlanNote) -> None:
        """Withdraw a rank from a save; `note`: as to the next call, so that nobody waits for it."""

    def share_out(self, layout: str, shares: bytes) -> None:
        """Leave the shares of all ranks in a layout of all of them, where they are not there; for rank 0."""

    def shares(self, layout: str) -> bytes:
        """These."""

    def decide(self, parts: str, decision: PlanDecision, number: int) -> None:
        """Leave the decision on a save, which is this call of rank 0; what it names is there before."""

    def decision(self, parts: str) -> bytes:
        """That on the save that has this folder of parts."""

    def all_told(self, number: int) -> None:
        """All ranks have come to this call, and this one has what it needs for it of the others."""

    def await_readers(self, world: int, timeout_s: float) -> None:
        """Wait until all ranks have come this far, since the board may end with this process."""


class FolderBoard:
    """Files of PARTS_FOLDER.

    Args:
        folder: the run's checkpoint folder, which all ranks share.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._layout = self._shared = ""  # described last, and shared out

    def describe(self, rank: int, plan: LocalPlan) -> None:
        """See `PlanBoard`; ranks that have the same pieces have one file."""
        del rank
        self._put(plan.layout, plan.encoded, self._layout)
        self._layout = plan.layout

    def description(self, rank: int, layout: str) -> bytes:
        """See `PlanBoard`."""
        del rank
        return self.shares(layout)

    def share_out(self, layout: str, shares: bytes) -> None:
        """See `PlanBoard`."""
        self._put(layout, shares, self._shared)
        self._shared = layout

    def shares(self, layout: str) -> bytes:
        """See `PlanBoard`."""
        return read_small(self._folder / PARTS_FOLDER / layout_file(layout), MAX_BYTES)

    def _put(self, layout: str, data: bytes, former: str) -> None:
        path = self._folder / PARTS_FOLDER / layout_file(layout)
        if layout != former or not os.path.lexists(path):  # the removal met the writing
            with held_folder(self._folder, PARTS_FOLDER) as above:
                write_atomic(above / path.name, data, durable=False)

    def decide(self, parts: str, decision: PlanDecision, number: int) -> None:
        """See `PlanBoard`."""
        del number
        with held_folder(self._folder, f"{PARTS_FOLDER}/{parts}") as here:
            write_atomic(here / DECISION_FILE, decision.encode(), durable=False)

    def decision(self, parts: str) -> bytes:
        """See `PlanBoard`."""
        return read_small(self._folder / PARTS_FOLDER / parts / DECISION_FILE, MAX_BYTES)

    def tell(self, parts: str, note: PlanNote) -> None:
        """Does nothing: the saver puts it into the folder of the save."""

    def note(self, parts: str, rank: int) -> bytes:
        """See `PlanBoard`."""
        return read_small(self._folder / PARTS_FOLDER / parts / plan_note_name(rank), MAX_BYTES)

    def notes(self, parts: str, ranks: Sequence[int]) -> list[bytes]:
        """See `PlanBoard`."""
        found = []
        with suppress(*UNREADABLE):
            for rank in ranks:
                found.append(self.note(parts, rank))  # noqa: PERF401 - what is there so far
        return found

    def notes_of(self, ranks: Sequence[int]) -> Iterator[bytes]:
        """See `PlanBoard`."""
        for parts in parts_of(self._folder):
            for rank in ranks:
                with suppress(*UNREADABLE):
                    yield self.note(parts, rank)

    def leave_out(self, note: PlanNote) -> None:
        """Does nothing: a rank that cannot write here cannot put a note either."""

    def all_told(self, number: int) -> None:
        """Does nothing: the notes are removed with the folders of their saves."""

    def await_readers(self, world: int, timeout_s: float) -> None:
        """Does nothing: files stay."""


class StoreBoard:
    """Keys of a store of torch's.

    Args:
        store: that of the process group; the reference lets it outlive the group.
        prefix: of the keys, of no other opening of a run.
    """

    def __init__(self, store: Any, prefix: str) -> None:  # noqa: ANN401 - torch's
        self._store, self._prefix = store, prefix
        self._own: dict[str, tuple[int, int]] = {}  # own keys → call that needs them last, number of chunks
        self._layout = self._shared = ""  # keys of the own description, and of the shares of all
        self._readers = ""  # key with the number of ranks that have all notes to the newest save

    def describe(self, rank: int, plan: LocalPlan) -> None:
        """See `PlanBoard`."""
        name = f"layout/{rank}/{plan.layout}"
        if name != self._layout:
            self._put(name, plan.encoded, 0)
            self._layout = name

    def description(self, rank: int, layout: str) -> bytes:
        """See `PlanBoard`."""
        return self._read(f"layout/{rank}/{layout}")

    def tell(self, parts: str, note: PlanNote) -> None:
        """See `PlanBoard`."""
        data = note.encode()
        self._put(f"{parts}/{note.rank}", data, note.number)
        self._put(f"newest/{note.rank}", data, note.number)
        self._own[self._layout] = note.number, self._own[self._layout][1]

    def note(self, parts: str, rank: int) -> bytes:
        """See `PlanBoard`."""
        return self._read(f"{parts}/{rank}")

    def notes(self, parts: str, ranks: Sequence[int]) -> list[bytes]:
        """See `PlanBoard`."""
        found: list[bytes] = []
        for at in range(0, len(ranks), TOGETHER):
            names = [f"{parts}/{rank}" for rank in ranks[at : at + TOGETHER]]
            try:
                found += self._read_all(names)
            except FileNotFoundError:
                there = self._first_there(names)
                return found + (self._read_all(names[:there]) if there else [])
        return found

    def notes_of(self, ranks: Sequence[int]) -> Iterator[bytes]:
        """See `PlanBoard`."""
        for rank in ranks:
            with suppress(OSError):
                yield self._read(f"newest/{rank}")

    def share_out(self, layout: str, shares: bytes) -> None:
        """See `PlanBoard`."""
        name = f"shares/{layout}"
        if name != self._shared:
            self._put(name, shares, 0)
            self._shared = name

    def shares(self, layout: str) -> bytes:
        """See `PlanBoard`."""
        return self._read(f"shares/{layout}")

    def decide(self, parts: str, decision: PlanDecision, number: int) -> None:
        """See `PlanBoard`."""
        self._put(f"{parts}/all", decision.encode(), number)
        if decision.layout:
            self._own[self._shared] = number, self._own[self._shared][1]

    def decision(self, parts: str) -> bytes:
        """See `PlanBoard`."""
        return self._read(f"{parts}/all")

    def leave_out(self, note: PlanNote) -> None:
        """See `PlanBoard`."""
        self._put(f"newest/{note.rank}", note.encode(), note.number)

    def all_told(self, number: int) -> None:
        """See `PlanBoard`."""
        former, self._readers = self._readers, f"{self._prefix}/readers/{number}"
        with suppress(RuntimeError):  # its process is gone
            self._store.add(self._readers, 1)
            if former:
                self._store.delete_key(former)
        for name, (last, chunks) in list(self._own.items()):
            if last < number:
                del self._own[name]
                with suppress(RuntimeError):  # its process is gone
                    self._store.delete_key(f"{self._prefix}/{name}")
                    for chunk in range(chunks):
                        self._store.delete_key(f"{self._prefix}/{name}/{chunk}")

    def await_readers(self, world: int, timeout_s: float) -> None:
        """See `PlanBoard`."""
        until = time.monotonic() + timeout_s
        with suppress(RuntimeError):
            while self._readers and self._store.add(self._readers, 0) < world:
                if time.monotonic() > until:
                    return
                time.sleep(LOOK_S)

    def _put(self, name: str, data: bytes, number: int) -> None:
        """Put chunks, then their number."""
        chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
        try:
            for chunk, content in enumerate(chunks):
                self._store.set(f"{self._prefix}/{name}/{chunk}", content)
            self._store.set(f"{self._prefix}/{name}", str(len(chunks)))
        except RuntimeError as error:
            raise StoreGoneError(
                f"the store of torch's process group takes nothing: {_line(error)}"
            ) from error
        self._own[name] = number, len(chunks)

    def _first_there(self, names: Sequence[str]) -> int:
        """Number of existing keys before the first missing one; at least one is missing."""
        there, missing = 0, len(names)
        while missing - there > 1:
            asked = (there + missing) // 2 if there else 1  # mostly the first one is waited for
            if self._are_there(names[there:asked]):
                there = asked
            else:
                missing = asked
        return there

    def _read(self, name: str) -> bytes:
        return self._read_all([name])[0]

    def _read_all(self, names: Sequence[str]) -> list[bytes]:
        counts = [int(count) for count in self._get_all(names)]
        chunks = [f"{name}/{at}" for name, count in zip(names, counts, strict=True) for at in range(count)]
        content = (
            one for at in range(0, len(chunks), TOGETHER) for one in self._get_all(chunks[at : at + TOGETHER])
        )
        return [b"".join(islice(content, count)) for count in counts]

    def _get_all(self, names: Sequence[str]) -> list[bytes]:
        if not self._are_there(names):
            raise FileNotFoundError(f"nothing under {names[0]}, or under another of {len(names)}")
        with _answers():
            return [bytes(value) for value in self._store.multi_get(self._keys(names))]

    def _are_there(self, names: Sequence[str]) -> bool:
        with _answers():
            return bool(self._store.check(self._keys(names)))

    def _keys(self, names: Sequence[str]) -> list[str]:
        return [f"{self._prefix}/{name}" for name in names]


@contextmanager
def _answers() -> Iterator[None]:
    """Context around requests to the store."""
    try:
        yield
    except RuntimeError as error:
        raise StoreGoneError(f"the store of torch's process group cannot be asked: {_line(error)}") from error


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
