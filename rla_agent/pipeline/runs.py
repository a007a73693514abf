"""The runs whose streams one volume takes in: their records, their run.json, and whose the files are.

A record says what records, lock and item tell of a run; run.json in its log folder is what others see of it.

A run may go on elsewhere; what is left of its earlier stream here must not touch its files then. A batch job
is killed on one machine and its run is resumed on another, over a shared data root. The
first machine's spool still holds the earlier stream, and its agent would cut the run's files back to
what they were there. So run.json says how new the newest stream of the run is (`epoch`, the moment
when it was opened). A stream that is older is taken in beside the run, into `abandoned-<stream>/` below
each of its folders: nothing returned is lost, and the files belong to the agent of the newer one.

On one machine this never happens: a later stream waits until the earlier one is taken in.

A spool may also be older than the files: a backup of a home, or of a machine, is restored, and the data root
lies elsewhere. So run.json says how far each stream was taken in (`taken`). A stream that ends before that
(here, and by agent.db) would cut the files back to what they were then; it is taken in beside the run, too.

So is a copy whose original is in use (a state folder was copied to try something): it has a writer or an
agent, or holds more. A mark in the stream's folder keeps that, whatever becomes of original and run.json.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from rla_agent.model.ingest import Position
from rla_agent.model.states import RunEvent, RunRecord, RunState, closed_as
from rla_agent.outputs.data_roots import same_root, why_parked
from rla_agent.pipeline.stream import Stream
from rla_agent.store.database import AgentDatabase, Changes
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS, is_there, open_folder
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.process.locks import try_lock
from rla_client.contract.run_file import MAX_RUN_FILE_BYTES, RUN_FILE
from rla_client.contract.spool.losses import Loss
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import HANDED_OVER, REPLICATE_NOW
from rla_client.contract.spool.segments import end_of
from rla_client.contract.spool.writer_liveness import writer_alive

RUN_FILE_INTERVAL_S = 60.0
EPOCH = "epoch"  # field of run.json
TAKEN = "taken"  # likewise
COPY_NAME = "copy"  # the mark in a stream's folder; both reasons below leave it
_GONE_ON = "the run went on elsewhere"
_OLDER = "its files hold more than this spool, which is an older copy"
_COPY = "its stream here is a copy of one that is in use"
_log = logging.getLogger("rla_agent.pipeline.runs")


class RunObserver(Protocol):
    """Metric rules: they see each stream that opens, and their firings go into its commits."""

    def run_opened(self, stream: Stream) -> None:
        """A stream is taken in: its rules hold from here on."""

    def add_changes(self, streams: Iterable[Stream], changes: Changes) -> list[Stream]:
        """Put firings into a commit; returns the streams to clear once it has succeeded."""


class RunRegistry:
    """Runs by id; streams of one run share its record."""

    def __init__(self, alerting: RunObserver | None = None) -> None:
        self.records: dict[str, RunRecord] = {}
        self._unstored: dict[str, None] = {}  # changed since agent.db has them, in order
        self._alerting = alerting
        self._fired: list[Stream] = []  # whose firings are in the commit under way
        self._openings: dict[str, Opening] = {}  # by run: of a stream that was to be committed
        self._written: dict[str, tuple[RunRecord, float]] = {}  # run.json, and when
        self.unwritten: dict[str, str] = {}  # run → why its run.json is not written, and is tried again
        self._due: dict[str, None] = {}  # runs whose run.json had no time yet, in order

    def opened(self, stream: Stream, database: AgentDatabase, now: float) -> None:
        """A stream is taken in: its run is known here, in agent.db, or new; a run that ended is reopened."""
        opening = stream.opening
        known = self.records.get(opening.run)
        if known is None:
            saved = database.run(opening.run)
            known = RunRecord.from_plain(saved) if saved else new_run_record(stream)
        if opening.primary and not known.live and stream.name not in known.streams:
            known = replace(known.gone_on(opening.opened, now), pid=opening.pid, rows=stream.rows)
        if opening.primary:
            known = replace(known, extra={**known.extra, EPOCH: opening.epoch})
        elif stream.aside and known.extra.get(EPOCH, 0) <= opening.epoch + 1:  # none that is newer is here
            known = replace(known, extra={**known.extra, EPOCH: opening.epoch})
            known = known.after(RunEvent.WRITER_GONE, now, _GONE_ON)
        self.records[opening.run] = known
        self._unstored[opening.run] = None
        if self._alerting is not None:
            self._alerting.run_opened(stream)

    def lose(self, run: str, losses: Iterable[Loss]) -> None:
        """Jobs of a run were dropped."""
        gone = list(losses)
        self.records[run] = self.records[run].losing(0, len(gone), gone)
        self._unstored[run] = None

    def follow(
        self,
        streams: Collection[Stream],
        dirty: Iterable[Stream],
        now: float,
        stall_s: float,
        changes: Changes,
    ) -> None:
        """Bring the records up to what the streams took in; `dirty` ones among them are to be committed.

        What changed goes into `changes` at each call until `stored` says that a commit holds it.
        """
        self._openings.update((stream.opening.run, stream.opening) for stream in dirty)
        for stream in streams:
            before = self.records[stream.opening.run]
            after = follow(stream, before, now, stall_s)
            if after is not before:
                self.records[after.run] = after
                self._unstored[after.run] = None
        for run in self._unstored:
            record = self.records[run]
            changes.runs.append((run, now, record.live, record.to_plain(now)))
        if self._alerting is not None:
            # those whose position is stored now: what waits behind a file is read once more after a crash
            self._fired = self._alerting.add_changes([one for one in streams if not one.new_files], changes)

    def stored(self) -> list[RunRecord]:
        """Note that agent.db has all records; those that it got now."""
        changed = [self.records[run] for run in self._unstored]
        self._unstored.clear()
        for stream in self._fired:
            if stream.watch is not None:
                stream.watch.firings.clear()
        return changed

    def write_files(self, records: Iterable[RunRecord], now: float, until: float = math.inf) -> bool:
        """Write run.json of runs that changed state or began to lose, or are live and were written long ago.

        What a full disk refused is in `unwritten` until a later call with that run succeeds, and so is what
        had no data root to go to. At `until` (monotonic) the rest is left to a later call, but one is
        tried.

        Returns:
            Whether some are left.
        """
        wanted = {record.run: record for record in records}
        late = {run: self.records[run] for run in self._due if run in self.records}
        self._due.clear()
        tried = False
        for record in (late | wanted).values():
            former, written = self._written.get(record.run, (None, 0.0))
            if record.live:
                same = former is not None and _told(former) == _told(record)
                if same and 0 <= now - written < RUN_FILE_INTERVAL_S:
                    continue
            elif record == former:
                continue
            if tried and time.monotonic() > until:
                self._due[record.run] = None
                continue
            tried = True
            why = write_run_file(record, now, self._openings.get(record.run))
            if why:
                self.unwritten[record.run] = why
            else:
                self._written[record.run] = (record, now)
                self.unwritten.pop(record.run, None)
        return bool(self._due)

    def is_written(self, run: str) -> bool:
        """Whether run.json of a run says all that there is to say."""
        return run not in self.unwritten and run not in self._due

    def forget_ended(self, streams: Collection[Stream]) -> None:
        """Drop runs that ended and have no stream left."""
        writing = {stream.opening.run for stream in streams}
        gone = [run for run, record in self.records.items() if not record.live and run not in writing]
        for run in gone:
            del self.records[run]
            self._unstored.pop(run, None)
            self._written.pop(run, None)
            self._openings.pop(run, None)
            self._due.pop(run, None)
            self.unwritten.pop(run, None)


def _told(record: RunRecord) -> tuple[object, ...]:
    """What run.json of a live run is written for at once."""
    return record.state, record.reason, bool(record.lost), record.lost_others


def new_run_record(stream: Stream) -> RunRecord:
    """The record of a run that nobody knows yet."""
    opening = stream.opening
    earlier = opening.earlier if opening.continues is None else opening.continues.earlier
    return RunRecord(
        run=opening.run,
        root=opening.root,
        table=opening.table,
        index=opening.index,
        log_folder=opening.log_folder,
        host=opening.host,
        user=opening.user,
        pid=opening.pid,
        opened=opening.opened if earlier.began is None else earlier.began,
        reopened=None if earlier.began is None else opening.opened,
        ran_before_s=earlier.ran_s,
        client=opening.client,
        config=opening.config,
        launch=opening.launch,
        parent=None if opening.parent is None else dict(opening.parent),
        extra={
            "run_key": opening.run_key,
            "replicate": opening.replicate and not opening.offline and not opening.master,
        },
        streams=(stream.name,),
    )


def follow(  # noqa: PLR0911 - one return for each way a run can stand
    stream: Stream, record: RunRecord, now: float, stall_s: float
) -> RunRecord:
    """The run's record after what was taken in since the last call."""
    record = _counted(stream, record).with_stream(stream.name)
    if stream.removed:
        return record.after(RunEvent.ITEM_GONE, now, f"{stream.opening.log_folder} was removed")
    if not stream.opening.primary:
        return record
    if stream.closed is not None:
        if stream.closed.state == HANDED_OVER:
            return record  # another stream of the same run continues
        return record.after(closed_as(stream.closed.state), stream.closed.timestamp, stream.closed.reason)
    if stream.writer_gone:
        if stream.parked or not stream.read_through:
            return record  # its last word may still come
        return record.after(RunEvent.WRITER_GONE, now, "the process ended without closing the run")
    quiet_since = max(record.last_row or 0.0, record.reopened or record.opened)
    own_s = stream.opening.stall_s
    stall_s = stall_s if own_s is None else own_s
    if now - quiet_since > stall_s:
        return record.after(RunEvent.SILENT, now, f"no row for {stall_s:g} s")
    return record


