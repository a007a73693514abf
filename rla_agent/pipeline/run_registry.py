"""Registry of the runs of one volume's streams.

A record sums up a run from its records, its lock and its item; run.json in its log folder is its public form.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Protocol

from rla_agent.model.run_record import RunRecord
from rla_agent.model.run_states import RunEvent
from rla_agent.pipeline.fencing import CONTINUED_ELSEWHERE
from rla_agent.pipeline.run_file import EPOCH, write_run_file
from rla_agent.pipeline.run_liveness import follow
from rla_agent.pipeline.stream import Stream
from rla_agent.store.agent_db import AgentDatabase, CommitChanges
from rla_client.contract.spool.losses import Loss
from rla_client.contract.spool.opening import Opening

RUN_FILE_INTERVAL_S = 60.0


class RunObserver(Protocol):
    """Metric rules: they see each stream that opens, and their firings go into its commits."""

    def run_opened(self, stream: Stream) -> None:
        """Apply the rules to a stream that was opened."""

    def add_changes(self, streams: Iterable[Stream], changes: CommitChanges) -> list[Stream]:
        """Put firings into a commit; returns the streams to clear once it has succeeded."""


class RunRegistry:
    """Runs by id; streams of one run share its record."""

    def __init__(self, alerting: RunObserver | None = None) -> None:
        #: Metric rules; None: there are none. Never written again.
        self._alerting = alerting
        #: Run id → its record, of runs that live or have a stream. `_change`, `forget_ended`.
        self.records: dict[str, RunRecord] = {}
        #: Runs whose records changed since agent.db has them, in order. `_change`, `stored`, `forget_ended`.
        self._unstored: dict[str, None] = {}
        #: Streams whose firings are in the commit under way. `follow`.
        self._fired: list[Stream] = []
        #: Run id → opening of a stream of it that was to be committed, which knows the data root. `follow`,
        #: `forget_ended`.
        self._openings: dict[str, Opening] = {}
        #: Run id → the record that its run.json shows, and when that was written (Unix seconds).
        #: `write_files`, `forget_ended`.
        self._written: dict[str, tuple[RunRecord, float]] = {}
        #: Run id → why its run.json is not written, and is tried again. `write_files`, `forget_ended`.
        self.unwritten: dict[str, str] = {}
        #: Runs whose run.json had no time yet, in order. `write_files`, `forget_ended`.
        self._due: dict[str, None] = {}

    def opened(self, stream: Stream, database: AgentDatabase, now: float) -> None:
        """Register the run of an opened stream; one that has ended is reopened."""
        opening = stream.opening
        known = self.records.get(opening.run)
        if known is None:
            saved = database.run(opening.run)
            known = RunRecord.from_plain(saved) if saved else new_run_record(stream)
        begins = opening.primary or opening.ends_part
        if begins and not known.live and stream.name not in known.streams:
            known = replace(known.gone_on(opening.opened, now), pid=opening.pid, rows=stream.rows)
        if opening.primary:
            known = known.as_main(opening.epoch)
        elif opening.part and not stream.aside:
            known = known.as_part(opening.part, opening.epoch)
        elif stream.aside and known.extra.get(EPOCH, 0) <= opening.epoch + 1:  # none that is newer is here
            known = replace(known, extra={**known.extra, EPOCH: opening.epoch})
            known = known.after(RunEvent.WRITER_GONE, now, CONTINUED_ELSEWHERE)
        self._change(known)
        if self._alerting is not None:
            self._alerting.run_opened(stream)

    def lose(self, run: str, losses: Iterable[Loss]) -> None:
        """Note that jobs of a run were dropped."""
        gone = list(losses)
        self._change(self.records[run].losing(0, len(gone), gone))

    def _change(self, record: RunRecord) -> None:
        """Replace a run's record, in the next commit too."""
        self.records[record.run] = record
        self._unstored[record.run] = None

    def follow(
        self,
        streams: Collection[Stream],
        dirty: Iterable[Stream],
        now: float,
        stall_s: float,
        changes: CommitChanges,
    ) -> None:
        """Bring the records up to what the streams took in; `dirty` ones among them are to be committed.

        What changed goes into `changes` at each call until `stored` says that a commit holds it.
        """
        self._openings.update((stream.opening.run, stream.opening) for stream in dirty)
        for stream in streams:
            before = self.records[stream.opening.run]
            after = follow(stream, before, now, stall_s)
            if after is not before:
                self._change(after)
        for run in self._unstored:
            record = self.records[run]
            changes.runs.append((run, now, record.live, record.to_plain(now)))
        if self._alerting is not None:
            # those whose position is stored now: the others are read once more after a crash
            self._fired = self._alerting.add_changes([one for one in streams if not one.new_files], changes)

    def stored(self) -> list[RunRecord]:
        """Note that agent.db has all records; those that it got now."""
        changed = [self.records[run] for run in self._unstored]
        self._unstored.clear()
        for stream in self._fired:
            stream.watch.firings_stored()
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
                same = former is not None and _written_at_once(former) == _written_at_once(record)
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
        """Whether run.json of a run is up to date."""
        return run not in self.unwritten and run not in self._due

    def validate(self, streams: Iterable[Stream]) -> None:
        """Check what always holds between two commits.

        Args:
            streams: those that were opened and did not end.

        Raises:
            AssertionError: it does not.
        """
        assert all(run == record.run for run, record in self.records.items()), self.records
        for runs in (self._unstored, self._openings, self._written, self.unwritten, self._due):
            assert runs.keys() <= self.records.keys(), (runs.keys(), self.records.keys())
        for stream in streams:
            assert stream.opening.run in self.records, stream.name

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


def _written_at_once(record: RunRecord) -> tuple[object, ...]:
    """The fields of a live run whose change is written to run.json at once."""
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
