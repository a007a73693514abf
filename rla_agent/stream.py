"""One stream inside the agent: reads its segments, hands records to outputs, follows its run.

`position` is how far the stream was taken in; each output has a position of its own and lags
while it is blocked (a rewrite, a full disk). Bytes that arrive by message are used only when they
begin exactly at `position`; everything else is read from the segment. So one path serves live
records, replay after a crash and catching up.

A stream belongs to one volume thread and is not thread-safe.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla_agent.ingest import (
    Batch,
    Close,
    ItemFile,
    Job,
    Mark,
    Opening,
    Position,
    Record,
    Row,
    decode,
    parse,
)
from rla_agent.opening import StreamOpening, check_opening, open_folder, output_path
from rla_agent.output import ItemGoneError, OpenFiles, Output
from rla_agent.runs import RunEvent, RunRecord
from rla_agent.sinks.csv_table import CsvEncoder
from rla_agent.sinks.encoder import Encoder
from rla_agent.sinks.jsonl import JsonEncoder
from rla_agent.sinks.tensorboard import EventEncoder
from rla_agent.sinks.text import TextEncoder
from rla_agent.state import JobRow, OutputRow
from rla_client.errors import RemoteProtocolError, SpoolError, UnknownVersionError
from rla_client.protocol import (
    FRAME_HEADER_BYTES,
    MAX_FRAME_BYTES,
    Frame,
    FrameKind,
    TextTarget,
    find_frame,
    frame_at,
    pack,
)
from rla_client.spool import base_path, read_at, segment_numbers, segment_path, writer_alive
from rla_client.storage import write_atomic

READ_BYTES = 256 << 10  # some thousand rows: the unit of fairness between streams
CHECKPOINT_JOB = "checkpoint"
HANDED_OVER = "handed over"
REPLICATE_NOW = "replicate_now"  # a mark of sync_log_file
MARKS_FIELD = "marks"  # where resume cuts the outputs back to
CONTROL = ""  # name of the row that holds the stream's own position


class Stream:
    """State of one stream.

    Attributes:
        opening: checked opening frame.
        outputs: open outputs; empty once the item was removed.
        position: taken in up to here.
        durable: position that the last commit stored.
        run: record of the run; worker streams of a run share it through the volume.
        root_away: the data root is not there, or another one: the stream waits for it.
        parked: why nothing is taken in, empty when it is.
        writer_gone: the lock is free: no bytes will follow those that are there.
        closed: the writer's last word, if it said one.
    """

    def __init__(
        self, name: str, folder: Path, adjust: Callable[[StreamOpening], StreamOpening] | None = None
    ) -> None:
        """Read the opening frame of the oldest segment.

        Args:
            name: of the stream.
            folder: in the spool.
            adjust: gives the opening that counts here, where the data root lies elsewhere now.

        Raises:
            SpoolError: there is no readable opening frame.
            UnknownVersionError: the segment is of a later release.
        """
        self.name = name
        self.folder = folder
        opening, self.first_segment = read_opening(folder)
        self.opening = opening if adjust is None else adjust(opening)
        self.outputs: list[Output] = make_outputs(self.opening, name)
        self.position = Position(self.first_segment, 0)
        self.durable = Position(0, 0)
        self.parked = ""
        self.root_away = False
        self.writer_gone = False
        self.closed: Close | None = None
        self.removed = False
        self.dirty = True
        self.damaged = 0
        self.rows = 0
        self.last: Row | None = None
        self.new_rows = 0
        self.new_jobs: list[JobRow] = []
        self.new_files: list[ItemFile] = []
        self.marks: list[Mark] = []
        self.replicate_now = False  # asked for since the last commit
        self.bases: dict[int, dict[str, Any]] = {}
        self.last_bytes = 0.0
        self.asleep = False
        self._segment = 0, "", ""  # number and path of the current one, path of the next
        self._after_batch = self.position

    # -- reading --------------------------------------------------------------------------------

    def offer(self, number: int, offset: int, body: bytes, files: OpenFiles) -> None:
        """Take bytes from a message if they begin where the stream stands."""
        if self.parked or not body or (number, offset) != self.position:
            return
        self._dispatch(self._parse(body, number, offset, final=False), files)

    def read_more(self, files: OpenFiles) -> bool:
        """Read one piece of the segments; True when there may be more to read at once."""
        if self.parked:
            return False
        number, offset = self.position
        batch, more = self._read(number, offset)
        if batch is not None:
            self._dispatch(batch, files)
        elif more:
            self._enter(number + 1, self.outputs)
            self.position = Position(number + 1, 0)
        return more and not self.parked

    def _read(self, number: int, offset: int) -> tuple[Batch | None, bool]:
        """A batch at a position, or None at the end of the segment; and whether more may follow."""
        sealed = segment_path(self.folder, number + 1).exists()
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
            return None, sealed
        if batch.end == batch.start:
            return None, False
        return batch, True

    def _parse(self, data: bytes, number: int, offset: int, *, final: bool) -> Batch:
        try:
            return parse(data, number, offset, final=final)
        except UnknownVersionError as error:
            self.parked = f"{error}; it is kept and taken in by a newer agent"
            return Batch(number, offset, offset, [])

    def _enter(self, number: int, outputs: list[Output]) -> None:
        """All outputs that stand at the end of the segment before go to the start of `number`."""
        for output in outputs:
            if not output.blocked and output.position == self.position:
                output.position = Position(number, 0)
                output.note_segment(number)
        self.bases[number] = {"rows": self.rows}

    def _dispatch(self, batch: Batch, files: OpenFiles) -> None:
        for piece in cut_at_checkpoints(batch):
            self._take(piece, files)

    def _take(self, batch: Batch, files: OpenFiles) -> None:
        start = Position(batch.number, batch.start)
        self._after_batch = Position(batch.number, batch.end)
        for output in self.outputs:
            if output.position == start and not output.blocked:
                self._give(output, batch, files)
        for record in batch.records:
            self._control(record, batch.number)
        self.damaged += batch.damaged
        self.position = Position(batch.number, batch.end)
        self.dirty = True

    def _give(self, output: Output, batch: Batch, files: OpenFiles) -> None:
        try:
            output.accept(batch, files)
        except ItemGoneError:
            self.removed = True

    def _control(self, record: Record, number: int) -> None:
        content = record.content
        kind = type(content)
        if kind is Row:
            self.last = content  # type: ignore[assignment]
            self.new_rows += 1
            self.rows += 1
        elif kind is Close:
            self.closed = content  # type: ignore[assignment]
        elif kind is Mark:
            self.marks.append(content)  # type: ignore[arg-type]
        elif kind is ItemFile:
            self.new_files.append(content)  # type: ignore[arg-type]
        elif kind is Job:
            fields = pack(self._with_marks(content))  # type: ignore[arg-type]
            self.new_jobs.append(
                JobRow(self.name, Position(number, record.end), content.kind, fields)  # type: ignore[union-attr]
            )
        elif kind is Opening and isinstance(lost := content.fields.get("lost"), int) and lost:  # type: ignore[union-attr]
            self.marks.append(Mark("lost", {"records": lost}))

    def _with_marks(self, job: Job) -> dict[str, Any]:
        """A job's fields; a checkpoint's also say how long every output is at this frame."""
        if job.kind != CHECKPOINT_JOB:
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
        while not output.blocked and output.position < self.position and not self.removed:
            number, offset = output.position
            batch, more = self._read(number, offset)
            if batch is None:
                if not more:
                    return
                output.position = Position(number + 1, 0)
                output.note_segment(number + 1)
                continue
            if number == self.position.number and batch.end > self.position.offset:
                batch = clipped(batch, self.position.offset)
            self._give(output, batch, files)
            if time.monotonic() > until:
                return

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
        if self.dirty or self.new_files or self.parked or self.removed:
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
        return not os.path.exists(self._segment[2]) and (self.writer_gone or writer_alive(self.folder))

    @property
    def lagging(self) -> list[Output]:
        """Outputs that have not taken everything that the stream has."""
        return [output for output in self.outputs if output.position < self.position]

    @property
    def at_end(self) -> bool:
        """Whether all bytes that are there were taken in by all outputs."""
        if self.parked or self.lagging:
            return False
        number, offset = self.position
        if segment_path(self.folder, number + 1).exists():
            return False
        with suppress(OSError):
            return segment_path(self.folder, number).stat().st_size <= offset
        return True

    def end(self) -> Position:
        """Where the stream ends now: what is there at a stop and is taken in before it."""
        with suppress(OSError, ValueError):
            number = max(segment_numbers(self.folder))
            return Position(number, segment_path(self.folder, number).stat().st_size)
        return Position(0, 0)

    @property
    def all_durable(self) -> Position:
        """Everything before this is durable in all outputs."""
        return min([self.durable, *(output.durable for output in self.outputs)])

    # -- durability -----------------------------------------------------------------------------

    def control_row(self) -> OutputRow:
        """Durable form of the stream's own position."""
        closed = None if self.closed is None else list(self.closed)
        state: dict[str, Any] = {"rows": self.rows, "closed": closed, "damaged": self.damaged}
        if self.bases:
            state["bases"] = {str(number): base for number, base in self.bases.items()}
        return OutputRow(CONTROL, "", 0, 0, self.position, state)

    def freeable(self) -> list[int]:
        """Segments that every durable position has passed; the next one's base must be written first."""
        low = self.all_durable.number
        return [number for number in segment_numbers(self.folder) if number < low]

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

    def forget_bases(self, number: int) -> None:
        """Drop remembered states of segments up to `number`, whose base file is durable."""
        for bases in (self.bases, *(output.bases for output in self.outputs)):
            for old in [key for key in bases if key <= number]:
                del bases[old]

    def new_run_record(self) -> RunRecord:
        """The record of a run that nobody knows yet."""
        opening = self.opening
        return RunRecord(
            run=opening.run,
            root=opening.root,
            table=opening.table,
            index=opening.index,
            log_folder=opening.log_folder,
            host=opening.host,
            user=opening.user,
            pid=opening.pid,
            opened=opening.opened,
            client=opening.client,
            config=opening.config,
            launch=str(opening.raw.get("launch", "")),
            extra={"run_key": str(opening.raw.get("run_key", ""))[:200]},
            streams=(self.name,),
        )

    def follow(  # noqa: PLR0911 - one return for each way a run can stand
        self, record: RunRecord, now: float, stall_s: float
    ) -> RunRecord:
        """The run's record after what was taken in since the last call."""
        record = self._counted(record).with_stream(self.name)
        if self.removed:
            return record.after(RunEvent.ITEM_GONE, now, f"{self.opening.log_folder} was removed")
        if not self.opening.primary:
            return record
        if self.closed is not None:
            if self.closed.state == HANDED_OVER:
                return record  # another stream of the same run goes on
            event = RunEvent.CLOSED_FAILED if self.closed.state == "failed" else RunEvent.CLOSED_FINISHED
            return record.after(event, self.closed.timestamp, self.closed.reason)
        if self.writer_gone:
            if self.parked or self.position < self.end():
                return record  # its last word may still come
            return record.after(RunEvent.WRITER_GONE, now, "the process ended without closing the run")
        quiet_since = max(record.last_row or 0.0, record.opened)
        if now - quiet_since > stall_s:
            return record.after(RunEvent.SILENT, now, f"no row for {stall_s:g} s")
        return record

    def _counted(self, record: RunRecord) -> RunRecord:
        """The record with the rows and marks taken in since the last call."""
        if self.new_rows and self.last is not None:
            if self.opening.primary:
                record = record.rows_seen(self.new_rows, self.last.step, self.last.timestamp)
            else:
                record = replace(record, rows=record.rows + self.new_rows)
            self.new_rows = 0
        for mark in self.marks:
            self.replicate_now |= mark.name == REPLICATE_NOW
            lost = mark.data.get("records") if mark.name == "lost" and isinstance(mark.data, dict) else None
            if isinstance(lost, int):
                record = replace(record, lost=max(record.lost, lost))
        self.marks.clear()
        return record