def _counted(stream: Stream, record: RunRecord) -> RunRecord:
    """The record with the rows and marks taken in since the last call.

    Not while a file, a data root that is away or a fault of the agent holds the stream up: its position is
    not stored then, and a restart counts again.
    """
    if stream.new_files or stream.root_away or stream.broken or stream.parked:
        return record
    record = record.taken_in(stream.name, (stream.position.number, stream.position.offset))
    if stream.new_rows and stream.last is not None:
        if stream.opening.primary:
            record = record.rows_seen(stream.new_rows, stream.last.step, stream.last.timestamp)
        else:
            record = replace(record, rows=record.rows + stream.new_rows)
        stream.new_rows = 0
    if stream.new_damaged:
        _log.warning("%d bytes of stream %s are damaged and held no record", stream.new_damaged, stream.name)
        record = replace(record, damaged=record.damaged + stream.new_damaged)
        stream.new_damaged = 0
    if any(stream.new_lost) or stream.new_losses:
        record = record.losing(*stream.new_lost, stream.new_losses)
        stream.new_lost = (0, 0)
        stream.new_losses.clear()
    for mark in stream.marks:
        stream.replicate_now |= mark.name == REPLICATE_NOW
    stream.marks.clear()
    return record


def write_run_file(record: RunRecord, now: float, opening: Opening | None = None) -> str:
    """Write run.json into the run's log folder, unless that was removed.

    Args:
        record: of the run.
        now: Unix seconds.
        opening: of a stream of the run, which knows its data root from another one of that name.

    Returns:
        Why it has to be tried again: the disk refused it, or the data root is away; else empty.
    """
    content = json.dumps(record.to_plain(now), indent=1).encode()
    below = os.path.relpath(record.log_folder, record.root)
    try:
        folder = open_folder(record.root, below)
    except OSError:
        if record.state is RunState.REMOVED:
            return ""
        there = os.path.isdir(record.root) if opening is None else same_root(opening)
        return "" if there else f"run.json is not written: {why_parked(record.root)}"
    try:
        with closing_fd(folder):
            found, epoch = read_run_file(folder), int(record.extra.get(EPOCH, 0))
            behind = found.get(EPOCH) == epoch and further_than(found, record.run, record.taken)
            if not behind and not newer_than(found, record.run, epoch):  # else it is another agent's by now
                write_atomic(f"/proc/self/fd/{folder}/{RUN_FILE}", content, mode=file_mode(folder))
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            return f"run.json is not written, tried again: {error.strerror}: {record.log_folder}"
        _log.warning("run.json not written: %s: %s", record.log_folder, error)
    return ""


