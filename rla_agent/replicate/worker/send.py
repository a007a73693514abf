"""Sender of files over one session: one call of `send_all` per batch, on a sender's thread.

For each job the source is opened once, and everything that is remembered of it comes from that descriptor.
The item's folder on the master is looked at before something is made in it: an item that we made and that
is gone there was moved by somebody, and is not made again (`MovedError`); one that `rla rm --master`
deleted is never made again (`tombstones`).

What lies under the final name must be what we left there (the ledger's record), or what one of our own
tries with unknown outcome may have left (`attempts`). Otherwise it is compared: the same content is taken
over without sending, a beginning of our content is replaced or continued. Anything else stays, under
another name beside ours (`kept_name`), and is reported.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from rla_agent.outputs.formats import Ends, ends_of
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
from rla_agent.replicate.backend.target import Session, SmallFile, Upload
from rla_agent.replicate.file_state import SentRecord
from rla_agent.replicate.ledger_rows import Due
from rla_agent.replicate.tombstones import MovedError, place_problem
from rla_agent.replicate.worker.file_decision import SMALL_BYTES, Append, ReplaceFile, SetMode
from rla_agent.replicate.worker.pieces import pieces
from rla_agent.replicate.worker.send_job import (
    Failed,
    FolderMode,
    NotYetError,
    Result,
    SendJob,
    Sent,
)
from rla_agent.replicate.worker.sharded_lost import OthersSaveError, send_lost
from rla_agent.replicate.worker.source_file import READ_BYTES, Source, folder_copy_mode
from rla_client.contract.layout import ARCHIVE_TESTER

APPEND_BYTES: Final = 8 << 20  # of one job; the rest goes in the next one
LENIENT_TRIES: Final = 2  # then a file that only grew meanwhile may go as it was
MAX_KEPT: Final = 3  # copies moved aside, then two writers must be at work
Progress: TypeAlias = "Callable[[SendJob, int], None]"
_OWN_NAMES: Final = b".rla-"
_UNMOUNTED: Final = "mount its disk; or, to go on in an empty one, put a file into it"


class Sender:
    """Sends jobs over one session."""

    def __init__(
        self,
        session: Session,
        root: int,
        progress: Progress,
        synced: Progress = lambda *_: None,
        *,
        used: bool = False,
    ) -> None:
        """Whom to send to, and whom to tell.

        Args:
            session: at the master.
            root: descriptor of the data root.
            progress: called with a job and its confirmed bytes; may wait.
            synced: called with a job and its bytes that are on the master's disk.
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
            LinkError: the session is broken; what was not answered has no result.
        """
        ready = self._prepare_folders(jobs, results)
        batch, permits, appends = [], [], []
        for job in ready:
            if isinstance(job.action, SetMode):
                permits.append((job, job.action.mode))
            elif isinstance(job.action, Append):
                appends.append(job)
            elif job.of_whole is not None:
                results.append(self._send_lost(job, job.of_whole))
            elif job.action.size <= SMALL_BYTES or job.twin is not None:
                batch.append(job)
            else:
                results.append(self._one(job, self._upload))
        self._append_all(appends, results)
        self._permit(permits, results)
        self._small(batch, results)

    def _append_all(self, jobs: Sequence[SendJob], results: list[Result]) -> None:
        """Append to several files; where they go together, none is there if that fails at the end."""
        if not jobs:
            return
        before = len(results)
        try:
            with self._session.together():
                for job in jobs:
                    results.append(self._one(job, self._append))  # noqa: PERF401 - each at once
        except TargetError as error:
            if self._session.defers:
                failed = [Failed(result.job, error) for result in results[before:]]
                results[before:] = [] if isinstance(error, LinkError) else failed
                if not isinstance(error, LinkError):
                    return
            raise

    def set_folder_modes(self, wanted: Sequence[FolderMode]) -> None:
        """Give folders the permissions that they have here; those that are not there get them when made.

        Raises:
            LinkError: the session is broken.
        """
        for shared in (False, True):
            modes = [(one.path, one.mode) for one in wanted if one.shared is shared and _fits(one.path)]
            if modes:
                self._session.set_modes(modes, only_less=shared)

    def _permit(self, jobs: Sequence[tuple[SendJob, int]], results: list[Result]) -> None:
        problems = self._session.set_modes([(job.due.path, mode) for job, mode in jobs]) if jobs else []
        for (job, _), problem in zip(jobs, problems, strict=True):
            record = job.due.record
            if problem is not None or record is None or job.local is None:
                results.append(Failed(job, problem or MissingError("look at", job.due.path, "never sent")))
            else:
                results.append(Sent(job, replace(record, local=job.local), synced=None))

    def _permit_one(self, job: SendJob, source: Source) -> None:
        """Where a file's content is there already, give it the permissions that it has here."""
        mode, record = source.local.mode, job.due.record
        if mode is not None and (record is None or record.local.mode != mode):
            (problem,) = self._session.set_modes([(job.due.path, mode)])
            if problem is not None:
                raise problem

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
            check_mounted(self._session)  # or all of the master is gone, and came back never would
        if problem is None:
            self._items.add(job.due.item)
        return problem

    def _one(self, job: SendJob, how: Callable[[SendJob, Source, RemoteStat | None], Result]) -> Result:
        try:
            with closing(Source(self._root, job.due.path)) as source:
                return self._settled(job, source, how)
        except LinkError:
            raise
        except (TargetError, SourceChangedError, UnreadableError, OSError) as error:
            return Failed(job, error)

    def _settled(
        self, job: SendJob, source: Source, how: Callable[[SendJob, Source, RemoteStat | None], Result]
    ) -> Result:
        """Run `how`; where the master's file is not as we left it, settle that and run it again."""
        try:
            return how(job, source, _left(job.due.record))
        except ConflictError as error:
            settled = self._settle(job, error.found)
        except MissingError:
            settled = self._remake(job)
        if isinstance(settled, Sent):
            return settled
        expect, kept = settled
        if isinstance(job.action, Append) and expect is None:
            return Failed(job, MissingError("append to", job.due.path, "not there"))
        with closing(Source(self._root, job.due.path)) as again:
            result = how(job, again, expect)
        return replace(result, kept=kept) if kept and isinstance(result, Sent) else result

    def _remake(self, job: SendJob) -> tuple[RemoteStat | None, bytes]:
        """A folder (or the file itself) is gone there: see which, and make what may be made."""
        self._items.discard(job.due.item)
        problem = self._item_problem(job)
        if problem is not None:
            raise problem
        self._session.forget_folders()
        self._session.make_folders([parent(job.due.path)], self._folder_mode)
        return self._session.stat(job.due.path), b""

    def _settle(self, job: SendJob, found: RemoteStat) -> tuple[RemoteStat | None, bytes] | Sent:
        due = job.due
        assert not isinstance(job.action, SetMode)
        size = job.action.upto if isinstance(job.action, Append) else job.action.size
        ours = _ours(found, due)
        if ours and found.size != size:
            return found, b""
        if found.kind == "file" and found.size <= size:
            grown = isinstance(job.action, Append) or (job.action.grows and found.size > 0)
            has_all = found.size == size or grown  # the rest is appended
            same = self._same_beginning(job, found)
            if same is not None:
                return same if has_all else (found, b"")
        if ours:
            return found, b""
        if due.kept >= MAX_KEPT:
            raise DeniedError(
                "send",
                due.path,
                "somebody else keeps changing this file on the master",
                "end the other writer (another node with the same item?), then: rla-agent replicate retry",
            )
        kept = kept_name(due.path, found, due.kept)
        self._session.rename(due.path, kept)
        return None, kept

    def _same_beginning(self, job: SendJob, found: RemoteStat) -> Sent | None:
        """The row for a master's file that is the beginning of ours; None where it is not.

        The row tells of what was compared: a version that is written while we compare counts as changed.
        """
        assert not isinstance(job.action, SetMode)
        began, path = time.monotonic(), job.due.path
        with closing(Source(self._root, path)) as source:
            at = 0
            while at < found.size:
                theirs = self._session.read(path, at, min(1 << 20, found.size - at))
                if not theirs or theirs != source.read(at, len(theirs)):
                    return None
                at += len(theirs)
            self._permit_one(replace(job, due=replace(job.due, record=None)), source)
            record = source.record(job.action.generation, found.size, found.mtime_s)
            return Sent(job, record, read_s=time.monotonic() - began)

    def _append(self, job: SendJob, source: Source, expect: RemoteStat | None) -> Result:
        action, record = job.action, job.due.record
        assert isinstance(action, Append)
        began = time.monotonic()
        if record is None or expect is None or not _as_sent(source, record, owned=action.owned):
            return self._upload_instead(job, source, expect)
        read_s = time.monotonic() - began
        self._permit_one(job, source)  # before the new rows
        parts = self._parts(job, action, source)
        try:
            found = self._session.append(job.due.path, action.offset, parts, expect)
        except DeniedError:
            if _mode(source) & 0o200:
                raise
            return self._upload_instead(job, source, expect)  # as read-only there as it is here
        sent = b"".join(parts)
        size = action.offset + len(sent)
        if found.size != size:
            raise TransientError("append to", job.due.path, f"the master holds {found.size} bytes of {size}")
        self._progress(job, len(sent))
        head, tail = source.edges(size)
        crc = zlib.crc32(sent, record.crc)
        now = SentRecord(source.local, action.generation, size, crc, head, tail, None, found.mtime_s)
        return Sent(job, now, read_s=read_s, synced=found.synced)

    def _upload_instead(self, job: SendJob, source: Source, expect: RemoteStat | None) -> Result:
        action = job.action
        assert isinstance(action, Append)
        whole = ReplaceFile(action.upto, action.generation, cut=action.cut, grows=True)
        return self._upload(replace(job, action=whole, start=0), source, expect)

    def _parts(self, job: SendJob, action: Append, source: Source) -> list[bytes]:
        """Whole records, in pieces that the master writes as one."""
        upto = min(action.upto, action.offset + APPEND_BYTES)
        data = source.read(action.offset, upto - action.offset)
        limit = self._session.append_limit_bytes
        ends = ends_of(job.due.key.name)
        cut = action.cut or upto < action.upto
        parts = pieces(data, ends, limit, cut=cut)
        if not parts and upto < action.upto:
            parts = pieces(data, ends, limit, cut=False)
        if not parts:
            raise NotYetError("append to", job.due.path, "no whole record yet")
        return parts

    def _upload(self, job: SendJob, source: Source, expect: RemoteStat | None) -> Result:
        action = job.action
        assert isinstance(action, ReplaceFile)
        size = _planned_size(job, source)
        began = time.monotonic()
        known = _same_content(job, source, size)
        if known is not None:
            self._permit_one(job, source)
            return Sent(job, known, read_s=time.monotonic() - began, synced=None)
        source.skip_to(job.start)
        found = self._session.upload(self._as_upload(job, source, size, expect))
        return Sent(job, source.record(action.generation, size, found.mtime_s), synced=found.synced)

    def _as_upload(self, job: SendJob, source: Source, size: int, expect: RemoteStat | None) -> Upload:
        return Upload(
            job.due.path,
            job.temp,
            _mtime_s(job, source),
            expect,
            lambda: _unchanged(job, source),
            source.read,
            size,
            job.start,
            partial(self._progress, job),
            _mode(source),
            job.sure,
            partial(self._synced, job),
        )

    def _send_lost(self, job: SendJob, of_whole: bytes) -> Result:
        """Put a file back into a checkpoint that is whole there; where it is not, look again later."""
        assert isinstance(job.action, ReplaceFile)
        try:
            with closing(Source(self._root, job.due.path)) as source:
                size = _planned_size(job, source)
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
        except MissingError as error:  # the folder is gone by now: not to be made by us
            return Failed(job, TransientError("send", job.due.path, error.why))
        except (TargetError, SourceChangedError, UnreadableError, OSError) as error:
            return Failed(job, error)

    def _small(self, jobs: Sequence[SendJob], results: list[Result]) -> None:
        opened: list[tuple[SendJob, Source, SmallFile]] = []
        permits: list[tuple[SendJob, int]] = []
        with ExitStack() as held:
            for job in jobs:
                made: SmallFile | Result
                try:
                    source = held.enter_context(closing(Source(self._root, job.due.path)))
                    made = self._loaded(job, source)
                except (SourceChangedError, UnreadableError, OSError) as error:
                    made = Failed(job, error)
                mode = made.record.local.mode if isinstance(made, Sent) else None
                if isinstance(made, SmallFile):
                    opened.append((job, source, made))
                elif isinstance(made, Sent) and mode is not None:
                    known = replace(job.due, record=made.record)
                    permits.append((replace(job, due=known, local=made.record.local), mode))
                else:
                    results.append(made)
            answers = self._session.put_many([file for _, _, file in opened]) if opened else []
            for (job, source, file), answer in zip(opened, answers, strict=True):
                results.append(self._judge(job, source, file, answer))
            self._permit(permits, results)

    def _loaded(self, job: SendJob, source: Source) -> SmallFile | Result:
        size = _planned_size(job, source)
        known = _same_content(job, source, size)
        if known is not None:
            return Sent(job, known, synced=None)
        data = source.read(0, size)
        if len(data) != size:
            raise SourceChangedError(job.due.path)
        twin = job.twin
        if twin is not None and hashlib.sha256(data).digest() != twin.sha256:
            twin = None  # it changed since the worker looked
        return SmallFile(
            job.due.path,
            job.temp,
            data,
            _mtime_s(job, source),
            _left(job.due.record),
            lambda: _unchanged(job, source),
            twin,
            _mode(source),
        )

    def _judge(self, job: SendJob, source: Source, file: SmallFile, answer: RemoteStat | Exception) -> Result:
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
        return self._one(job, self._upload)


