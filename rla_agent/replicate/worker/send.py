"""Sender of files over one session.

Each batch is one call of `send_all`, on a sender's thread, in five steps:

1. The folders of all files are made on the master, but of no item that is gone there: one that we made was
   moved by somebody (`MovedError`), one that `rla rm --master` deleted stays deleted (`tombstones`).
2. Large files are uploaded, and lost files of a whole checkpoint there put back, one by one.
3. Appends follow, in one request where the target can (`TargetSession.together`).
4. Permission bits are set where nothing else changed.
5. Small files go together (`TargetSession.put_many`).

An attempt opens the source once, and all facts about it come from that descriptor. A file under the final
name that is not as we left it is a conflict: it is resolved (`conflicts`), and the job is tried once more.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from rla_agent.replicate.backend.errors import (
    ConflictError,
    DeniedError,
    LinkError,
    MissingError,
    SourceChangedError,
    TargetError,
    TransientError,
    UnreadableError,
)
from rla_agent.replicate.backend.remote_paths import check_remote, parent, parents
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.upload import Upload
from rla_agent.replicate.copy_modes import folder_copy_mode
from rla_agent.replicate.file_state import SentRecord
from rla_agent.replicate.tombstones import MovedError, place_problem
from rla_agent.replicate.worker.conflicts import resolve_conflict
from rla_agent.replicate.worker.empty_root import check_mounted
from rla_agent.replicate.worker.file_decision import SMALL_BYTES, Append, ReplaceFile, SetMode
from rla_agent.replicate.worker.planned_version import (
    append_parts,
    begins_as_sent,
    mode_of,
    mtime_s,
    planned_size,
    same_content,
    unchanged,
)
from rla_agent.replicate.worker.send_job import (
    Failed,
    Result,
    SendJob,
    Sent,
)
from rla_agent.replicate.worker.send_modes import set_mode_of, set_modes
from rla_agent.replicate.worker.sharded_lost import OthersSaveError, send_lost
from rla_agent.replicate.worker.source_file import SourceFile
from rla_client.contract.layout import ARCHIVE_TESTER

Progress: TypeAlias = "Callable[[SendJob, int], None]"


class Sender:
    """Sends jobs over one session."""

    def __init__(
        self,
        session: TargetSession,
        root: int,
        progress: Progress,
        synced: Progress = lambda *_: None,
        *,
        used: bool = False,
    ) -> None:
        """Begin to send a batch.

        Args:
            session: at the master.
            root: descriptor of the data root.
            progress: called with a job and its confirmed bytes; may wait.
            synced: called with a job and the number of its bytes on the master's disk.
            used: files were sent there before, into a folder that may be unmounted.
        """
        self._session = session
        self._root = root
        self._progress = progress
        self._synced = synced
        self._used = used
        self._items: set[bytes] = set()
        self._runs: set[bytes] = set()

    def send_all(self, jobs: Sequence[SendJob], results: list[Result]) -> None:
        """Send; adds one result per job to `results`, in any order.

        Raises:
            LinkError: the session is broken; unanswered jobs have no result.
        """
        ready = self._prepare_folders(jobs, results)
        batch, modes, appends = [], [], []
        for job in ready:
            if isinstance(job.action, SetMode):
                modes.append((job, job.action.mode))
            elif isinstance(job.action, Append):
                appends.append(job)
            elif job.of_whole is not None:
                results.append(self._send_lost(job, job.of_whole))
            elif job.action.size <= SMALL_BYTES or job.twin is not None:
                batch.append(job)
            else:
                results.append(self._send_one(job, self._upload))
        self._send_appends(appends, results)
        results += set_modes(self._session, modes)
        self._send_small(batch, results)

    def _send_appends(self, jobs: Sequence[SendJob], results: list[Result]) -> None:
        """Append to several files; where they share a request, all fail together at its end."""
        if not jobs:
            return
        before = len(results)
        try:
            with self._session.together():
                for job in jobs:
                    results.append(self._send_one(job, self._append))  # noqa: PERF401 - each at once
        except TargetError as error:
            if self._session.defers:
                failed = [Failed(result.job, error) for result in results[before:]]
                results[before:] = [] if isinstance(error, LinkError) else failed
                if not isinstance(error, LinkError):
                    return
            raise

    def _folder_mode(self, folder: bytes) -> tuple[int, bool]:
        """Permission bits of a folder, and whether several runs share it."""
        shared = not any(part in self._runs for part in parents(folder))
        try:
            return folder_copy_mode(folder, self._root), shared
        except OSError:
            return 0o700, shared

    def _prepare_folders(self, jobs: Sequence[SendJob], results: list[Result]) -> list[SendJob]:
        ready: list[SendJob] = []
        self._runs.update(job.due.item for job in jobs if job.due.kind != ARCHIVE_TESTER)
        for job in jobs:
            try:
                check_remote(job.due.path)
                check_remote(job.temp)
                problem = self._item_problem(job)
            except LinkError:
                raise
            except TargetError as error:  # of this job alone
                problem = error
            if problem is None:
                ready.append(job)
            else:
                results.append(Failed(job, problem))
        try:
            made = [parent(job.due.path) for job in ready if job.of_whole is None]
            self._session.make_folders(made, self._folder_mode)
        except LinkError:
            raise
        except TargetError:
            self._session.forget_folders()
            return [job for job in ready if job.of_whole is not None or self._folder_made(job, results)]
        return ready

    def _folder_made(self, job: SendJob, results: list[Result]) -> bool:
        try:
            self._session.make_folders([parent(job.due.path)], self._folder_mode)
        except LinkError:
            raise
        except TargetError as error:
            results.append(Failed(job, error))
            return False
        return True

    def _item_problem(self, job: SendJob) -> TargetError | None:
        if job.due.item in self._items and job.due.kind != ARCHIVE_TESTER:
            return None
        problem = place_problem(self._session, job.due)
        if self._used and (isinstance(problem, MovedError) or (problem is None and not job.due.item_made)):
            check_mounted(self._session)  # else a missing disk of the master would count as deleted items
        if problem is None:
            self._items.add(job.due.item)
        return problem

    def _send_one(
        self, job: SendJob, how: Callable[[SendJob, SourceFile, RemoteStat | None], Result]
    ) -> Result:
        try:
            with closing(SourceFile(self._root, job.due.path)) as source:
                return self._send_resolving(job, source, how)
        except LinkError:
            raise
        except (TargetError, SourceChangedError, UnreadableError, OSError) as error:
            return Failed(job, error)

    def _send_resolving(
        self,
        job: SendJob,
        source: SourceFile,
        how: Callable[[SendJob, SourceFile, RemoteStat | None], Result],
    ) -> Result:
        """Run `how`; on a conflict resolve it and run `how` again."""
        try:
            return how(job, source, _state_we_left(job.due.record))
        except ConflictError as error:
            resolved = resolve_conflict(self._session, self._root, job, error.found)
        except MissingError:
            resolved = self._remake_folder(job)
        if isinstance(resolved, Sent):
            return resolved
        expect, kept = resolved
        if isinstance(job.action, Append) and expect is None:
            return Failed(job, MissingError("append to", job.due.path, "not there"))
        with closing(SourceFile(self._root, job.due.path)) as again:
            result = how(job, again, expect)
        return replace(result, kept=kept) if kept and isinstance(result, Sent) else result

    def _remake_folder(self, job: SendJob) -> tuple[RemoteStat | None, bytes]:
        """Find out which folder (or the file itself) is missing there, and make what may be made."""
        self._items.discard(job.due.item)
        problem = self._item_problem(job)
        if problem is not None:
            raise problem
        self._session.forget_folders()
        self._session.make_folders([parent(job.due.path)], self._folder_mode)
        return self._session.stat(job.due.path), b""

    def _append(self, job: SendJob, source: SourceFile, expect: RemoteStat | None) -> Result:
        action, record = job.action, job.due.record
        assert isinstance(action, Append)
        began = time.monotonic()
        if record is None or expect is None or not begins_as_sent(source, record, owned=action.owned):
            return self._upload_instead(job, source, expect)
        read_s = time.monotonic() - began
        set_mode_of(self._session, job.due.path, source, job.due.record)  # before the new rows
        parts = append_parts(job, action, source, self._session.append_limit_bytes)
        try:
            found = self._session.append(job.due.path, action.offset, parts, expect)
        except DeniedError:
            if mode_of(source) & 0o200:
                raise
            return self._upload_instead(job, source, expect)  # read-only there as here
        sent = b"".join(parts)
        size = action.offset + len(sent)
        if found.size != size:
            raise TransientError("append to", job.due.path, f"the master holds {found.size} bytes of {size}")
        self._progress(job, len(sent))
        head, tail = source.edges(size)
        crc = zlib.crc32(sent, record.crc)
        now = SentRecord(source.local, action.generation, size, crc, head, tail, None, found.mtime_s)
        return Sent(job, now, read_s=read_s, synced=found.synced)

    def _upload_instead(self, job: SendJob, source: SourceFile, expect: RemoteStat | None) -> Result:
        action = job.action
        assert isinstance(action, Append)
        whole = ReplaceFile(action.upto, action.generation, cut=action.cut, grows=True)
        return self._upload(replace(job, action=whole, start=0), source, expect)

    def _upload(self, job: SendJob, source: SourceFile, expect: RemoteStat | None) -> Result:
        action = job.action
        assert isinstance(action, ReplaceFile)
        size = planned_size(job, source)
        began = time.monotonic()
        known = same_content(job, source, size)
        if known is not None:
            set_mode_of(self._session, job.due.path, source, job.due.record)
            return Sent(job, known, read_s=time.monotonic() - began, synced=None)
        source.skip_to(job.start)
        found = self._session.upload(self._as_upload(job, source, size, expect))
        return Sent(job, source.record(action.generation, size, found.mtime_s), synced=found.synced)

    def _as_upload(self, job: SendJob, source: SourceFile, size: int, expect: RemoteStat | None) -> Upload:
        return Upload(
            job.due.path,
            job.temp,
            mtime_s(job, source),
            expect,
            lambda: unchanged(job, source),
            source.read,
            size,
            job.start,
            partial(self._progress, job),
            mode_of(source),
            job.sure,
            partial(self._synced, job),
        )

    def _send_lost(self, job: SendJob, of_whole: bytes) -> Result:
        """Put a file back into a checkpoint that is complete there; else retry later."""
        assert isinstance(job.action, ReplaceFile)
        try:
            with closing(SourceFile(self._root, job.due.path)) as source:
                size = planned_size(job, source)
                upload = self._as_upload(job, source, size, None)
                source.skip_to(size)
                try:
                    found = send_lost(self._session, upload, source, of_whole)
                except OthersSaveError:
                    found = RemoteStat(size, upload.mtime_s)
                record = source.record(job.action.generation, size, found.mtime_s)
                return Sent(job, record, synced=found.synced)
        except LinkError:
            raise
        except MissingError as error:  # the folder is gone by now, and not ours to make
            return Failed(job, TransientError("send", job.due.path, error.why))
        except (TargetError, SourceChangedError, UnreadableError, OSError) as error:
            return Failed(job, error)

    def _send_small(self, jobs: Sequence[SendJob], results: list[Result]) -> None:
        opened: list[tuple[SendJob, SourceFile, SmallFile]] = []
        modes: list[tuple[SendJob, int]] = []
        with ExitStack() as held:
            for job in jobs:
                made: SmallFile | Result
                try:
                    source = held.enter_context(closing(SourceFile(self._root, job.due.path)))
                    made = self._read_small(job, source)
                except (SourceChangedError, UnreadableError, OSError) as error:
                    made = Failed(job, error)
                mode = made.record.local.mode if isinstance(made, Sent) else None
                if isinstance(made, SmallFile):
                    opened.append((job, source, made))
                elif isinstance(made, Sent) and mode is not None:
                    known = replace(job.due, record=made.record)
                    modes.append((replace(job, due=known, local=made.record.local), mode))
                else:
                    results.append(made)
            answers = self._session.put_many([file for _, _, file in opened]) if opened else []
            for (job, source, file), answer in zip(opened, answers, strict=True):
                results.append(self._result_of_put(job, source, file, answer))
            results += set_modes(self._session, modes)

    def _read_small(self, job: SendJob, source: SourceFile) -> SmallFile | Result:
        size = planned_size(job, source)
        known = same_content(job, source, size)
        if known is not None:
            return Sent(job, known, synced=None)
        data = source.read(0, size)
        if len(data) != size:
            raise SourceChangedError(job.due.path)
        twin = job.twin
        if twin is not None and hashlib.sha256(data).digest() != twin.sha256:
            twin = None  # it changed since the scan
        return SmallFile(
            job.due.path,
            job.temp,
            data,
            mtime_s(job, source),
            _state_we_left(job.due.record),
            lambda: unchanged(job, source),
            twin,
            mode_of(source),
        )

    def _result_of_put(
        self, job: SendJob, source: SourceFile, file: SmallFile, answer: RemoteStat | Exception
    ) -> Result:
        if isinstance(answer, RemoteStat):
            self._progress(job, len(file.data))
            assert isinstance(job.action, ReplaceFile)
            try:
                record = source.record(job.action.generation, len(file.data), answer.mtime_s)
                return Sent(job, record, synced=answer.synced)
            except OSError as error:
                return Failed(job, error)
        if not isinstance(answer, (ConflictError, MissingError)):
            return Failed(job, answer)
        return self._send_one(job, self._upload)


def _state_we_left(record: SentRecord | None) -> RemoteStat | None:
    return None if record is None else RemoteStat(record.acked, record.remote_mtime_s)
