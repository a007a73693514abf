"""Group commit: files first, then one transaction, then whatever may be forgotten.

For all dirty streams of a volume: sync the outputs that changed, store every position in one
SQLite transaction, and only then let segments go, each after the base of the next one lies
durably beside it. A file whose sync failed is never synced again through the same descriptor:
what was durable is copied to a new file and the rest is replayed.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from concurrent.futures import Executor
from contextlib import suppress

from rla_agent.opening import open_folder
from rla_agent.output import ItemGoneError, OpenFiles, Output
from rla_agent.runs import RunRecord
from rla_agent.state import AgentDatabase, Changes
from rla_agent.stream import Stream
from rla_client.spool import base_path, segment_path
from rla_client.storage import fsync_folder, write_atomic

RUN_FILE = "run.json"
RUN_FILE_INTERVAL_S = 60.0
PARALLEL_SYNCS = 8  # below, a pool costs more than it saves

_log = logging.getLogger("rla_agent.commit")


class Committer:
    """Commits the streams of one volume."""

    def __init__(self, database: AgentDatabase, files: OpenFiles, executor: Executor) -> None:
        self._database = database
        self._files = files
        self._executor = executor
        self._written: dict[str, tuple[RunRecord, float]] = {}

    def commit(self, streams: list[Stream], changes: Changes, faults: dict[str, str]) -> bool:
        """Make the present state of all dirty streams durable.

        Returns:
            False when the transaction failed (a full state disk); everything stays dirty.
        """
        dirty = [stream for stream in streams if stream.dirty and not stream.parked]
        self._sync([(stream, output) for stream in dirty for output in stream.outputs if output.dirty])
        for stream in dirty:
            changes.outputs.append((stream.name, stream.control_row()))
            changes.outputs.extend((stream.name, o.row()) for o in stream.outputs if not o.rewriting)
        try:
            self._database.commit(changes)
        except sqlite3.OperationalError as error:
            faults["agent.db"] = f"agent.db cannot be written: {error}; rows stay in the spool"
            return False
        faults.pop("agent.db", None)
        for stream in dirty:
            stream.durable = stream.position
            stream.dirty = False
            for output in stream.outputs:
                if not output.rewriting:
                    output.durable = output.position
            stream.new_jobs = []
            self._free_segments(stream)
        return True

    def _sync(self, work: list[tuple[Stream, Output]]) -> None:
        if len(work) > PARALLEL_SYNCS:
            for _, output in work:
                with suppress(OSError, ItemGoneError):
                    self._files.descriptor(output)
            list(self._executor.map(lambda pair: self._sync_one(*pair), work))
        else:
            for stream, output in work:
                self._sync_one(stream, output)

    def _sync_one(self, stream: Stream, output: Output) -> None:
        if output.rewriting or output.error:
            return
        try:
            if output.replaced(self._files):
                output.adopt_replacement(self._files)
            output.sync(self._files)
            output.dirty = False
        except ItemGoneError:
            stream.removed = True
        except FileNotFoundError:
            output.begin_again(self._files)
        except OSError as error:
            _log.error("sync failed, going back to what is durable: %s: %s", output.path, error)  # noqa: TRY400
            output.fail(error)
            self._rebuild(stream, output)

    def _rebuild(self, stream: Stream, output: Output) -> None:
        row = self._database.outputs_of(stream.name).get(output.name)
        try:
            if row is not None:
                output.rebuild(self._files, row)
        except (OSError, ItemGoneError) as error:
            _log.error("rebuild failed: %s: %s", output.path, error)  # noqa: TRY400

    def replace_file(self, stream: Stream, output: Output, temp: str, files: OpenFiles) -> bool:
        """Store that `temp` is the output's content from now on, then give it the name.

        Returns:
            False when that could not be stored or done; the old file is still there.
        """
        try:
            self._database.commit(Changes(outputs=[(stream.name, output.row(intent=temp))]))
        except sqlite3.OperationalError as error:
            output.fail(OSError(0, str(error)))
            return False
        output.durable = output.position
        files.close(output)
        folder = open_folder(output.root, output.folder)
        try:
            os.rename(temp, output.file_name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except OSError as error:
            output.fail(error)
            return False
        finally:
            os.close(folder)
        output.dirty = stream.dirty = True  # the next commit clears the intent
        return True

    def _free_segments(self, stream: Stream) -> None:
        """Unlink passed segments, sync the folder, and only then forget them."""
        try:
            passed = stream.freeable()
            if not passed:
                return
            following = passed[-1] + 1
            stream.write_base(following)
            for number in passed:
                segment_path(stream.folder, number).unlink(missing_ok=True)
                base_path(stream.folder, number).unlink(missing_ok=True)
            fsync_folder(stream.folder)
            stream.forget_bases_before(following)
        except OSError as error:
            _log.warning("segments stay for now: %s: %s", stream.folder, error)

    def write_run_files(self, runs: dict[str, RunRecord], now: float) -> None:
        """Write run.json of runs that changed state, or are live and were written a while ago."""
        for record in list(runs.values()):
            former, written = self._written.get(record.run, (None, 0.0))
            same = former is not None and (former.state, former.reason) == (record.state, record.reason)
            if same and (not record.live or now - written < RUN_FILE_INTERVAL_S):
                continue
            if record.live or former is None or not same:
                write_run_file(record, now)
            self._written[record.run] = (record, now)
            if not record.live:
                runs.pop(record.run, None)
                self._written.pop(record.run, None)


def write_run_file(record: RunRecord, now: float) -> None:
    """Write run.json into the run's log folder, if that is there."""
    content = json.dumps(record.to_plain(now), indent=1).encode()
    below = os.path.relpath(record.log_folder, record.root)
    try:
        folder = open_folder(record.root, below)
    except OSError:
        return
    try:
        write_atomic(f"/proc/self/fd/{folder}/{RUN_FILE}", content)
    except OSError as error:
        _log.warning("run.json not written: %s: %s", record.log_folder, error)
    finally:
        os.close(folder)
