"""One stream inside the agent.

It reads its segments, hands records to outputs and counts what its run has to know. `position` is how far
the stream was taken in; each output has a position of its own and lags while it is blocked (a rewrite, a
full disk). One path, reading the segment, serves live records, replay after a crash and catching up.

A stream belongs to one volume thread and is not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_agent.jobs.checkpoint_job import MARKS_FIELD
from rla_agent.model.process_ending import WriterEnd
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
from rla_agent.model.stream_states import WAITING, StreamEvent, StreamState, after
from rla_agent.outputs.formats import make_outputs
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output_file import Output
from rla_agent.pipeline.batch_reader import BatchReader
from rla_agent.pipeline.file_queue import FileQueue
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.pipeline.stream_rules import StreamRules
from rla_agent.pipeline.unrecorded_counts import Intake
from rla_agent.store.agent_db import JobRow, OutputRow
from rla_client.contract.filesystem.safe_paths import ItemGoneError
from rla_client.contract.job.checkpoint_job import CHECKPOINT_KIND
from rla_client.contract.spool.losses import LOST_MARK, Loss, read_losses
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import REPLICATE_NOW, pack
from rla_client.contract.spool.segments import end_of, segment_numbers, segment_path
from rla_client.contract.spool.writer_liveness import writer_alive

CONTROL = ""  # name of the row that holds the stream's own position
LOST = "lost"  # in its state
MOST_LOST = 1 << 60  # whatever a client says


class Stream:
    """State of one stream; its attributes are written by its own methods alone, named behind each."""

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
        opening, first_segment = read_opening(folder)
        # what it is
        #: That of its folder. Never written again.
        self.name = name
        #: In the spool. Never written again.
        self.folder = folder
        #: Number of the oldest segment when the stream was opened. Never written again.
        self.first_segment = first_segment
        #: Checked opening frame, adjusted to where the data root is now. `fence`.
        self.opening = opening if adjust is None else adjust(opening)
        #: Open outputs; empty once the item was removed. `handle`, `fence`, `renew_outputs`.
        self.outputs: list[Output] = make_outputs(self.opening, name)

        # how far it is taken in
        #: Everything before it was handed to the outputs; each has a position of its own, and may lag.
        #: `_take`, `_enter`, `restore`, `restore_base`, `begin_at`.
        self.position = Position(first_segment, 0)
        #: `position` that the last commit stored; (0, 0) before the first. `committed`, `restore`.
        self.durable = Position(0, 0)
        #: Segment number → the stream's own state at its start, for its base file; of segments that are not
        #: free yet. `_enter`, `forget_bases`, `restore`.
        self.bases: dict[int, dict[str, Any]] = {}
        #: End of the batch that is being taken in: a checkpoint's marks are of outputs that stand there.
        #: `_take`.
        self._after_batch = self.position
        #: Reads the segments; says why they cannot be read. Never written again.
        self._reader = BatchReader(folder)

        # how it stands
        #: See `rla_agent/model/stream_states.py`. `handle`.
        self.state = StreamState.TAKING_IN
        #: Why nothing is taken in, for people; empty when something is. `handle`.
        self.parked = ""
        #: The run went on elsewhere, so this is kept beside it (`fencing.fence`). `fence`.
        self.aside = False
        #: agent.db does not know the stream, but it was taken in before. `fence`, `restore_base`.
        self.replayed = False
        #: The writer's lock is free: no bytes will follow those that are there. `writer_left`.
        self.writer_gone = False
        #: How the writer's process ended, as far as that is known. `writer_left`.
        self.writer_end = WriterEnd()
        #: The writer's last word; None while it said none. `_control`, `restore`.
        self.closed: Close | None = None

        # what was taken in, since the stream began
        #: Rows. `_take`, `restore`, `restore_base`, `begin_at`.
        self.rows = 0
        #: Bytes of the spool that held no record. `_add_damage`, `restore`.
        self.damaged = 0
        #: Rows and other things that are lost, as the writer says. `_note_lost`, `restore`.
        self.lost = (0, 0)
        #: Small files that this agent gave up. `give_up_file`.
        self.given_up = 0

        # what waits
        #: There is something to commit: a position, or an output. `touch`, `committed`.
        self.dirty = True
        #: What the run's record does not have yet. `_take`, `_control`, `drain_new`, `restore`.
        self._new = Intake()
        #: Jobs that the next commit stores, unless files wait. `_control`, `handle`, `committed`, `restore`.
        self.new_jobs: list[JobRow] = []
        #: Small files that are to be written into the item. `_control`, `handle`, `restore`; `keep_new_files`
        #: empties it.
        self.new_files = FileQueue()
        #: The writer asked for replication at once, before the last `drain_new`. `drain_new`,
        #: `take_replicate_now`.
        self._replicate_now = False
        #: Metric rules over its rows. `handle`, `restore`, `_take`; alerting renews it.
        self.watch = StreamRules()

        # when it is looked at
        #: When the last message of its client came; monotonic seconds. `heard`.
        self.last_hint = 0.0
        #: Nothing happened at the last look, so the next may come late. `update_asleep`, `wake`.
        self.asleep = False
        #: Since when its folder is gone from the spool; monotonic seconds, None: it is there. `missing_for`,
        #: `seen`.
        self._missing_since: float | None = None

    def handle(self, event: StreamEvent, why: str = "") -> None:
        """Apply an event; the only writer of `state` and `parked`.

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
            self.new_files.clear()
            self.new_jobs = []
            self._reader.forget_unknown()  # else the next read would park it again
            self.writer_left()
        if self.state is StreamState.BROKEN:
            self.watch.end()
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

    def committed(self, outputs: Collection[Output]) -> None:
        """A commit holds the state of these outputs and, unless files wait, of the stream and its jobs."""
        for output in outputs:
            output.stored()
        if not self.new_files:  # else position and jobs are stored once the files are written
            self.durable = self.position
            self.new_jobs = []
        self.dirty = len(outputs) < len(self.outputs) or bool(self.new_files)

    def writer_left(self, end: WriterEnd | None = None) -> None:
        """The writer is gone, in this way: what is there now is all there will be."""
        self.writer_gone = True
        self.writer_end = end or self.writer_end
        self.touch()

    def heard(self, now: float) -> None:
        """A message of its client came; `now` is monotonic."""
        self.last_hint = now

    def wake(self) -> None:
        """Look at it at the next occasion."""
        self.asleep = False

    def missing_for(self, now: float) -> float:
        """Its folder is gone from the spool; for how many seconds by now (monotonic)."""
        if self._missing_since is None:
            self._missing_since = now
        return now - self._missing_since

    def seen(self) -> None:
        """Its folder is in the spool, as far as anybody knows."""
        self._missing_since = None

    def validate(self) -> None:
        """Check what always holds between two events.

        Raises:
            AssertionError: it does not.
        """
        assert bool(self.parked) == (self.state in WAITING), (self.state, self.parked)
        assert self.outputs or self.state in WAITING | {StreamState.ITEM_REMOVED}, self.state
        assert not (self.outputs and self.removed)
        assert not (self.aside and self.opening.primary)
        assert self.watch.rules is None or not self.broken
        assert not (self.new_jobs or self.new_files) or self.dirty or self.broken, self.state
        if not self.broken:
            assert self.durable <= self.position or not self.durable.number, (self.durable, self.position)
            assert max(self.bases, default=0) <= self.position.number, (self.bases, self.position)
            assert 0 <= self._new.rows <= self.rows, (self._new.rows, self.rows)
            assert 0 <= self._new.damaged_bytes <= self.damaged, (self._new.damaged_bytes, self.damaged)
            assert 0 <= self._new.lost_rows <= self.lost[0], (self._new.lost_rows, self.lost)
            assert (self._new.last is None) == (not self._new.rows), self._new.rows
            for output in self.outputs:
                output.validate()
                recovered = self.position if output.anchor is None else output.anchor.position
                # a rewrite or a base stores an output alone, so that it may be ahead after a kill
                furthest = max(self.position, recovered)
                assert output.position <= furthest, (output.name, output.position, furthest)

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
        """See `BatchReader.read`; a frame of a later release parks the stream."""
        found = self._reader.read(number, offset, writer_gone=self.writer_gone)
        self._note_unknown()
        return found

    def _note_unknown(self) -> None:
        if self._reader.unknown and not self.parked:
            self.handle(StreamEvent.REFUSED, self._reader.unknown)

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
            last = next(r.content for r in reversed(batch.records) if type(r.content) is Row)
            self._new.add_rows(self.rows - before, last)
        self.watch.take(batch)
        self._add_damage(batch.damaged)
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
                elif mark.name == REPLICATE_NOW:
                    self._new.ask_replication()
            case ItemFile() as file:
                self.new_files.add(file)
            case JobRequest() as job:
                fields = pack(self._with_marks(job))
                self.new_jobs.append(JobRow(self.name, Position(number, record.end), job.kind, fields))
            case OpeningFrame({"lost": int() as lost}) if lost:
                self._note_lost({"rows": lost, "others": 0})

    def _note_lost(self, told: object) -> None:
        """What the writer could not keep, since the stream began."""
        if not isinstance(told, dict):
            return
        counts = told.get("rows", 0), told.get("others", 0)
        if any(type(count) is not int or not 0 <= count <= MOST_LOST for count in counts):
            return
        before = self.lost
        rows, others = (max(count, known) for count, known in zip(counts, before, strict=True))
        self.lost = rows, others
        self._new.add_losses(rows - before[0], others - before[1], read_losses(told.get("losses")))

    def _add_damage(self, count: int) -> None:
        self.damaged += count
        self._new.add_damage(count)

    def give_up_file(self, path: str, why: str) -> None:
        """A small file of the item cannot be kept."""
        self.given_up += 1
        self._new.add_losses(0, 1, [Loss("file", path, why)])
        self.touch()

    def drain_new(self) -> Intake:
        """What was taken in since the last call, for the run's record; the stream has it no more."""
        drained, self._new = self._new, Intake()
        self._replicate_now |= drained.replicate_now
        return drained

    def take_replicate_now(self) -> bool:
        """Whether the writer asked for replication since the last call, as far as the run's record knows."""
        asked, self._replicate_now = self._replicate_now, False
        return asked

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
        self._add_damage(self.position.offset - (offset if number == self.position.number else 0))
        output.pass_over(self.position)
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

    def update_asleep(self, *, thorough: bool) -> bool:
        """Fall asleep if nothing happened since the last look, else wake; whether it sleeps.

        Args:
            thorough: also look for a next segment, and whether the writer still lives.
        """
        self.asleep = self._quiet(thorough=thorough)
        return self.asleep

    def _quiet(self, *, thorough: bool) -> bool:
        position = self.position
        if self.dirty or self.new_files or self.state is not StreamState.TAKING_IN:
            return False
        for output in self.outputs:
            if output.error or output.position != position:
                return False
        if not self._reader.ends_at(position):
            return False
        if not thorough:
            return True
        return not self._reader.has_next() and (self.writer_gone or bool(writer_alive(self.folder)))

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
        return self._reader.nothing_behind(self.position)

    @property
    def unread(self) -> str:
        """Why the last read of the spool failed; empty when it did not."""
        return self._reader.unread

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

    def control_row(self) -> OutputRow:
        """Durable form of the stream's own position."""
        closed = None if self.closed is None else list(self.closed)
        counts = {"rows": self.rows, "damaged": self.damaged, LOST: list(self.lost)}
        state: dict[str, Any] = {**counts, "closed": closed}
        if (watched := self.watch.state()) is not None:
            state["watch"] = watched
        if self.bases:
            state["bases"] = {str(number): base for number, base in self.bases.items()}
        return OutputRow(CONTROL, "", 0, 0, self.position, state)

    def restore(self, row: OutputRow) -> None:
        """Go back to what a commit stored of the stream itself; its outputs are restored one by one.

        What was taken in since then is dropped: it is read again.

        Args:
            row: what `control_row` gave.

        Raises:
            ValueError, TypeError, LookupError: it makes no sense.
        """
        state = row.state
        self.rows = int(state.get("rows", 0))
        self.damaged = int(state.get("damaged", 0))
        lost, others = state[LOST]
        self.lost = int(lost), int(others)
        self.watch.restore(state.get("watch"))
        self.bases = {int(number): base for number, base in state.get("bases", {}).items()}
        self.closed = None
        if (closed := state.get("closed")) is not None:
            last_state, reason, moment = closed
            self.closed = Close(str(last_state), str(reason), float(moment))
        self.position = self.durable = row.position
        self._new = Intake()
        self.new_jobs = []
        self.new_files.clear()

    def restore_base(self, number: int, control: dict[str, Any]) -> None:
        """Go to the start of segment `number`, as its base file tells: agent.db is lost."""
        self.replayed = True
        self.position = Position(number, 0)
        self.rows = int(control.get("rows", 0))

    def begin_at(self, position: Position, rows: int | None = None) -> None:
        """Begin at a position with all outputs, whatever was taken in before.

        Args:
            position: in the spool.
            rows: of an earlier stream that this one continues.
        """
        self.position = position
        for output in self.outputs:
            output.begin_at(position)
        if rows is not None:
            self.rows = rows

    def renew_outputs(self) -> None:
        """Have fresh outputs, to be restored: rewrites under way are of the former ones."""
        self.outputs = make_outputs(self.opening, self.name)
        self.touch()

    def fence(self, opening: Opening) -> None:
        """The run went on elsewhere: from now on the stream has outputs of its own, beside the run's."""
        self.opening = opening
        self.outputs = make_outputs(opening, self.name)
        self.aside = self.replayed = True

    def forget_bases(self, number: int) -> None:
        """Forget the states at the starts of segments up to this one, which are in base files."""
        self.bases = {other: base for other, base in self.bases.items() if other > number}
        for output in self.outputs:
            output.forget_bases(number)

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
