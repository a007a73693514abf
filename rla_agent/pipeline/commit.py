"""Group commit: files first, then one transaction, then whatever may be forgotten.

For all dirty streams of a volume: sync the outputs that changed, store every position in one
SQLite transaction, and only then let segments go, each after the next one's opening frame and its
base lie durably beside it. A file whose sync failed is never synced again through the same descriptor:
what was durable is copied to a new file and the rest is replayed.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sqlite3
from collections.abc import Iterable
from concurrent.futures import Executor

from rla_agent.model.run_states import RunRecord, RunState
from rla_agent.model.states import OutputEvent, OutputState, StreamEvent
from rla_agent.outputs.item_folder import ItemGoneError, root_is_away, same_root, temp_name
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output import Output
from rla_agent.pipeline.fencing import EPOCH, further_than, newer_than, read_run_file
from rla_agent.pipeline.recovery import renew_base
from rla_agent.pipeline.stream import Stream
from rla_agent.store.state import AgentDatabase, Changes
from rla_client.contract.files import file_mode, fsync_file, fsync_folder, open_folder, write_atomic
from rla_client.contract.opening import Opening
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.segments import base_path, segment_path

RUN_FILE_INTERVAL_S = 60.0
PARALLEL_SYNCS = 8  # below, a pool costs more than it saves

_SYNCED = frozenset({OutputState.READY, OutputState.WIDENING})
_log = logging.getLogger("rla_agent.pipeline.commit")


class Committer:
    """Commits the streams of one volume."""

    def __init__(self, database: AgentDatabase, files: OpenFiles, executor: Executor) -> None:
        self._database = database
        self._files = files
        self._executor = executor  # for nothing else: a commit must not queue behind long work
        self._written: dict[str, tuple[RunRecord, float]] = {}
        self.unwritten: set[str] = set()
        self._openings: dict[str, Opening] = {}  # by run: of a stream that was committed

    def commit(self, dirty: list[Stream], changes: Changes, faults: dict[str, str]) -> bool:
        """Make the present state of dirty streams, none of them parked, durable.

        Returns:
            False when the transaction failed (a full state disk); everything stays dirty.
        """
        self._openings.update((stream.opening.run, stream.opening) for stream in dirty)
        _look_for_roots(dirty)
        self._sync([(stream, output) for stream in dirty for output in stream.outputs if output.dirty])
        stored = {stream: self._storable(stream) for stream in dirty}
        for stream, outputs in stored.items():
            if not stream.new_files:
                changes.outputs.append((stream.name, stream.control_row()))
            changes.outputs.extend((stream.name, output.row()) for output in outputs)
        try:
            self._database.commit(changes)
        except sqlite3.OperationalError as error:
            faults["agent.db"] = f"agent.db cannot be written: {error}; rows stay in the spool"
            return False
        faults.pop("agent.db", None)
        for stream, outputs in stored.items():
            if not stream.new_files:
                stream.durable = stream.position
            for output in outputs:
                output.stored()
            stream.committed(whole=len(outputs) == len(stream.outputs) and not stream.new_files)
            self._free_segments(stream)
        return True

    def _storable(self, stream: Stream) -> list[Output]:
        """Outputs whose state is durable in their files, and no lie where agent.db is lost later."""
        outputs = [output for output in stream.outputs if output.storable]
        moved = [output for output in outputs if output.moved]
        try:
            if moved:
                renew_base(stream, moved)
        except OSError as error:
            _log.warning("outputs that somebody replaced wait: %s: %s", stream.folder, error)
            return [output for output in outputs if not output.moved]
        return outputs

    def _sync(self, work: list[tuple[Stream, Output]]) -> None:
        most = max(1, self._files.limit // 2)  # so that opening one closes none of those before it
        for begin in range(0, len(work), most):
            opened = [
                (stream, output, descriptor)
                for stream, output in work[begin : begin + most]
                if (descriptor := self._opened(stream, output)) is not None
            ]
            parallel = len(opened) > PARALLEL_SYNCS
            syncs = self._executor.map if parallel else map  # the threads touch nothing but descriptors
            errors = list(syncs(_try_sync, [descriptor for _, _, descriptor in opened]))
            for (stream, output, _), error in zip(opened, errors, strict=True):
                if error is None:
                    output.synced()
                else:
                    self._go_back(stream, output, error)

    def _opened(self, stream: Stream, output: Output) -> int | None:
        """Descriptor of a file that is to be synced now; one that was put in its place is taken over."""
        if output.state is OutputState.SUSPECT:
            if not output.error:  # else it was refused a moment ago
                self._rebuild(stream, output)
            return None
        if output.state not in _SYNCED:
            return None
        try:
            if output.replaced(self._files):
                output.adopt_replacement(self._files)
            if output.state is OutputState.READY:
                return self._files.descriptor(output, output.open_file)
        except ItemGoneError:
            stream.handle(StreamEvent.MISSED)
        except FileNotFoundError:
            output.begin_again(self._files)
        except OSError as error:
            self._go_back(stream, output, error)
        return None

    def _go_back(self, stream: Stream, output: Output, error: OSError) -> None:
        """After a failed sync: the descriptor must not be trusted again, nor what was written through it."""
        _log.error("sync failed, going back to what is durable: %s: %s", output.path, error)
        self._files.close(output)
        output.handle(OutputEvent.SUSPECTED)
        self._rebuild(stream, output)

    def _rebuild(self, stream: Stream, output: Output) -> None:
        """Go back to the last commit in a new file; tried again RETRY_S later if that fails."""
        row = self._database.outputs_of(stream.name).get(output.name) or output.anchor
        try:
            if row is not None:
                output.rebuild(self._files, row, temp_name(stream.name))
        except ItemGoneError:
            stream.handle(StreamEvent.MISSED)
        except OSError as error:
            output.fail(error)
            _log.error("rebuild failed: %s: %s", output.path, error)

    def _free_segments(self, stream: Stream) -> None:
        """Unlink passed segments, sync the folder, and only then forget them."""
        try:
            passed = stream.freeable()
            if not passed:
                return
            following = passed[-1] + 1
            fsync_file(segment_path(stream.folder, following))  # from now on the only opening frame
            stream.write_base(following)
            for number in passed:  # after a kill in between, the newest base is the one that counts
                segment_path(stream.folder, number).unlink(missing_ok=True)
                base_path(stream.folder, number).unlink(missing_ok=True)
            fsync_folder(stream.folder)
            stream.forget_bases(following)
        except OSError as error:
            _log.warning("segments stay for now: %s: %s", stream.folder, error)

    def write_run_files(self, records: Iterable[RunRecord], now: float) -> None:
        """Write run.json of runs that changed state, or are live and were written a while ago.

        What a full disk refused is in `unwritten` until a later call with that run succeeds, and so is what
        had no data root to go to.
        """
        for record in records:
            former, written = self._written.get(record.run, (None, 0.0))
            if record.live:
                same = former is not None and (former.state, former.reason) == (record.state, record.reason)
                if same and 0 <= now - written < RUN_FILE_INTERVAL_S:
                    continue
            elif record == former:
                continue
            if write_run_file(record, now, self._openings.get(record.run)):
                self._written[record.run] = (record, now)
                self.unwritten.discard(record.run)
            else:
                self.unwritten.add(record.run)

    def forget_run(self, run: str) -> None:
        """Nothing more is to be written of a run that ended and has no stream left."""
        self._written.pop(run, None)
        self._openings.pop(run, None)
        self.unwritten.discard(run)


def _look_for_roots(dirty: Iterable[Stream]) -> None:
    """Have the next look at streams that ended find out whether their items are away or removed.

    The end of a run changes no output, so none would notice that its run.json cannot be written.
    """
    for stream in dirty:
        if stream.writer_gone and stream.outputs and root_is_away(stream.opening):
            stream.handle(StreamEvent.MISSED)


def _try_sync(descriptor: int) -> OSError | None:
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        return error
    return None


def write_run_file(record: RunRecord, now: float, opening: Opening | None = None) -> bool:
    """Write run.json into the run's log folder, unless that was removed.

    Args:
        record: of the run.
        now: Unix seconds.
        opening: of a stream of the run, which knows its data root from another one of that name.

    Returns:
        False when it has to be tried again: the disk refused it, or the data root is away.
    """
    content = json.dumps(record.to_plain(now), indent=1).encode()
    below = os.path.relpath(record.log_folder, record.root)
    try:
        folder = open_folder(record.root, below)
    except OSError:
        if record.state is RunState.REMOVED:
            return True
        return os.path.isdir(record.root) if opening is None else same_root(opening)
    try:
        found, epoch = read_run_file(folder), int(record.extra.get(EPOCH, 0))
        behind = found.get(EPOCH) == epoch and further_than(found, record.run, record.taken)
        if behind or newer_than(found, record.run, epoch):
            return True  # another agent's by now
        write_atomic(f"/proc/self/fd/{folder}/{RUN_FILE}", content, mode=file_mode(folder))
    except OSError as error:
        _log.warning("run.json not written: %s: %s", record.log_folder, error)
        return error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EIO}
    finally:
        os.close(folder)
    return True
