"""One append-only output file of a stream.

`position` says which records are in the file's first `size` bytes. Bytes are written at `size` by pwrite,
so a replay after a crash overwrites with the same bytes. When a write fails, the file is cut back to
`size`, the encoder goes back too, and the records are read from the spool again later. The file is opened
from the data root without following links.

A file that somebody removed, emptied or replaced is noticed while the stream is live: the complete records of
the new file stay, and the output continues behind them. What was done while no agent ran is not noticed: a
longer file is cut to `size`, a shorter one is continued behind its last complete record.

After such a change the output is `moved`, and takes no records: agent.db and the base file still describe the
old file, so that recovery after a kill would take new rows for old ones. The next commit renews both.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from rla_agent.model.records import Batch, Position
from rla_agent.model.stream_states import OutputEvent, OutputState, after
from rla_agent.outputs.csv_encoder import CsvEncoder, size_by_header
from rla_agent.outputs.encoder import Encoder, WholePart
from rla_agent.outputs.file_content import FileContent, read_chunks
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.store.agent_db import OutputRow
from rla_client.contract.filesystem.atomic_write import atomic_file
from rla_client.contract.filesystem.modes import open_within
from rla_client.contract.filesystem.safe_paths import ItemGoneError, is_there, open_below, open_folder
from rla_client.contract.process.descriptors import closing_fd

KEPT_FOR_ROWS = 64 << 20  # of a disk, or 2 % of a small one; below it only rows are written
RETRY_S = 1.0  # between attempts on an output whose write failed
FIRST, NOWHERE = Position(1, 0), Position(0, 0)
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_UNSTORABLE = frozenset({OutputState.REWRITING, OutputState.RENAMING, OutputState.SUSPECT})
_SYNCED = frozenset({OutputState.READY, OutputState.WIDENING})


@dataclass(frozen=True, slots=True)
class RewriteRest:
    """Rest between two rewrites of a file."""

    seconds: float = 0.0
    until: float = 0.0  # monotonic seconds


@dataclass(eq=False, slots=True)
class Output:
    """State of one output file; its attributes are written by its own methods alone, named behind each."""

    # which file it is
    #: Unique in its stream, e.g. `csv`. Never written again.
    name: str
    #: Data root, absolute. Never written again.
    root: str
    #: Of the file, relative to `root`. Never written again.
    folder: str
    #: Last component. `use_name`.
    file_name: str
    #: Makes the encoder of a fresh file. Never written again.
    new_encoder: Callable[[], Encoder]

    # what is in the file
    #: Encodes records from `position` on. `accept`, whatever goes back or to another file.
    encoder: Encoder
    #: Records before it are in the file, or never will be. `accept`, `enter_segment`, `pass_over`,
    #: `begin_at`, `restore_row`, `restore_base`.
    position: Position = FIRST
    #: Bytes of the file that count. `_write`, `take_rewrite`, `continue_at`, whatever goes to another file.
    size: int = 0
    #: How often the file became another one: a rewrite, a replacement, a rebuild. All of these.
    generation: int = 0
    #: Segment number → state at its start, for aligning without agent.db; of segments that are not free
    #: yet. `enter_segment`, `forget_bases`, `restore_row`, `_reset_content`.
    bases: dict[int, dict[str, Any]] = field(default_factory=dict)

    # how it stands
    #: See `rla_agent/model/stream_states.py`. `handle`.
    state: OutputState = OutputState.NEW
    #: A finished temp file that agent.db names as the content, not renamed yet; empty: none. `handle`.
    intent: str = ""
    #: The file is another than agent.db and the base file know. `_reset_content`, `_continue_short_file`,
    #: `stored`, `restore_row`.
    moved: bool = False
    #: Why the last write failed, empty when it did not. `fail`, `may_retry`.
    error: str = ""
    #: When it is tried again; monotonic seconds. `fail`.
    retry_at: float = 0.0

    # what is durable
    #: `position` that the last commit stored. `stored`, `take_rewrite`, `restore_row`.
    durable: Position = NOWHERE
    #: The file holds bytes that no sync has covered, or its state is not stored. `touch`, `accept`, `synced`.
    dirty: bool = True
    #: State at recovery, for a rebuild before the first commit; None before recovery. `set_anchor`.
    anchor: OutputRow | None = None

    # and besides
    #: After the last rewrite. `rest_for`.
    rest: RewriteRest = RewriteRest()
    #: The item's log folder, relative to `root`: where it is, the item is. Never written again.
    item: str = ""
    #: The file is made with its first record: most runs have none for it. Never written again.
    lazy: bool = False

    @property
    def path(self) -> str:
        """Absolute path."""
        return os.path.normpath(os.path.join(self.root, self.folder, self.file_name))

    @property
    def blocked(self) -> bool:
        """Whether no records may be given to it now."""
        return self.state is not OutputState.READY or self.moved or self.error != ""

    @property
    def storable(self) -> bool:
        """Whether all that `row` says is durable in the file."""
        return not self.dirty and self.state not in _UNSTORABLE

    def handle(self, event: OutputEvent, temp: str = "") -> None:
        """Apply an event; the only writer of `state` and `intent`.

        Args:
            event: what happened.
            temp: of REWRITTEN: the finished temp file.

        Raises:
            ForbiddenEventError: it cannot happen in this state.
        """
        self.state = after(self.state, event)
        if event is OutputEvent.REWRITTEN:
            self.intent = temp
        elif self.state is not OutputState.RENAMING:
            self.intent = ""

    def touch(self) -> None:
        """Note that there is something to sync or to store."""
        self.dirty = True

    def synced(self) -> None:
        """Note that all bytes of the file are durable."""
        self.dirty = False

    def validate(self) -> None:
        """Check what always holds between two events.

        Raises:
            AssertionError: it does not.
        """
        assert bool(self.intent) == (self.state is OutputState.RENAMING), (self.state, self.intent)
        assert self.durable <= self.position, (self.name, self.durable, self.position)
        assert self.size >= 0
        assert self.generation >= 0
        assert self.encoder.rows >= 0
        assert max(self.bases, default=0) <= self.position.number, (self.name, self.bases, self.position)
        assert self.retry_at > 0 or not self.error, (self.name, self.error)
        assert self.dirty or self.state is not OutputState.SUSPECT, self.name

    def open_file(self, *, create: bool = False) -> int:
        """Open the file below the data root.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: anything else.
        """
        with closing_fd(open_below(self.root, self.item, self.folder, create=create)) as folder:
            if not create:
                return os.open(self.file_name, _FLAGS, dir_fd=folder)
            descriptor = open_within(self.file_name, _FLAGS, folder)
            os.fsync(folder)
            return descriptor

    def begin(self, files: OpenFiles) -> None:
        """Make the file, cut it to `size`, write its head when it is fresh.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: the file cannot be made or written.
        """
        files.close(self)
        if self.lazy and not self.size and not self._is_there():
            self.dirty = False  # nothing to sync
            self.handle(OutputEvent.BEGUN)
            return
        os.close(self.open_file(create=True))
        descriptor = files.descriptor(self)
        real = os.fstat(descriptor).st_size
        if self.moved and real > 0:
            self._continue_foreign_file(descriptor, files)
        elif real > self.size:
            os.ftruncate(descriptor, self.size)
        elif real < self.size:
            self._continue_short_file(descriptor)
        if self.size == 0:
            self._write(files.descriptor(self), self.encoder.head())
        self.touch()
        self.handle(OutputEvent.BEGUN)

    def _is_there(self) -> bool:
        """Whether there is a file.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: that cannot be found out.
        """
        try:
            os.close(self.open_file())
        except FileNotFoundError:
            return False
        return True

    def try_begin(self, files: OpenFiles) -> None:
        """`begin`; where the file cannot be made or written, it is tried again later.

        Raises:
            ItemGoneError: the item's folder is not there.
        """
        try:
            self.begin(files)
        except OSError as error:
            self.fail(error)

    def _continue_foreign_file(self, descriptor: int, files: OpenFiles) -> None:
        """Continue behind the last complete record of a foreign file; without one the file is renamed."""
        part = whole_part(descriptor, self.encoder)
        if part.size == 0:
            files.close(self)
            self.put_aside()
            os.close(self.open_file(create=True))
            return
        os.ftruncate(descriptor, part.size)
        self.encoder.restore(part.state)
        self.size = part.size
        try:
            self._write(descriptor, part.ending)
        except OSError:
            self.size = 0  # its content is unknown: examined again
            raise

    def put_aside(self) -> None:
        """Rename the file to `<stem>.old-N<ending>` with the first free N, if it is there and not empty.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: it cannot be renamed.
        """
        if self.lazy and not self._is_there():
            return
        stem, ending = os.path.splitext(self.file_name)
        with closing_fd(open_below(self.root, self.item, self.folder, create=True)) as folder:
            try:
                if os.stat(self.file_name, dir_fd=folder, follow_symlinks=False).st_size == 0:
                    return
            except FileNotFoundError:
                return
            names = (f"{stem}.old-{number}{ending}" for number in count(1))
            aside = next(name for name in names if not is_there(name, dir_fd=folder))
            os.rename(self.file_name, aside, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def take_name(self, temp: str) -> None:
        """Rename a temp file to the output's name, durably; it may have been done already.

        Raises:
            OSError: it is not sure to be done.
        """
        with closing_fd(open_folder(self.root, self.folder)) as folder:
            with suppress(FileNotFoundError):
                os.rename(temp, self.file_name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def _continue_short_file(self, descriptor: int) -> None:
        """Continue after the last complete record of a file that lost durable bytes."""
        os.ftruncate(descriptor, self.encoder.end_of_records(FileContent(descriptor, self.size)))
        part = whole_part(descriptor, self.encoder)  # a newline may have been one of a quoted text
        os.ftruncate(descriptor, part.size)
        self.size = part.size
        self.moved = True
        if part.size == 0:
            self.encoder = self.new_encoder()
        elif part.state:
            self.encoder.restore(part.state)

    def _write(self, descriptor: int, data: bytes) -> None:
        done = 0
        try:
            while done < len(data):
                written = os.pwrite(descriptor, data[done:] if done else data, self.size + done)
                if written <= 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 - one way out
                done += written
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, self.size)
            raise
        self.size += done

    def accept(self, batch: Batch, files: OpenFiles) -> None:
        """Take the records of a batch that begins at `position`.

        Afterwards `position` says how far it got: to the batch's end, to the first record that
        needs a wider file (WIDENING), or nowhere (`error`).

        Raises:
            ItemGoneError: the item's folder is not there.
        """
        if batch.only_rows and not self.encoder.takes_rows:
            self.position = Position(batch.number, batch.end)
            return
        before = self.encoder.state()
        data, used = self.encoder.encode(batch.records)
        try:
            if data:
                if self.lazy:
                    self._make_room(len(data))
                descriptor = files.descriptor(self)
                if os.lseek(descriptor, 0, os.SEEK_END) < self.size:  # emptied in place
                    self.adopt_replacement(files)
                    return
                self._write(descriptor, data)
                self.dirty = True
        except FileNotFoundError:
            self.encoder.restore(before)
            self.begin_after_removal(files)
            return
        except OSError as error:
            self.encoder = self.new_encoder()
            self.encoder.restore(before)
            self.fail(error)
            return
        if used == len(batch.records):
            self.position = Position(batch.number, batch.end)
        else:
            if used:
                self.position = Position(batch.number, batch.records[used - 1].end)
            self.handle(OutputEvent.TOO_NARROW)

    def _make_room(self, size: int) -> None:
        """Make the file of a lazy output where it has none, if the disk has room for more than rows.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: it cannot be made, or the disk's last bytes are for rows.
        """
        if not self.size:
            os.close(self.open_file(create=True))
        disk = os.statvfs(os.path.join(self.root, self.folder))
        if disk.f_bavail * disk.f_frsize - size < min(KEPT_FOR_ROWS, disk.f_blocks * disk.f_frsize // 50):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def begin_after_removal(self, files: OpenFiles) -> None:
        """Begin a fresh file after the file was removed under us.

        It is made RETRY_S later: whoever removes the whole item removes its files first, and would fail to
        remove a folder with a new file in it.
        """
        files.close(self)
        self._reset_content()
        self.fail(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))

    def _reset_content(self) -> None:
        """Discard the state of the file, which another one has replaced."""
        self.encoder = self.new_encoder()
        self.bases.clear()
        self.size = 0
        self.generation += 1
        self.moved = True
        self.handle(OutputEvent.STARTED_OVER)
        self.touch()

    def fail(self, error: OSError) -> None:
        """Note that the output cannot be written now."""
        self.error = f"{os.strerror(error.errno)}: {self.path}" if error.errno else str(error)
        self.retry_at = time.monotonic() + RETRY_S

    def may_retry(self, now: float) -> bool:
        """Whether it is time to try again after a failure; clears the failure."""
        if self.error and now >= self.retry_at:
            self.error = ""
            return True
        return False

    def pass_over(self, position: Position) -> None:
        """Continue at a position; the records before it are lost."""
        self.position = position
        self.touch()

    def rewritten_row(self, columns: list[str], size: int, temp: str) -> OutputRow:
        """Durable form of the state once a finished temp file is the content; nothing changes yet.

        Args:
            columns: of the temp file, a CSV with the rows of this one.
            size: of it, in bytes.
            temp: its name.
        """
        row = self.row(intent=temp)
        return replace(
            row, generation=row.generation + 1, size=size, state={**row.state, "columns": list(columns)}
        )

    def take_rewrite(self, row: OutputRow) -> None:
        """Note that a commit holds the row of `rewritten_row`; `take_name` is to follow."""
        self.encoder.restore({**self.encoder.state(), "columns": row.state["columns"]})
        self.size = row.size
        self.generation = row.generation
        self.durable = self.position
        self.handle(OutputEvent.REWRITTEN, row.intent)

    def refuse_rewrite(self, error: OSError) -> None:
        """Note that the row of `rewritten_row` could not be stored: the old file stays."""
        self.generation += 1  # a transaction that failed may have been stored all the same
        self.fail(error)
        self.handle(OutputEvent.REWRITE_FAILED)

    def rest_for(self, seconds: float, now: float) -> None:
        """Rest after a rewrite; `now` is monotonic."""
        self.rest = RewriteRest(seconds, now + seconds)

    def descriptor_to_sync(self, files: OpenFiles) -> int | None:
        """Descriptor of the file if it is to be synced now; one that was put in its place is taken over.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: anything else; a file that was removed is begun again later.
        """
        if self.state not in _SYNCED:
            return None
        try:
            if self.replaced(files):
                self.adopt_replacement(files)
            return files.descriptor(self) if self.state is OutputState.READY else None
        except FileNotFoundError:
            self.begin_after_removal(files)
            return None

    def replaced(self, files: OpenFiles) -> bool:
        """Whether somebody put another file under our name, emptied ours or a part of it, or removed it."""
        descriptor = files.descriptor(self)
        ours = os.fstat(descriptor)
        if ours.st_size < self.size:
            return True
        try:
            there = os.lstat(self.path)
        except FileNotFoundError:
            return True
        except NotADirectoryError as error:
            raise ItemGoneError(self.path) from error
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)

    def adopt_replacement(self, files: OpenFiles) -> None:
        """Continue at the end of the file that now has our name, if there is one.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: the file cannot be opened.
        """
        try:
            os.close(self.open_file())
        except FileNotFoundError:
            self.begin_after_removal(files)
            return
        self._reset_content()
        self.try_begin(files)

    def distrust(self, files: OpenFiles) -> None:
        """Discard, after a failed sync, the descriptor and what was written through it."""
        files.close(self)
        self.handle(OutputEvent.SUSPECTED)

    def rebuild(self, files: OpenFiles, committed: OutputRow, temp: str) -> None:
        """Copy, after a failed sync, what was durable into a new file and go back to that point.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: that failed too; the output stays SUSPECT.
        """
        self.distrust(files)
        try:
            old = self.open_file()
        except FileNotFoundError:  # removed meanwhile: the rows since then go into a fresh one
            self.restore_row(committed)
            self.begin_after_removal(files)
            return
        with closing_fd(old), closing_fd(open_below(self.root, self.item, self.folder)) as folder:
            mode = os.fstat(old).st_mode & 0o777
            with atomic_file(self.file_name, mode=mode, dir_fd=folder, temp=temp) as file:
                file.writelines(read_chunks(old, committed.size))
        self.restore_row(committed)
        self.generation += 1
        self.begin(files)

    def row(self, intent: str = "") -> OutputRow:
        """Durable form of the present state."""
        state = self.encoder.state()
        if self.bases:
            state["bases"] = {str(number): base for number, base in self.bases.items()}
        return OutputRow(self.name, self.path, self.generation, self.size, self.position, state, intent)

    def restore_row(self, row: OutputRow) -> None:
        """Take over a durable state."""
        self.generation = row.generation
        self.size = row.size
        self.position = row.position
        self.durable = row.position
        self.encoder = self.new_encoder()
        self.encoder.restore(row.state)
        self.bases = {int(number): base for number, base in row.state.get("bases", {}).items()}
        self.moved = False
        self.handle(OutputEvent.RESTORED)
        self.touch()

    def set_anchor(self) -> None:
        """Remember the present state, which is durable, for a rebuild before the first commit."""
        self.anchor = self.row()

    def use_name(self, file_name: str) -> None:
        """Continue in the file of this name, which is not open."""
        self.file_name = file_name

    def begin_at(self, position: Position) -> None:
        """Begin at this position."""
        self.position = position

    def continue_at(self, size: int, state: dict[str, Any] | None) -> None:
        """Continue an earlier file.

        Args:
            size: bytes of it that stay.
            state: of an encoder that continues behind them; None: as a fresh one.
        """
        self.size = size
        if state is not None:
            self.encoder.restore(state)

    def forget_bases(self, number: int) -> None:
        """Drop the states at the starts of the segments up to this one."""
        self.bases = {other: base for other, base in self.bases.items() if other > number}

    def stored(self) -> None:
        """Note that a commit holds the present state; so does the base file if the file was moved."""
        self.durable = self.position
        self.moved = False

    def close_failed(self) -> None:
        """Note that closing the file reported bytes that could not be written, as NFS does."""
        if self.dirty:
            self.handle(OutputEvent.SUSPECTED)

    def enter_segment(self, number: int) -> None:
        """Go to the start of segment `number`, and remember the state there."""
        self.position = Position(number, 0)
        self.bases[number] = self.base()

    def base(self) -> dict[str, Any]:
        """Plain data from which `restore_base` aligns the file without agent.db."""
        return {"file": self.file_name, "size": self.size, "generation": self.generation,
                "state": self.encoder.state(), "position": list(self.position)}  # fmt: skip

    def restore_base(self, base: dict[str, Any], number: int) -> None:
        """Take the state at the start of segment `number`, or where the base says; align_columns then."""
        self.generation = int(base["generation"]) + 1
        self.size = int(base["size"])
        self.position = Position(*base.get("position", (number, 0)))
        self.encoder = self.new_encoder()
        self.encoder.restore(base["state"])

    def align_columns(self) -> None:
        """Where a CSV has other columns than the state says, go by its header and count rows.

        The file was widened after the state was taken, or was to be and was not.
        """
        encoder = self.encoder
        if not isinstance(encoder, CsvEncoder) or not encoder.columns:
            return
        try:
            descriptor = self.open_file()
        except (OSError, ItemGoneError):
            return
        with closing_fd(descriptor):
            size = size_by_header(descriptor, encoder)
            self.size = self.size if size is None else size


def whole_part(descriptor: int, encoder: Encoder) -> WholePart:
    """Where an output may continue in a file that was changed; size 0 when nowhere.

    JSON nested too deeply for readers counts as nowhere.
    """
    try:
        return encoder.whole_part(FileContent(descriptor))
    except RecursionError:
        return WholePart(0, b"", {})