def cut_at_checkpoints(batch: Batch) -> list[Batch]:
    """Pieces of a batch that each end at a checkpoint's frame or at the batch's end."""
    ends = [
        index + 1
        for index, record in enumerate(batch.records)
        if type(record.content) is Job and record.content.kind == CHECKPOINT_JOB
    ]
    if not ends or ends == [len(batch.records)]:
        return [batch]
    pieces: list[Batch] = []
    begin, start = 0, batch.start
    for stop in [*ends, len(batch.records)]:
        records = batch.records[begin:stop]
        end = batch.end if stop == len(batch.records) else records[-1].end
        if records or end > start:
            pieces.append(Batch(batch.number, start, end, records))
        begin, start = stop, end
    pieces[-1].damaged = batch.damaged
    return pieces


def clipped(batch: Batch, end: int) -> Batch:
    """The part of a batch up to an offset that ends a record."""
    records = [record for record in batch.records if record.end <= end]
    return Batch(batch.number, batch.start, end, records, 0)


def read_opening(folder: Path) -> tuple[StreamOpening, int]:
    """The opening frame of the oldest segment that has one, and the oldest segment's number.

    Raises:
        SpoolError: no segment has a readable opening frame.
        UnknownVersionError: it is of a later release.
    """
    numbers = segment_numbers(folder)
    for number in numbers:
        for size in (READ_BYTES, MAX_FRAME_BYTES + FRAME_HEADER_BYTES):
            data = read_at(segment_path(folder, number), 0, size)
            for frame in valid_frames(data):
                content = decode(frame.kind, frame.payload) if frame.kind == FrameKind.OPEN else None
                if isinstance(content, Opening):
                    with suppress(RemoteProtocolError):
                        return check_opening(content.fields), numbers[0]
            if len(data) < size:
                break
    message = f"{folder} has no readable opening frame"
    raise SpoolError(message)