def check_mounted(session: Session) -> None:
    """See that a root to which files were sent holds something; one that may not be listed says nothing.

    What agents leave there by themselves (`.rla-…`) does not count: it may have been left in an empty one.

    Raises:
        LinkError: it is empty, or that cannot be found out now.
    """
    try:
        found = session.listing(b"")
    except DeniedError:
        return
    except (TransientError, MissingError) as error:
        raise LinkError("look at", b"", str(error)) from error
    if all(name.startswith(_OWN_NAMES) for name, _ in found):
        raise LinkError("look at", b"", "it is empty, though files were sent there", _UNMOUNTED)


def kept_name(path: bytes, found: RemoteStat, count: int) -> bytes:
    """Name beside `path` for what was found under it."""
    folder, slash, name = path.rpartition(b"/")
    return folder + slash + name[:200] + b".kept-%d-%d" % (found.mtime_s, count)


def _fits(path: bytes) -> bool:
    """Whether the master can have a file or folder of this path."""
    try:
        check_remote(path)
    except DeniedError:
        return False
    return True


def _mode(source: Source) -> int:
    return 0o600 if source.local.mode is None else source.local.mode


def _left(record: SentRecord | None) -> RemoteStat | None:
    return None if record is None else RemoteStat(record.acked, record.remote_mtime_s)


