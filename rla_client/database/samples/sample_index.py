"""Index of a run's samples.

It holds the columns that can be sorted and filtered without decompressing texts, and is read from the
headers of the files' members (`contract.sample_members`). `refresh` reads what was added since the last
call; a replaced file is read again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from rla_client.contract.errors import BrokenFileError, RemoteProtocolError
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.layout import SAMPLES, is_samples_file
from rla_client.contract.sample_members import (
    HEAD_BYTES,
    Index,
    MemberHead,
    member_head,
    read_index,
    read_lines,
)
from rla_client.database.tree.chains import ChainLink

READ_BYTES = 64 << 10  # read at a header; includes most indices
MAX_ROWS = 5_000_000  # of one run, in memory
_SAMPLED_FILE = "samples.jsonl.gz"
Columns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """Position of a row.

    Attributes:
        file: path of the file.
        offset: offset of the member.
        line: line in the member, from 0.
    """

    file: Path
    offset: int
    line: int


@dataclass(slots=True)
class _File:
    path: Path
    link: ChainLink
    inode: int = 0
    read: int = 0  # bytes of the members that are indexed
    rows: int = 0
    done: bool = False  # later members are void: the run was continued from an earlier step


@dataclass(slots=True)
class SampleIndex:
    """Columns over all samples of a run, in the order of its files.

    Args:
        data_root: of the database.
        table: of the run.
        chain: its items, see `tree.chains`.

    Attributes:
        columns: name → one value per row, None without one; every row has `step`, `time`, `name` and `role`.
        left_out: step → number of samples that the limits left out.
        unread: folders and files without permission, as of the last `refresh`.
    """

    data_root: Path
    table: str
    chain: Sequence[ChainLink]
    columns: Columns = field(default_factory=dict)
    left_out: dict[float, int] = field(default_factory=dict)
    unread: list[Path] = field(default_factory=list)
    _files: dict[Path, _File] = field(default_factory=dict)
    _members: list[tuple[int, Path, int]] = field(default_factory=list)  # first row, file, offset
    _rows: int = 0

    def __len__(self) -> int:
        return self._rows

    def refresh(self) -> bool:
        """Read new members; returns whether anything changed.

        Raises:
            BrokenFileError: a file is no samples file.
            OSError: a file cannot be read.
        """
        before = self._rows, len(self._members)
        self.unread = []
        found = dict(self._found())
        for path, known in self._files.items():
            try:
                stat = os.stat(path)
            except OSError:
                stat = None
            if path not in found or stat is None or stat.st_ino != known.inode or stat.st_size < known.read:
                self._forget()
                before = -1, -1
                break
        for path, link in found.items():
            self._read_file(self._files.setdefault(path, _File(path, link)))
        return (self._rows, len(self._members)) != before

    def place(self, row: int) -> SamplePlace:
        """Position of a row."""
        from bisect import bisect_right

        first, path, offset = self._members[bisect_right(self._members, (row, Path("\U0010ffff"), 0)) - 1]
        return SamplePlace(path, offset, row - first)

    def texts(self, rows: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """(row, JSON line) of rows; each member is decompressed once if rows are in order.

        Raises:
            BrokenFileError: a member is damaged.
            OSError: a file cannot be read.
        """
        at: tuple[Path, int] | None = None
        lines: list[bytes] = []
        for row in rows:
            place = self.place(row)
            if at != (place.file, place.offset):
                at = place.file, place.offset
                lines = _lines_at(place.file, place.offset).splitlines()
            if place.line >= len(lines):
                raise BrokenFileError(str(place.file), "it is damaged: a sample is missing")
            yield row, lines[place.line]

    def _forget(self) -> None:
        self.columns, self.left_out, self._files, self._members, self._rows = {}, {}, {}, [], 0

    def _found(self) -> Iterator[tuple[Path, ChainLink]]:
        for link in self.chain:
            folder = self.data_root / SAMPLES / self.table / link.index
            try:
                names = sorted(name for name in os.listdir(folder) if is_samples_file(name))
                names.sort(key=lambda name: name != _SAMPLED_FILE)
                yield from ((folder / name, link) for name in names if ".old-" not in name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError:
                self.unread.append(folder)

    def _read_file(self, known: _File) -> None:
        try:
            file = open_plain(known.path)
        except FileNotFoundError:
            return
        except PermissionError:
            self.unread.append(known.path)
            return
        with file:
            stat = os.fstat(file.fileno())
            known.inode = stat.st_ino
            while not known.done and self._rows < MAX_ROWS and known.read < stat.st_size:
                entry = _entry_at(file, known.path, known.read, stat.st_size)
                if entry is None:
                    return
                head, index = entry
                limit = known.link.time_step
                if limit is not None and head.step > limit:
                    known.done = True
                    return
                self._add(known, head, index)

    def _add(self, known: _File, head: MemberHead, index: Index) -> None:
        first, count = self._rows, head.rows
        role = (
            known.path.name[len("samples.") : -len(".jsonl.gz")] if known.path.name != _SAMPLED_FILE else ""
        )
        own: list[tuple[str, list[Any]]] = [
            ("step", [index.step] * count),
            ("time", [index.timestamp] * count),
            ("name", [index.name] * count),
            ("role", [role] * count),
        ]
        for name, values in (*own, *index.columns.items()):
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = [None] * first
            elif len(column) < first:
                column.extend([None] * (first - len(column)))
            if len(column) == first:  # otherwise the column has the name of one of ours
                column.extend(values)
        if index.left_out:
            self.left_out[index.step] = self.left_out.get(index.step, 0) + index.left_out
        if count:
            self._members.append((first, known.path, known.read))
        self._rows += count
        known.rows += count
        known.read += head.size
        for column in self.columns.values():
            if len(column) < self._rows:
                column.extend([None] * (self._rows - len(column)))


def _entry_at(file: BinaryIO, path: Path, offset: int, size: int) -> tuple[MemberHead, Index] | None:
    """Header and index of the member at an offset; None if it is incomplete."""
    data = os.pread(file.fileno(), READ_BYTES, offset)
    head = member_head(data)
    if head is None:
        if len(data) < HEAD_BYTES:
            return None
        if not data.strip(b"\0"):  # zeros after a power cut, until the agent repairs the file
            return None
        raise BrokenFileError(str(path), f"no sample of ours begins at byte {offset}")
    if offset + head.size > size:
        return None
    try:
        return head, read_index(data, head)
    except RemoteProtocolError as error:
        raise BrokenFileError(str(path), f"it is damaged at byte {offset}: {error}") from error


def _lines_at(path: Path, offset: int) -> bytes:
    with open_plain(path) as file:
        head = member_head(os.pread(file.fileno(), HEAD_BYTES, offset))
        member = b"" if head is None else os.pread(file.fileno(), head.size, offset)
        if head is None or len(member) < head.size:
            raise BrokenFileError(str(path), "it changed meanwhile: look again")
        try:
            return read_lines(member, head)
        except RemoteProtocolError as error:
            raise BrokenFileError(str(path), f"it is damaged at byte {offset}: {error}") from error
