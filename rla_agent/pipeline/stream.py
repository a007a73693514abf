"""One stream inside the agent.

It reads its segments, hands records to outputs and counts what its run has to know. `position` is how far
the stream was taken in; each output has a position of its own and lags while it is blocked (a rewrite, a
full disk). One path, reading the segment, serves live records, replay after a crash and catching up.

A stream belongs to one volume thread and is not thread-safe.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rla_agent.model.frame_decoder import parse
from rla_agent.model.records import (
    Batch,
    Close,
    ItemFile,
    JobRequest,
    Mark,
    OpeningFrame,
    Position,
    Record,
    Row,
    clipped_batch,
    cut_at_jobs,
)
from rla_agent.model.states import WAITING, StreamEvent, StreamState, after
from rla_agent.outputs.formats import make_outputs
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output_file import MARKS_FIELD, Output
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.store.agent_db import JobRow, OutputRow
from rla_client.contract.errors import UnknownVersionError
from rla_client.contract.filesystem.atomic_write import fsync_file, fsync_folder, write_atomic
from rla_client.contract.filesystem.safe_paths import ItemGoneError
from rla_client.contract.job.checkpoint_job import CHECKPOINT_KIND
from rla_client.contract.spool.losses import LOST_MARK, Loss, read_losses
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import FRAME_HEADER_BYTES, MAX_FRAME_BYTES, pack
from rla_client.contract.spool.segments import (
    base_path,
    end_of,
    read_at,
    segment_numbers,
    segment_path,
    segment_size,
)
from rla_client.contract.spool.writer_liveness import writer_alive

CONTROL = ""  # name of the row that holds the stream's own position
LOST = "lost"  # in its state; earlier releases lack it
MOST_LOST = 1 << 60  # whatever a client says
READ_BYTES = 256 << 10  # some thousand rows: the unit of fairness between streams


class RowWatch(Protocol):
    """Metric rules over one stream's rows.

    Attributes:
        firings: of rules, since the last commit.
    """

    firings: Any

    def take(self, batch: Batch) -> None:
        """Look at the rows of a batch."""

    def state(self) -> object:
        """What a restart must know, as plain data; it is stored with the stream's position."""

    def restore(self, state: object) -> None:
        """Go on from a stored state; one that makes no sense counts as none."""