def valid_frames(data: bytes) -> Iterator[Frame]:
    """Frames of a segment, those after damage too.

    Raises:
        UnknownVersionError: one is of a later release.
    """
    at = 0
    while at < len(data):
        found = frame_at(data, at)
        if isinstance(found, Frame):
            yield found
            at = found.end
        else:
            at = find_frame(data, at + 1)


def make_outputs(opening: StreamOpening, stream: str) -> list[Output]:
    """The outputs that a stream asks for; warn and backup texts always exist."""
    log = opening.folders["log"]
    makers: dict[str, tuple[str, str, Any]] = {}
    if "csv" in opening.sinks:
        makers["csv"] = (log, output_path(opening, "csv", "progress.csv"), CsvEncoder)
    if "json" in opening.sinks:
        makers["json"] = (log, output_path(opening, "json", "progress.json"), JsonEncoder)
    if "log" in opening.sinks:
        makers["log"] = (log, output_path(opening, "log", "log.txt"), _text(TextTarget.LOG, tables=True))
    if "tensorboard" in opening.sinks:
        folder = os.path.normpath(os.path.join(log, "tb", opening.label or "events"))
        opened = opening.opened
        makers["tensorboard"] = (folder, event_file_name(opening, stream), lambda: EventEncoder(opened))
    makers["warn"] = (log, output_path(opening, "warn", "warn.txt"), _text(TextTarget.WARN, tables=False))
    makers["backup"] = (
        log,
        output_path(opening, "backup", "backup.txt"),
        _text(TextTarget.BACKUP, tables=False),
    )
    return [
        Output(name, opening.root, folder, file_name, maker, maker())
        for name, (folder, file_name, maker) in makers.items()
    ]