def read_run_file(folder: int) -> dict[str, Any]:
    """run.json in an open folder; empty without a readable one."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(read_small(RUN_FILE, MAX_RUN_FILE_BYTES, dir_fd=folder))
        if isinstance(content, dict):
            return content
    return {}


def newer_than(content: dict[str, Any], run: str, epoch: int) -> bool:
    """Whether a run.json is that of a later stream of the same run."""
    found = content.get(EPOCH)
    return content.get("run_id") == run and isinstance(found, int) and found > epoch


def further_than(content: dict[str, Any], run: str, reached: Mapping[str, tuple[int, int]]) -> bool:
    """Whether a run.json is of a moment when more of the same run's streams was taken in.

    Args:
        content: of run.json.
        run: id.
        reached: stream → how far it is known here: a segment and an offset in it.
    """
    found = content.get(TAKEN)
    if content.get("run_id") != run or not isinstance(found, dict):
        return False
    for stream, position in reached.items():
        match found.get(stream):
            case [int() as number, int() as offset] if (number, offset) > position:
                return True
    return False


def step_aside(stream: Stream, stored: Position) -> bool:
    """Whether a stream's run went on elsewhere; it then gets folders and outputs of its own.

    Args:
        stream: with all that is there of it.
        stored: how far agent.db says that it was taken in.

    Raises:
        OSError: the item cannot be read, or the folders not be made.
    """
    opening = stream.opening
    if not stream.aside:
        why = _why_aside(stream, stored)
        if not why:
            return False
        below = f"abandoned-{stream.name[-8:]}"
        folders = {kind: os.path.normpath(f"{path}/{below}") for kind, path in opening.folders.items()}
        # one less than its own: whatever it says of the run, it is not the last word
        stream.step_aside(opening._replace(folders=folders, primary=False, epoch=opening.epoch - 1))
        _log.warning("%s: %s; what is left here goes to %s/", opening.log_folder, why, below)
    for path in stream.opening.folders.values():
        os.close(open_folder(opening.root, path, create=True))
    return True


def _why_aside(stream: Stream, stored: Position) -> str:
    """Why a stream must leave its run's files alone; empty when they are its own."""
    opening = stream.opening
    with closing_fd(open_folder(opening.root, opening.folders["log"])) as folder:
        content = read_run_file(folder)
    if newer_than(content, opening.run, opening.epoch):
        return _GONE_ON
    mark = stream.folder / COPY_NAME
    if is_there(mark):
        return _COPY
    end = Position(*end_of(stream.folder))
    if further_than(content, opening.run, {stream.name: max(stored, stream.durable, end)}):
        why = _OLDER
    elif _is_copy(stream, end):
        why = _COPY
    else:
        return ""
    write_atomic(mark, b"", mode=0o600)
    return why


def _is_copy(stream: Stream, end: Position) -> bool:
    """Whether a stream's folder was copied from one that is in use.

    Raises:
        OSError: that cannot be found out.
    """
    if not stream.opening.spool:  # of an earlier release
        return False
    original = Path(stream.opening.spool, stream.name)
    if os.path.realpath(stream.folder) == os.path.realpath(original):
        return False
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        return not os.path.samefile(original, stream.folder) and _in_use(original, end)
    return False


def _in_use(folder: Path, end: Position) -> bool:
    """Whether a stream has a writer, an agent that serves it, or more than up to `end`."""
    if writer_alive(folder) or end_of(folder) > end:
        return True
    with closing_fd(os.open(folder.parent, FOLDER_FLAGS)) as spool:
        try:
            return not try_lock(spool, shared=True)
        except OSError:  # no such locks there: that says nothing
            return False