class Stream:
    """State of one stream.

    Attributes:
        opening: checked opening frame.
        outputs: open outputs; empty once the item was removed.
        position: taken in up to here.
        durable: position that the last commit stored.
        state: see `model.states`; changed by `handle` alone.
        parked: why nothing is taken in, empty when it is.
        aside: the run went on elsewhere, so this is kept beside it.
        replayed: agent.db does not know the stream, but it was taken in before.
        writer_gone: the lock is free: no bytes will follow those that are there.
        closed: the writer's last word, if it said one.
    """

    def __init__(self, name: str, folder: Path, adjust: Callable[[Opening], Opening] | None = None) -> None:
        """Read the opening frame of the oldest segment.

        Args:
            name: of the stream.
            folder: in the spool.
            adjust: gives the opening that counts here, where the data root lies elsewhere now.

        Raises:
            SpoolError: there is no readable opening frame.
            UnknownVersionError: the segment is of a later release.
        """
        self.name, self.folder = name, folder
        opening, self.first_segment = read_opening(folder)
        self.opening = opening if adjust is None else adjust(opening)
        self.outputs: list[Output] = make_outputs(self.opening, name)
        self.position = Position(self.first_segment, 0)
        self.durable = Position(0, 0)
        self.state = StreamState.TAKING_IN
        self.parked = ""
        self.aside = False  # see `fencing.fence`
        self.replayed = False
        self.writer_gone = False
        self.closed: Close | None = None
        self.away_since: float | None = None  # its folder is gone from the spool; monotonic
        self.dirty = True
        self.damaged = 0
        self.new_damaged = 0  # since the run's record was brought up to date
        self.rows = 0
        self.last: Row | None = None
        self.new_rows = 0
        self.new_jobs: list[JobRow] = []
        self.new_files: list[ItemFile] = []
        self.given_up = 0  # of these, since this agent reads the stream
        self.lost = (0, 0)  # rows and other things, as its writer tells
        self.new_lost = (0, 0)  # since the run's record was brought up to date, with what was given up
        self.new_losses: list[Loss] = []
        self.refused_since: float | None = None  # the first of them; monotonic
        self.marks: list[Mark] = []
        self.replicate_now = False  # asked for since the last commit
        self.watch: RowWatch | None = None  # metric rules of alerts
        self.watch_version = 0  # of the rules
        self.watch_state: object = None  # durable state of `watch`, for the one that continues
        self.bases: dict[int, dict[str, Any]] = {}
        self.last_hint = 0.0  # of its client; monotonic
        self.asleep = False
        self._spot = os.fspath(folder)
        self._segment = 0, "", ""  # number and path of the current one, path of the next
        self._after_batch = self.position
        self.unread = ""  # why the last read of the spool failed
        self._unknown = ""  # why a frame cannot be read by this release

    # -- state ----------------------------------------------------------------------------------

    def handle(self, event: StreamEvent, why: str = "") -> None:
        """Let something happen to the stream; nothing else changes `state` and `parked`.

        Args:
            event: what happened.
            why: for people; of events after which nothing is taken in.

        Raises:
            ForbiddenEventError: it cannot happen in this state.
        """
        former, self.state = self.state, after(self.state, event)
        if self.state not in WAITING:
            self.parked = ""
        elif self.state is not former or why:
            self.parked = why
        if self.state is StreamState.ITEM_REMOVED:
            self.outputs = []
        if event is StreamEvent.GIVEN_UP:
            self.new_files, self.new_jobs = [], []
            self._unknown = ""  # else the next read would park it again
            self.writer_left()
        if self.state is StreamState.BROKEN:
            self.watch = None
        self.touch()

    @property
    def removed(self) -> bool:
        """The item is gone: what comes is dropped."""
        return self.state is StreamState.ITEM_REMOVED

    @property
    def root_away(self) -> bool:
        """The data root is not there, or another one: the stream waits for it."""
        return self.state is StreamState.ROOT_AWAY

    @property
    def broken(self) -> bool:
        """Parked by a fault of the agent: what is in memory counts for nothing more."""
        return self.state is StreamState.BROKEN

    def touch(self) -> None:
        """There is something to commit."""
        self.dirty = True

    def committed(self, *, whole: bool) -> None:
        """A commit holds the stream's position; `whole`: and all of its outputs and files."""
        self.dirty = not whole
        if not self.new_files:  # else they are stored with the position, once it moves past them
            self.new_jobs = []

    def writer_left(self) -> None:
        """The writer is gone: what is there now is all there will be."""
        self.writer_gone = True
        self.touch()

    def fence(self, opening: Opening) -> None:
        """The run went on elsewhere: from now on the stream has outputs of its own, beside the run's."""
        self.opening = opening
        self.outputs = make_outputs(opening, self.name)
        self.aside = self.replayed = True

    def validate(self) -> None:
        """Check what always holds between two events.

        Raises:
            AssertionError: it does not.
        """
        assert bool(self.parked) == (self.state in WAITING), (self.state, self.parked)
        assert self.outputs or self.state in WAITING | {StreamState.ITEM_REMOVED}, self.state
        assert not (self.outputs and self.removed)
        assert not (self.aside and self.opening.primary)
        assert self.watch is None or not self.broken
        if not self.broken:
            assert self.durable <= self.position or not self.durable.number, (self.durable, self.position)
            for output in self.outputs:
                output.validate()
                assert output.position <= self.position, (output.name, output.position, self.position)

    # -- reading --------------------------------------------------------------------------------

    def read_more(self, files: OpenFiles) -> bool:
        """Read one piece of the segments; True when there may be more to read at once."""
        if self.parked:
            return False
        number, offset = self.position
        batch, more = self._read(number, offset)
        if batch is not None:
            self._dispatch(batch, files)
        elif more:
            self._enter(number + 1)
        return more and not self.parked

    def _read(self, number: int, offset: int) -> tuple[Batch | None, bool]:
        """A batch at a position, or None at the end of the segment; and whether more may follow.

        Where the segment cannot be read, `unread` says why, and nothing follows until a later call succeeds.
        """
        batch, more = None, False
        try:
            batch, more = self._read_segment(number, offset)
        except FileNotFoundError:
            self.unread = f"its folder {self.folder} is away, which says nothing; tried again all the time"
        except OSError as error:
            self.unread = f"segment {number} cannot be read, tried again: {error}; its rows stay in the spool"
        else:
            self.unread = ""
        self._note_unknown()
        return batch, more

    def _read_segment(self, number: int, offset: int) -> tuple[Batch | None, bool]:
        sealed = segment_size(self.folder, number + 1) is not None
        final = sealed or self.writer_gone
        limit = READ_BYTES
        path = segment_path(self.folder, number)
        try:
            data = read_at(path, offset, limit)
            if not data:
                return None, sealed
            batch = self._parse(data, number, offset, final=final and len(data) < limit)
            if batch.end == batch.start and len(data) == limit:
                limit = MAX_FRAME_BYTES + FRAME_HEADER_BYTES + READ_BYTES
                data = read_at(path, offset, limit)
                batch = self._parse(data, number, offset, final=final and len(data) < limit)
        except FileNotFoundError:
            if segment_size(self.folder, number) is not None:  # the spool was renamed, and is back
                raise
            return None, max(segment_numbers(self.folder), default=0) > number  # others may be gone, too
        if batch.end == batch.start:
            return None, False
        return batch, True

    def _parse(self, data: bytes, number: int, offset: int, *, final: bool) -> Batch:
        """Records of some bytes; none, and `_unknown` says why, where only a later release can read them."""
        try:
            return parse(data, number, offset, final=final)
        except UnknownVersionError as error:
            self._unknown = f"{error}; it is kept for a newer agent"
            return Batch(number, offset, offset, [])

    def _note_unknown(self) -> None:
        if self._unknown and not self.parked:
            self.handle(StreamEvent.REFUSED, self._unknown)

    def _enter(self, number: int) -> None:
        """Go to the start of segment `number` with all outputs that stand at the end of the one before."""
        for output in self.outputs:
            if not output.blocked and output.position == self.position:
                output.enter_segment(number)
        self.bases[number] = {"rows": self.rows}
        self.position = Position(number, 0)

    def _dispatch(self, batch: Batch, files: OpenFiles) -> None:
        for piece in cut_at_jobs(batch, CHECKPOINT_KIND):
            self._take(piece, files)

    def _take(self, batch: Batch, files: OpenFiles) -> None:
        start = Position(batch.number, batch.start)
        self._after_batch = Position(batch.number, batch.end)
        for output in self.outputs:
            if output.position == start and not output.blocked:
                self._give(output, batch, files)
        before = self.rows
        if batch.only_rows:
            self.rows += len(batch.records)
        for record in () if batch.only_rows else batch.records:
            if type(record.content) is Row:
                self.rows += 1  # in order: a checkpoint's marks say how many rows came before it
            else:
                self._control(record, batch.number)
        if self.rows > before:
            self.last = next(r.content for r in reversed(batch.records) if type(r.content) is Row)
        self.new_rows += self.rows - before
        if self.watch is not None:
            self.watch.take(batch)
        self.damaged += batch.damaged
        self.new_damaged += batch.damaged
        self.position = Position(batch.number, batch.end)
        self.dirty = True

    def _give(self, output: Output, batch: Batch, files: OpenFiles) -> None:
        try:
            output.accept(batch, files)
        except ItemGoneError:
            self.handle(StreamEvent.MISSED)

    def _control(self, record: Record, number: int) -> None:
        match record.content:
            case Close() as close:
                self.closed = close
            case Mark() as mark:
                if mark.name == LOST_MARK:
                    self._note_lost(mark.data)
                self.marks.append(mark)
            case ItemFile() as file:
                self.new_files.append(file)
            case JobRequest() as job:
                fields = pack(self._with_marks(job))
                self.new_jobs.append(JobRow(self.name, Position(number, record.end), job.kind, fields))
            case OpeningFrame({"lost": int() as lost}) if lost:
                self._note_lost({"rows": lost})

    def _note_lost(self, told: object) -> None:
        """What the writer could not keep, since the stream began; an earlier release's tells one number."""
        if not isinstance(told, dict):
            return
        counts = told.get("rows", told.get("records")), told.get("others", 0)
        if any(type(count) is not int or not 0 <= count <= MOST_LOST for count in counts):
            return
        before, added = self.lost, self.new_lost
        rows, others = (max(count, known) for count, known in zip(counts, before, strict=True))
        self.lost = rows, others
        self.new_lost = added[0] + rows - before[0], added[1] + others - before[1]
        self.new_losses += read_losses(told.get("losses"))

    def give_up_file(self, path: str, why: str) -> None:
        """A small file of the item cannot be kept."""
        self.given_up += 1
        self.new_lost = self.new_lost[0], self.new_lost[1] + 1
        self.new_losses.append(Loss("file", path, why))
        self.touch()

    def _with_marks(self, job: JobRequest) -> dict[str, Any]:
        """A job's fields; a checkpoint's also say how long every output is at this frame."""
        if job.kind != CHECKPOINT_KIND:
            return job.fields
        marks = {
            output.name: [output.generation, output.encoder.rows, output.size, output.file_name]
            for output in self.outputs
            if output.position == self._after_batch
        }
        return {**job.fields, MARKS_FIELD: {"rows": self.rows, "outputs": marks}}

    # -- outputs that lag -----------------------------------------------------------------------

    def catch_up(self, output: Output, files: OpenFiles, until: float) -> None:
        """Give an unblocked output that lags what it lacks, until a moment (monotonic); at least a piece."""
        while not output.blocked and output.position < self.position and self.state is StreamState.TAKING_IN:
            number, offset = output.position
            batch, more = self._read(number, offset)
            if batch is None:
                if not more:
                    self._pass_over_lost(output)
                    return
                output.enter_segment(number + 1)
                continue
            if number == self.position.number and batch.end > self.position.offset:
                batch = clipped_batch(batch, self.position.offset)
            self._give(output, batch, files)
            if time.monotonic() > until:
                return

    def _pass_over_lost(self, output: Output) -> None:
        """After a power cut the spool may end before a durable position: what lagged there never comes."""
        if not self.writer_gone or self.unread:
            return
        number, offset = output.position
        lost = self.position.offset - (offset if number == self.position.number else 0)
        self.damaged += lost
        self.new_damaged += lost
        output.position = self.position
        output.touch()
        self.touch()

    def pending_records(self, output: Output) -> Iterator[list[Record]]:
        """Records that wait for an output, piece by piece, without moving it."""
        number, offset = output.position
        while True:
            batch, more = self._read(number, offset)
            if batch is not None:
                offset = batch.end
                yield batch.records
            elif more:
                number, offset = number + 1, 0
            else:
                return

    def quiet(self, *, thorough: bool) -> bool:
        """Whether nothing happened since the last look: one stat, for the many idle streams.

        Args:
            thorough: also look for a next segment, and whether the writer still lives.
        """
        position = self.position
        if self.dirty or self.new_files or self.state is not StreamState.TAKING_IN:
            return False
        for output in self.outputs:
            if output.error or output.position != position:
                return False
        number, offset = position
        if self._segment[0] != number:
            following = os.fspath(segment_path(self.folder, number + 1))
            self._segment = number, os.fspath(segment_path(self.folder, number)), following
        try:
            if os.stat(self._segment[1]).st_size != offset:
                return False
        except OSError:
            return False
        if not thorough:
            return True
        return not os.access(self._segment[2], os.F_OK) and (
            self.writer_gone or bool(writer_alive(self._spot))
        )

    @property
    def lagging(self) -> list[Output]:
        """Outputs that have not taken everything that the stream has."""
        return [output for output in self.outputs if output.position < self.position]

    @property
    def at_end(self) -> bool:
        """Whether all bytes that are there were taken in by all outputs."""
        return not (self.parked or self.lagging) and self.read_through

    @property
    def read_through(self) -> bool:
        """Whether all bytes that are there were taken in; not of a folder that is away."""
        number, offset = self.position
        try:
            if segment_size(self.folder, number + 1) is not None:
                return False
            if (size := segment_size(self.folder, number)) is not None:
                return bool(size <= offset)
            return max(segment_numbers(self.folder), default=0) <= number  # it was deleted; were others, too?
        except OSError:
            return False  # what cannot be looked at may hold rows

    def end(self) -> Position:
        """Where the stream ends now: what is there at a stop and is taken in before it."""
        with suppress(OSError):
            return Position(*end_of(self.folder))
        return Position(0, 0)

    @property
    def all_durable(self) -> Position:
        """Everything before this is durable in all outputs."""
        return min([self.durable, *(output.durable for output in self.outputs)])

    def lag_bytes(self) -> int:
        """Bytes of the spool that are not durable in every output; called beside the stream's thread."""
        durable = self.all_durable
        total = 0
        with suppress(OSError):
            for number in segment_numbers(self.folder):
                if number >= durable.number:
                    size = segment_path(self.folder, number).stat().st_size
                    total += size - (durable.offset if number == durable.number else 0)
        return max(0, total)

    # -- durability -----------------------------------------------------------------------------

    def control_row(self) -> OutputRow:
        """Durable form of the stream's own position."""
        closed = None if self.closed is None else list(self.closed)
        counts = {"rows": self.rows, "damaged": self.damaged, LOST: list(self.lost)}
        state: dict[str, Any] = {**counts, "closed": closed}
        if self.watch is not None:
            state["watch"] = self.watch.state()
        elif self.watch_state:
            state["watch"] = self.watch_state  # its rules could not be read yet
        if self.bases:
            state["bases"] = {str(number): base for number, base in self.bases.items()}
        return OutputRow(CONTROL, "", 0, 0, self.position, state)

    def freeable(self) -> list[int]:
        """Segments that every durable position has passed; the next one's base must be written first."""
        low = self.all_durable.number
        if not all(low in output.bases or output.storable for output in self.outputs):
            return []  # what a base would say of it now is not durable
        return [number for number in segment_numbers(self.folder) if number < low]

    def free_segments(self) -> None:
        """Unlink passed segments, sync the folder, and only then forget the states at their starts.

        Raises:
            OSError: they stay for now.
        """
        passed = self.freeable()
        if not passed:
            return
        following = passed[-1] + 1
        opening = segment_path(self.folder, following)
        fsync_file(opening)  # from now on the only opening frame
        self.write_base(following)
        for number in passed:  # after a kill in between, the newest base is the one that counts
            segment_path(self.folder, number).unlink(missing_ok=True)
            base_path(self.folder, number).unlink(missing_ok=True)
        fsync_folder(self.folder)
        for bases in (self.bases, *(output.bases for output in self.outputs)):
            for old in [key for key in bases if key <= following]:
                del bases[old]

    def write_base(self, number: int) -> None:
        """Write the states at the start of segment `number` beside it, unless that was done.

        Raises:
            OSError: it could not be made durable; no earlier segment may be deleted.
        """
        path = base_path(self.folder, number)
        if path.exists():
            return
        outputs = {output.name: output.bases.get(number) or output.base() for output in self.outputs}
        content = {"control": self.bases.get(number, {"rows": self.rows}), "outputs": outputs}
        write_atomic(path, json.dumps(content).encode(), mode=0o600)

    def snapshot(self) -> dict[str, Any]:
        """Plain data for `status`; called beside the stream's thread."""
        return {
            "stream": self.name,
            "run": self.opening.run,
            "position": list(self.position),
            "durable": list(self.durable),
            "parked": self.parked,
            "rows": self.rows,
            "damaged_bytes": self.damaged,
            "errors": self.errors,
        }

    @property
    def errors(self) -> list[str]:
        """Why its segments, or some of its outputs, cannot be read or written now."""
        return [error for error in (self.unread, *(output.error for output in self.outputs)) if error]
