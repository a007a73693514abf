"""One append-only output file of one stream: where it is, how far it is, how it is mended.

`position` says which records are in the file's first `size` bytes. Bytes are written at `size`
by pwrite, so a replay after a crash overwrites with the same bytes. When a write fails, the file
is cut back to `size`, the encoder goes back too, and the records are read from the spool again
later. The file is always opened from the data root without following links.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rla_agent.align import copy_durably, end_of_records, other_columns, size_of_rows
from rla_agent.ingest import Batch, Position
from rla_agent.open_files import OpenFiles
from rla_agent.opening import ItemGoneError, open_folder
from rla_agent.sinks.csv_table import CsvEncoder
from rla_agent.sinks.encoder import Encoder
from rla_agent.sinks.tensorboard import EventEncoder
from rla_agent.state import OutputRow

RETRY_S = 1.0  # between attempts on an output whose write failed
FIRST, NOWHERE = Position(1, 0), Position(0, 0)
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(eq=False, slots=True)
class Output:
    """State of one output file.

    Attributes:
        name: unique in its stream, e.g. `csv`.
        root: data root, absolute.
        folder: of the file, relative to `root`.
        file_name: last component.
        new_encoder: makes the encoder of a fresh file.
        encoder: encodes records from `position` on.
        position: records before it are in the file.
        size: bytes of the file that count.
        generation: how often the file was rewritten.
        durable: position that the last commit stored.
        widening: the next record needs columns that the file lacks.
        rewriting: a rewrite is under way in another thread.
        error: why the last write failed, empty when it did not.
        ready: the file is there and `size` bytes long at least.
        suspect: a sync failed; nothing since `durable` can be trusted, nor can this file.
        intent: a finished temp file that agent.db names as the content, not renamed yet.
        anchor: state at recovery, for a rebuild before the first commit.
        bases: segment number → state at its start, for aligning without agent.db.
    """

    name: str
    root: str
    folder: str
    file_name: str
    new_encoder: Callable[[], Encoder]
    encoder: Encoder
    position: Position = FIRST
    size: int = 0
    generation: int = 0
    durable: Position = NOWHERE
    dirty: bool = True
    widening: bool = False
    rewriting: bool = False
    next_rewrite: float = 0.0
    rest_s: float = 0.0
    error: str = ""
    retry_at: float = 0.0
    ready: bool = False
    suspect: bool = False
    intent: str = ""
    anchor: OutputRow | None = None
    bases: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Absolute path."""
        return os.path.normpath(os.path.join(self.root, self.folder, self.file_name))

    @property
    def blocked(self) -> bool:
        """Whether no records may be given to it now."""
        waits = self.widening or self.rewriting or self.suspect or not self.ready
        return waits or self.error != "" or self.intent != ""

    @property
    def storable(self) -> bool:
        """Whether all that `row` says is durable in the file."""
        return not (self.dirty or self.rewriting or self.suspect or self.intent)

    # -- the file -------------------------------------------------------------------------------

    def open_file(self, *, create: bool = False) -> int:
        """Open the file below the data root.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: anything else.
        """
        try:
            folder = open_folder(self.root, self.folder, create=create)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ItemGoneError(self.path) from error
        try:
            flags = _FLAGS | os.O_CREAT if create else _FLAGS
            descriptor = os.open(self.file_name, flags, 0o644, dir_fd=folder)
            if create:
                os.fsync(folder)
        finally:
            os.close(folder)
        return descriptor

    def begin(self, files: OpenFiles) -> None:
        """Make the file, cut it to `size`, write its head when it is fresh.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: the file cannot be made or written.
        """
        files.close(self)
        self.ready = False
        os.close(self.open_file(create=True))
        descriptor = files.descriptor(self, self.open_file)
        real = os.fstat(descriptor).st_size
        if real > self.size:
            os.ftruncate(descriptor, self.size)
        elif real < self.size:
            self._align_short(descriptor)
        if self.size == 0:
            self._write(descriptor, self.encoder.head())
        self.dirty = self.ready = True

    def _align_short(self, descriptor: int) -> None:
        """The file lost bytes that were durable: go on after its last whole record."""
        events = isinstance(self.encoder, EventEncoder)
        self.size = end_of_records(descriptor, self.size, events=events)
        os.ftruncate(descriptor, self.size)
        if self.size == 0:
            self.encoder = self.new_encoder()

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

    # -- records --------------------------------------------------------------------------------

    def accept(self, batch: Batch, files: OpenFiles) -> None:
        """Take the records of a batch that begins at `position`.

        Afterwards `position` says how far it got: to the batch's end, to the first record that
        needs a wider file (`widening`), or nowhere (`error`).

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
                self._write(files.descriptor(self, self.open_file), data)
                self.dirty = True
        except ItemGoneError:
            raise
        except FileNotFoundError:
            self.encoder.restore(before)
            self.begin_again(files)
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
            self.widening = True

    def begin_again(self, files: OpenFiles) -> None:
        """The file was removed under us: a fresh one takes what comes from here on.

        It is made RETRY_S later: whoever removes the whole item removes its files first, and
        would find a new one in a folder that was empty.
        """
        files.close(self)
        self.encoder = self.new_encoder()
        self.bases.clear()
        self.size = 0
        self.generation += 1
        self.ready = False
        self.fail(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))

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

    # -- durability -----------------------------------------------------------------------------

    def sync(self, files: OpenFiles) -> None:
        """Make the first `size` bytes durable.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: fdatasync failed; the descriptor is closed and must not be trusted again.
        """
        descriptor = files.descriptor(self, self.open_file)
        try:
            os.fdatasync(descriptor)
        except OSError:
            files.close(self)
            raise

    def replaced(self, files: OpenFiles) -> bool:
        """Whether somebody put another file under our name, or removed it."""
        descriptor = files.descriptor(self, self.open_file)
        ours = os.fstat(descriptor)
        try:
            there = os.lstat(self.path)
        except FileNotFoundError:
            return True
        except NotADirectoryError as error:
            raise ItemGoneError(self.path) from error
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)

    def adopt_replacement(self, files: OpenFiles) -> None:
        """Go on at the end of the file that now bears our name."""
        files.close(self)
        if not os.path.isdir(os.path.dirname(self.path)):
            raise ItemGoneError(self.path)
        if not os.path.lexists(self.path):
            self.begin_again(files)
            return
        self.size = os.fstat(files.descriptor(self, self.open_file)).st_size
        self.generation += 1
        self.dirty = True

    def rebuild(self, files: OpenFiles, committed: OutputRow, temp: str) -> None:
        """After a failed sync: copy what was durable into a new file and go back to that point.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: that failed too; the output stays `suspect`.
        """
        files.close(self)
        folder = open_folder(self.root, self.folder)
        try:
            old = os.open(self.file_name, _FLAGS, dir_fd=folder)
            try:
                copy_durably(old, committed.size, temp, folder)
            finally:
                os.close(old)
            os.rename(temp, self.file_name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        finally:
            os.close(folder)
        self.restore_row(committed)
        self.generation += 1
        self.suspect = False
        if self.size == 0:
            self.begin(files)

    # -- state ----------------------------------------------------------------------------------

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
        self.widening = False
        self.dirty = True

    def note_segment(self, number: int) -> None:
        """Remember the state at the start of segment `number`."""
        self.bases[number] = self.base()

    def base(self) -> dict[str, Any]:
        """Plain data from which `restore_base` aligns the file without agent.db."""
        return {"file": self.file_name, "size": self.size, "generation": self.generation,
                "state": self.encoder.state()}  # fmt: skip

    def restore_base(self, base: dict[str, Any], number: int) -> None:
        """Align with the file as it was at the start of segment `number`."""
        self.generation = int(base["generation"]) + 1
        self.size = int(base["size"])
        self.position = Position(number, 0)
        self.encoder = self.new_encoder()
        self.encoder.restore(base["state"])
        self.align_columns()

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
        try:
            columns = other_columns(descriptor, encoder.columns)
            if columns:
                self.size = size_of_rows(descriptor, encoder.rows)
                encoder.set_columns(columns)
        finally:
            os.close(descriptor)
