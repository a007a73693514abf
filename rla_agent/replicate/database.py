"""One database at one target: looks at its files, keeps the ledger, turns what is due into batches.

Belongs to the worker's thread. Times: `now` is the monotonic clock; wall time is asked for only to
see how long a file has rested, for its mtime is wall time.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rla_agent.replicate import fleet, plan
from rla_agent.replicate.ledger import CLEAN, GONE, PARKED, Ledger
from rla_agent.replicate.ledger_rows import Attempt, Due, Key, Temp
from rla_agent.replicate.link import Batch, Confirmed, Link, Outcome, jobs_without_result
from rla_agent.replicate.plan import Append, Health, Local, Nothing, Owned, Wait, Whole
from rla_agent.replicate.scan import Folder, ScanError, Scanner
from rla_agent.replicate.send import PAGED_BYTES, Failed, Job, MovedError, NotYetError, Sent
from rla_agent.replicate.settle import SUMS_NAME, SettleError, settle
from rla_agent.replicate.target import (
    BlockedError,
    DeniedError,
    FullError,
    HostKeyError,
    LoginError,
    MissingError,
    SourceChangedError,
    TargetError,
)
from rla_agent.replicate.watch import MAX_ITEMS
from rla_client.layout import CHECKPOINT, FOLDER_KINDS, LOG

if TYPE_CHECKING:
    from rla_agent.replicate.hints import Committed

RESCAN_S: Final = 60.0  # everything is looked at so often, if that is cheap:
SCAN_SHARE: Final = 50  # at least 50 times as long as it took
LIVE_S: Final = 1.0  # live items are looked at so often …
LIVE_SHARE: Final = 40  # … if that is cheap
PACE_S: Final = 0.5  # between two appends to one file
BATCH_FILES: Final = 64
BATCH_BYTES: Final = 4 << 20
RESUME_BYTES: Final = 1 << 20  # a temp file with less is not worth going on with
SETTLE_AT_ONCE: Final = 4
RUN_NAME: Final = b"run.json"
_LOGS: Final = LOG.encode() + b"/"
MAX_PACED: Final = 20_000


@dataclass
class Counters:
    """For status: since this worker started."""

    written_bytes: int = 0
    sent_files: int = 0
    sent_bytes: int = 0
    kept: int = 0
    last_success: float = 0.0


@dataclass
class Database:
    """One database at one target."""

    number: int
    scanner: Scanner
    link: Link
    ledger: Ledger
    committed: Committed
    health: Health = field(default_factory=Health)
    counters: Counters = field(default_factory=Counters)
    problem: str = ""
    host: str = ""
    mirror: bool = False

    def __post_init__(self) -> None:
        """Open the data root."""
        self.descriptor = -1
        self._flying: dict[Key, Job] = {}
        self._again: set[Key] = set()
        self._ready: set[Key] = set()
        self._paced: dict[Key, float] = {}
        self._live: dict[bytes, str] = {}
        self._progress: dict[Key, int] = {}
        self._ended: set[str] = set()
        self._recent: list[tuple[int, str]] = []  # (end, item), the last one last
        self._fleet: tuple[float, bytes] = (0.0, b"")
        self._scan: Iterator[None] | None = None
        self._scan_due = self._live_due = 0.0
        self._scan_cost = 0.0
        self._orphans = [temp for temp in self.ledger.temps(self.number) if temp.acked < RESUME_BYTES]
        self._partial = {t.key: t for t in self.ledger.temps(self.number) if t.acked >= RESUME_BYTES}

    # -- looking ---------------------------------------------------------------------------

    def look(self, now: float, budget_s: float) -> bool:
        """Go on looking for at most `budget_s`; True while there is more to look at."""
        if self._scan is None and now >= self._scan_due:
            self._scan = self._everything(now)
            self._scan_cost = 0.0
        if now >= self._live_due:
            self._look_at_live(now)
        if self._scan is None:
            return False
        began = time.monotonic()
        while time.monotonic() - began < budget_s:
            try:
                next(self._scan)
            except StopIteration:
                self._scan = None
                self._scan_due = now + max(RESCAN_S, SCAN_SHARE * self._scan_cost)
                break
            except ScanError as error:
                self.problem, self._scan = str(error), None
                self._scan_due = now + RESCAN_S
                return False
        self._scan_cost += time.monotonic() - began
        return self._scan is not None

    def look_now(self) -> None:
        """Begin to look at everything with the next `look`."""
        self._scan_due = 0.0

    def hint_outputs(self, path: bytes, now: float) -> None:
        """An owned output (path below the data root) has grown."""
        self._hint(path, now)

    def hint_file(self, path: bytes, now: float) -> None:
        """A whole file was put in place: it need not rest first."""
        key = self._hint(path, now)
        if key is not None:
            self._ready.add(key)

    def hint_item(self, path: bytes, now: float) -> None:
        """Look at an item now; `path` is one of its folders, below the data root."""
        found = self.scanner._index(path.split(b"/"))  # noqa: SLF001 - the scanner's own rule
        if found is None:
            self.look_now()
            return
        for folder in self.scanner.item(found[1]):
            self._see_end(folder)
            self._compare(folder, now)
        for folder in self.scanner.archives(found[1]):
            for name in folder.files:
                self._hint(folder.path + b"/" + name, now)

    def hint_change(self, path: bytes, now: float) -> None:
        """Something was written at `path` (below the data root), perhaps not yet to its end."""
        self._hint(path, now)

    def worth_watching(self) -> list[str]:
        """Absolute paths of the folders of the items that ended last."""
        root = os.fsdecode(self.scanner.root)
        kinds = [kind for kind in self.scanner.scope.kinds if kind in FOLDER_KINDS]
        return [os.path.join(root, kind, item) for _, item in self._recent for kind in kinds]

    def _hint(self, path: bytes, now: float) -> Key | None:
        folder = self.scanner.one(path)
        if folder is None:
            return None
        ((name, local),) = folder.files.items()
        key = Key(self.ledger.folder(self.number, folder.path, folder.kind, folder.item), name)
        self._mark(key, folder.kind, name, local, 0, now)
        return key

    def _everything(self, now: float) -> Iterator[None]:
        live: dict[bytes, str] = {}
        for folder in self.scanner.everything():
            self._see_end(folder)
            if folder.live:
                live[folder.item] = folder.kind
            self._compare(folder, now)
            yield
        self._live = live
        self.problem = ""

    def _see_end(self, folder: Folder) -> None:
        """An ended run without sums: it is looked at once more when all of it is sent."""
        if folder.path != folder.item or folder.live or not folder.item.startswith(_LOGS):
            return
        self._note_ended(folder)
        if RUN_NAME in folder.files and (SUMS_NAME not in folder.files or folder.item in self._live):
            self._ended.add(os.fsdecode(folder.item.partition(b"/")[2]))

    def _note_ended(self, folder: Folder) -> None:
        if RUN_NAME not in folder.files:
            return
        ended = folder.files[RUN_NAME].mtime_ns
        if len(self._recent) >= MAX_ITEMS and ended <= self._recent[0][0]:
            return
        item = os.fsdecode(folder.item.partition(b"/")[2])
        recent = [known for known in self._recent if known[1] != item]
        self._recent = sorted([*recent, (ended, item)])[-MAX_ITEMS:]

    def settle(self, now: float) -> None:
        """Write the sums of ended runs that are on the master, one at a time."""
        if not self._open_root():
            return
        for item in list(self._ended)[:SETTLE_AT_ONCE]:
            if any(os.fsdecode(job.due.item).endswith(item) for job in self._flying.values()):
                continue
            try:
                path = settle(self.ledger, self.number, self.scanner.root, self.descriptor, item)
            except SettleError as error:
                self.problem = str(error)
                path = b""
            if path is None:
                continue
            self._ended.discard(item)
            if path:
                self.hint_file(path, now)

    def _look_at_live(self, now: float) -> None:
        began = time.monotonic()
        for item in {os.fsdecode(item.partition(b"/")[2]) for item in self._live}:
            for folder in self.scanner.item(item):
                self._see_end(folder)
                self._compare(folder, now)
        self._live_due = now + max(LIVE_S, LIVE_SHARE * (time.monotonic() - began))

    def _compare(self, folder: Folder, now: float) -> None:
        if folder.live:
            self._live[folder.item] = folder.kind
        known = self.ledger.states(self.number, folder.path)
        if not known and not folder.files:
            return
        number = self.ledger.folder(self.number, folder.path, folder.kind, folder.item)
        for name, local in folder.files.items():
            row = known.pop(name, None)
            if row is not None and row[0] == CLEAN:
                same = (local.ino, local.size, local.mtime_ns, local.ctime_ns) == row[1:5]
                if same and row[5] == local.size:
                    continue
            elif row is not None and row[0] != GONE:
                continue
            self._mark(Key(number, name), folder.kind, name, local, row[5] or 0 if row else 0, now)
        for name, row in known.items():
            newer = folder.kind == CHECKPOINT and plan.superseded(name, folder.files)
            path = folder.path + b"/" + name if newer else None
            self._vanished(Key(number, name), sent=row[5] is not None, state=row[0], superseded=path)

    def _mark(self, key: Key, kind: str, name: bytes, local: Local, acked: int, now: float) -> None:
        if key in self._flying:
            self._again.add(key)
            return
        pending = max(0, local.size - acked) if plan.is_growing(kind, name) else local.size
        self.ledger.mark(key, self.number, plan.priority(kind, pending), pending, now)

    def _vanished(self, key: Key, *, sent: bool, state: int, superseded: bytes | None = None) -> None:
        if key in self._flying or state not in {CLEAN, 1, PARKED}:
            return
        if sent:
            self.ledger.set_state(key, GONE)
            if self.mirror and superseded is not None:
                self._orphans.append(Temp(superseded, key, Local(0, 0, 0, 0), 0))
        else:
            self.ledger.forget(key)

    # -- sending ---------------------------------------------------------------------------

    def dispatch(self, now: float) -> None:
        """Give idle senders what is due."""
        if not self.health.may_try(now) or not self._open_root():
            return
        for number in self.link.idle():
            if self.health.tries and self.link.busy:
                return  # one sender tries first
            self._give(number, now)

    def _give(self, number: int, now: float) -> None:
        urgent_only = number == 0 and self.link.connections > 1
        prios = (plan.URGENT, plan.SOON if urgent_only else plan.LAST)
        jobs = self._jobs(self.ledger.due(self.number, now, prios, BATCH_FILES + len(self._flying)), now)
        status = self._fleet_due(now)
        if not jobs and not self._orphans and not status:
            return
        remove, self._orphans = self._orphans[:1000], self._orphans[1000:]
        self.ledger.add_temps(
            self.number,
            (
                Temp(job.temp, job.due.key, local, job.start)
                for job, local in jobs
                if isinstance(job.action, Whole)
            ),
        )
        for job, local in jobs:
            self._flying[job.due.key] = job
            self.ledger.attempt(job.due, _attempt(job, local))
        self.ledger.commit()
        removed = tuple(temp.temp for temp in remove)
        batch = Batch(self.number, self.descriptor, tuple(job for job, _ in jobs), removed, status)
        self.link.give(number, batch)

    def _jobs(self, due: list[Due], now: float) -> list[tuple[Job, Local]]:
        jobs: list[tuple[Job, Local]] = []
        total = 0
        for row in due:
            if row.key in self._flying:
                continue
            planned = self._job(row, now)
            if planned is None:
                continue
            size = _size(planned[0])
            if jobs and (total + size > BATCH_BYTES or len(jobs) >= BATCH_FILES):
                break
            jobs.append(planned)
            total += size
        return jobs

    def _job(self, due: Due, now: float) -> tuple[Job, Local] | None:
        full = os.path.join(self.scanner.root, due.path)
        try:
            found = os.lstat(full)
        except OSError:
            self._vanished(due.key, sent=due.record is not None, state=1)
            return None
        local = Local(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        action = self._decide(due, full, local, now)
        if isinstance(action, Nothing):
            self.ledger.set_state(due.key, CLEAN)
            return None
        if isinstance(action, Wait):
            self.ledger.retry_at(due.key, now + max(0.1, action.seconds), failed=False)
            return None
        paced = self._paced.get(due.key, 0.0) + PACE_S
        if isinstance(action, Append) and now < paced:
            self.ledger.retry_at(due.key, paced, failed=False)
            return None
        return self._resumed(Job(due, action, _temp(due.path)), local), local

    def _decide(self, due: Due, full: bytes, local: Local, now: float) -> plan.Action:
        growing = plan.is_growing(due.kind, due.key.name)
        owned: Owned | None = self.committed.lookup(full) if growing else None  # outputs are of these names
        rest = plan.OVERDUE_S if due.key in self._ready else time.time() - local.mtime_ns / 1e9
        return plan.decide(local, owned, due.record, growing=growing, rest_s=rest, waited_s=now - due.seen)

    def _resumed(self, job: Job, local: Local) -> Job:
        partial = self._partial.pop(job.due.key, None)
        if partial is None:
            return job
        if isinstance(job.action, Whole) and partial.local == local and not job.action.cut:
            return Job(job.due, job.action, partial.temp, partial.acked)
        self._orphans.append(partial)
        return job

    def _fleet_due(self, now: float) -> bytes:
        """This machine's status file, when it is time to leave it on the master."""
        at, last = self._fleet
        if not self.host or now - at < fleet.EVERY_S:
            return b""
        runs = []
        steps = self.committed.time_steps()
        for item in sorted({os.fsdecode(item.partition(b"/")[2]) for item in self._live}):
            run = self.scanner.run(item)
            if run is not None and run.live:
                runs.append({"item": item, "state": run.state, "time_step": steps.get(item, run.time_step)})
        content = fleet.compose(self.host, fleet.version(), runs, self.ledger.backlog(self.number))
        self._fleet = (now, content)
        return content if runs or content != last else b""

    def _open_root(self) -> bool:
        if self.descriptor < 0:
            try:
                self.descriptor = os.open(self.scanner.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                self.problem = f"{os.fsdecode(self.scanner.root)}: {error.strerror}"
                return False
        return True

    # -- results ---------------------------------------------------------------------------

    def confirmed(self, note: Confirmed) -> None:
        """A large file is on its way."""
        self.ledger.temp_progress(self.number, note.job.temp, note.confirmed)
        self._progress[note.job.due.key] = note.confirmed

    def outcome(self, outcome: Outcome, now: float) -> None:
        """A sender has come back."""
        self.link.done(outcome)
        self.counters.written_bytes += outcome.written_bytes
        self.ledger.drop_temps(self.number, outcome.removed)
        for result in outcome.results:
            self._land(result.job)
            if isinstance(result, Sent):
                self._sent(result, now)
            else:
                self._failed(result, now)
        open_jobs = jobs_without_result(outcome)
        for job in open_jobs:
            self._land(job)
            self._keep_partial(job)
        if outcome.error is not None:
            self._orphans += [Temp(temp, Key(0, b""), Local(0, 0, 0, 0), 0) for temp in outcome.batch.remove]
            self._link_failed(outcome.error, now)
        elif not any(isinstance(r, Failed) and isinstance(r.error, FullError) for r in outcome.results):
            self.health = Health()

    def _land(self, job: Job) -> None:
        self._flying.pop(job.due.key, None)
        self._ready.discard(job.due.key)

    def _sent(self, result: Sent, now: float) -> None:
        job, key = result.job, result.job.due.key
        self.ledger.sent(key, result.record, time.time())
        if _uses_temp(job):
            self.ledger.drop_temps(self.number, [job.temp])
        if not job.due.item_made:
            self.ledger.made_item(self.number, job.due.item)
        self._progress.pop(key, None)
        if len(self._paced) > MAX_PACED:
            self._paced.clear()
        self._paced[key] = now
        self.counters.sent_files += 1
        self.counters.sent_bytes += _size(job)
        self.counters.last_success = time.time()
        if result.kept:
            self.counters.kept += 1
            self.ledger.set_meta(f"kept:{result.kept.decode('utf-8', 'backslashreplace')}", time.time())
        wanted = job.action.upto if isinstance(job.action, Append) else job.action.size
        if key in self._again or result.record.acked < wanted:
            self._again.discard(key)
            prio = plan.priority(job.due.kind, 0)
            self.ledger.mark(key, self.number, prio, max(0, wanted - result.record.acked), now)
            self.ledger.retry_at(key, now + PACE_S, failed=False)

    def _failed(self, result: Failed, now: float) -> None:
        job, error, key = result.job, result.error, result.job.due.key
        self._again.discard(key)
        if _uses_temp(job):
            self._orphans.append(Temp(job.temp, key, Local(0, 0, 0, 0), 0))
        if isinstance(error, MovedError):
            self.ledger.park_item(self.number, job.due.item, error.why, error.hint)
        elif isinstance(error, DeniedError):
            self.ledger.set_state(key, PARKED, str(error), error.hint)
        elif isinstance(error, NotYetError):
            self.ledger.retry_at(key, now + plan.REST_S, failed=False)
        elif isinstance(error, MissingError):
            self.ledger.forget_copy(key)
            self.ledger.retry_at(key, now, failed=True)
        elif isinstance(error, FullError):
            self.ledger.retry_at(key, now, failed=False, reason=str(error))
            self.health = self.health.failed(now, random.random(), error.why, error.hint)  # noqa: S311
        else:
            self._try_later(job, error, now)

    def _try_later(self, job: Job, error: Exception, now: float) -> None:
        key, tries = job.due.key, job.due.tries
        if isinstance(error, FileNotFoundError):
            self._vanished(key, sent=job.due.record is not None, state=1)
            return
        if isinstance(error, OSError) and error.errno in {
            errno.EACCES,
            errno.EPERM,
            errno.ELOOP,
            errno.EINVAL,
        }:
            self.ledger.set_state(key, PARKED, f"cannot be read here: {error.strerror}", "chmod or chown it")
            return
        if isinstance(error, SourceChangedError):
            self.ledger.retry_at(key, now + plan.REST_S, failed=True)
            return
        hint = error.hint if isinstance(error, TargetError) else ""
        if tries >= plan.MAX_TRIES:
            self.ledger.set_state(
                key, PARKED, str(error), hint or "look at the file, then: rla-agent replicate retry"
            )
            return
        wait = plan.backoff_s(tries + 1, random.random())  # noqa: S311 - jitter
        self.ledger.retry_at(key, now + wait, failed=True, reason=str(error))

    def _keep_partial(self, job: Job) -> None:
        confirmed = self._progress.pop(job.due.key, job.start)
        for temp in self.ledger.temps(self.number) if confirmed >= RESUME_BYTES else ():
            if temp.temp == job.temp:
                self._partial[job.due.key] = temp
                return
        if _uses_temp(job):
            self._orphans.append(Temp(job.temp, job.due.key, Local(0, 0, 0, 0), 0))

    def _link_failed(self, error: TargetError, now: float) -> None:
        jitter = random.random()  # noqa: S311 - jitter
        if isinstance(error, LoginError):
            self.health = self.health.refused(now, jitter, str(error), error.hint)
        elif isinstance(error, (HostKeyError, BlockedError)):
            self.health = self.health.stopped(str(error), error.hint)
        else:
            self.health = self.health.failed(now, jitter, str(error), error.hint)

    def retry(self) -> None:
        """Somebody acted: try again at once."""
        self.health = Health()

    def close(self) -> None:
        """Stop sending."""
        self.link.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _attempt(job: Job, local: Local) -> Attempt:
    if isinstance(job.action, Append):
        return Attempt(job.action.upto, None)
    return Attempt(job.action.size, local.mtime_ns // 10**9)


def _uses_temp(job: Job) -> bool:
    return isinstance(job.action, Whole) or _size(job) > PAGED_BYTES


def _size(job: Job) -> int:
    return job.action.upto - job.action.offset if isinstance(job.action, Append) else job.action.size


def _temp(path: bytes) -> bytes:
    folder, slash, _ = path.rpartition(b"/")
    return folder + slash + b".rla-tmp-" + secrets.token_hex(8).encode()