def _text(target: int, *, tables: bool) -> Any:  # noqa: ANN401 - a factory
    def make() -> Encoder:
        return TextEncoder(target, tables=tables)

    return make


def event_file_name(opening: StreamOpening, stream: str) -> str:
    """Unique name of a stream's event file, the same after any restart."""
    host = "".join(c if c.isalnum() or c in "-." else "_" for c in opening.host)[:64]
    return f"events.out.tfevents.{int(opening.opened)}.{host}.{opening.pid}.{stream[-8:]}"


def keep_item_file(opening: StreamOpening, file: ItemFile) -> None:
    """Make a small file of the item durable; what is there already and equal is only synced.

    Raises:
        OSError: it could not be written.
        UnsafeNameError: the name leaves the item.
    """
    from rla_client.layout import check_relative  # noqa: PLC0415

    *below, name = check_relative(file.path, what="item file")
    folder = open_folder(opening.root, "/".join([opening.folders[file.kind], *below]), create=bool(below))
    try:
        path = f"/proc/self/fd/{folder}/{name}"
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.read(descriptor, len(file.content) + 1) == file.content:
                    os.fsync(descriptor)
                    os.fsync(folder)
                    return
            finally:
                os.close(descriptor)
        write_atomic(path, file.content)
    finally:
        os.close(folder)
