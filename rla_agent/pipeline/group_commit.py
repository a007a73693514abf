"""Group commit of a volume's dirty streams.

A commit takes all dirty streams of a volume, in five steps. After a kill between any two of them the spool
still holds whatever agent.db does not count as taken in.

1. The files of the outputs that changed are synced. One whose sync failed is never synced again through the
   same descriptor: what was durable is copied to a new file, and the rest is replayed.
2. Where another file took an output's name, the base file is renewed, so that it is true without agent.db.
3. One SQLite transaction stores every position with the outputs, records of runs, jobs and firings. Not the
   position of a stream whose small files wait, nor an output whose file is not durable.
4. What was stored counts as durable.
5. Segments that every durable position has passed go: (a) the next one, with its opening frame, is synced,
   (b) its base file is durable beside it, (c) the passed ones are unlinked and the folder is synced, (d) the
   states at their starts are forgotten.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable
from concurrent.futures import Executor

from rla_agent.model.stream_states import OutputState, StreamEvent
from rla_agent.outputs.data_root_presence import root_is_away
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output_file import Output
from rla_agent.pipeline.segment_base import free_segments, renew_base
from rla_agent.pipeline.stream import Stream
from rla_agent.pipeline.temp_files import temp_name
from rla_agent.store.agent_db import AgentDatabase, CommitChanges
from rla_client.contract.filesystem.safe_paths import ItemGoneError

PARALLEL_SYNCS = 8  # below, a pool costs more than it saves
_log = logging.getLogger("rla_agent.pipeline.group_commit")


class Committer:
    """Commits the streams of one volume."""

    def __init__(self, database: AgentDatabase, files: OpenFiles, executor: Executor) -> None:
        self._database = database
        self._files = files
        self._executor = executor  # used for nothing else: a commit must not queue behind long work

    def commit_streams(self, dirty: list[Stream], changes: CommitChanges, faults: dict[str, str]) -> bool:
        """Make the present state of dirty streams, none of them parked, durable.

        Args:
            dirty: the streams.
            changes: what else the transaction stores; positions and outputs are added.
            faults: what `status` shows.

        Returns:
            False when the transaction failed (a full state disk); everything stays dirty.
        """
        _look_for_roots(dirty)
        # 1. the files are durable
        self._sync([(stream, output) for stream in dirty for output in stream.outputs if output.dirty])
        # 2. base files know of files that took another one's place
        stored = {stream: self._storable(stream) for stream in dirty}
        # 3. one transaction: positions, outputs, and what the caller adds
        for stream, outputs in stored.items():
            if not stream.new_files:
                changes.outputs.append((stream.name, stream.control_row()))
            changes.outputs += [(stream.name, output.row()) for output in outputs]
        try:
            self._database.commit(changes)
        except sqlite3.OperationalError as error:
            faults["agent.db"] = f"agent.db cannot be written: {error}; rows stay in the spool"
            return False
        faults.pop("agent.db", None)
        for stream, outputs in stored.items():
            # 4. what is stored counts as durable
            stream.committed(outputs)
            # 5. segments that every durable position has passed go
            try:
                free_segments(stream)
            except OSError as error:
                _log.warning("segments stay for now: %s: %s", stream.folder, error)
        return True

    def _storable(self, stream: Stream) -> list[Output]:
        """Outputs whose state is durable in their files, and still true should agent.db be lost later."""
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
        most = max(1, self._files.limit // 2)  # so that opening one output closes none of those opened before
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
        """Descriptor of a file that is to be synced now."""
        if output.state is OutputState.SUSPECT:
            if not output.error:  # with an error it was refused a moment ago
                self._rebuild(stream, output)
            return None
        try:
            return output.descriptor_to_sync(self._files)
        except ItemGoneError:
            stream.handle(StreamEvent.MISSED)
        except OSError as error:
            self._go_back(stream, output, error)
        return None

    def _go_back(self, stream: Stream, output: Output, error: OSError) -> None:
        """Discard, after a failed sync, the descriptor and everything that was written through it."""
        _log.error("sync failed, going back to what is durable: %s: %s", output.path, error)
        output.distrust(self._files)
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


def _look_for_roots(dirty: Iterable[Stream]) -> None:
    """Have the next check of ended streams decide whether their items are missing or removed.

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