def _as_sent(source: Source, record: SentRecord, *, owned: bool) -> bool:
    """Whether a file begins with what was sent; of an owned one only its edges are read."""
    if source.edges(record.acked) != (record.head_crc, record.tail_crc):
        return False
    return owned or source.crc_of(record.acked) == record.crc


def _ours(found: RemoteStat, due: Due) -> bool:
    """Whether one of our own tries may have left `found`.

    An append leaves more than was there: a file of the old size and another time was written by somebody.
    """
    if found.kind != "file":
        return False
    start = due.record.acked if due.record is not None else 0
    return any(
        start < found.size <= attempt.size
        if attempt.mtime_s is None
        else (found.size, found.mtime_s) == (attempt.size, attempt.mtime_s)
        for attempt in due.attempts
    )


def _planned_size(job: SendJob, source: Source) -> int:
    """How many bytes go of the planned version, which may have grown since.

    Of any other the master would get what nobody has noted, or, in a temp file that holds a part already, a
    mixture.

    Raises:
        SourceChangedError: the file is another version.
    """
    action, local = job.action, job.local
    assert isinstance(action, ReplaceFile)
    if local is not None and source.local != local:
        lenient = action.grows or (job.due.tries >= LENIENT_TRIES and job.start == 0)
        if not lenient or source.local.ino != local.ino or source.local.size < local.size:
            raise SourceChangedError(job.due.path)
    size = action.size if action.grows or local is not None else source.local.size
    return _whole_records(source, size, ends_of(job.due.key.name)) if action.cut else size


def _whole_records(source: Source, size: int, ends_in: Ends) -> int:
    """How many of a file's first `size` bytes are whole records."""
    done = 0
    rest = b""
    while done + len(rest) < size:
        count = min(READ_BYTES, size - done - len(rest))
        more = os.pread(source.descriptor, count, done + len(rest))
        if not more:
            break
        rest += more
        ends = ends_in(rest)
        if ends:
            done += ends[-1]
            rest = rest[ends[-1] :]
    return done


def _same_content(job: SendJob, source: Source, size: int) -> SentRecord | None:
    """The row for a file that is to be compared, where its first `size` bytes are what the master got."""
    record = job.due.record
    assert isinstance(job.action, ReplaceFile)
    if not job.action.compare or record is None or record.acked != size:
        return None
    source.skip_to(size)
    made = source.record(job.action.generation, size, record.remote_mtime_s)
    same = made.crc == record.crc if record.sha256 is None else made.sha256 == record.sha256
    return made if same else None  # of what another machine sent only SHA-256 is known


def _mtime_s(job: SendJob, source: Source) -> int:
    return (job.local or source.local).mtime_ns // 10**9


def _unchanged(job: SendJob, source: Source) -> bool:
    """Whether the path still leads to the version that was opened; asked just before the rename."""
    assert isinstance(job.action, ReplaceFile)
    grows = job.action.grows or job.due.tries >= LENIENT_TRIES
    return source.unchanged(may_grow=grows)
