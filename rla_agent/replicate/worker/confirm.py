"""Confirmation of acknowledged files.

Files that the master has lost are sent again. A server acknowledges bytes that are in its memory only. If it
loses power then, files are empty, short or missing, and the ledger does not know. So every file that was sent
is confirmed once:

- *Whole files* are synced before they get their name (`session`, rule 8). *Appends* are not, because a sync
  waits for the disk: the appends to all logs of a database are synced together, `RESTED_S` after the last row
  or `SYNC_S` after the first unsynced one. Synced files are confirmed after `CONFIRM_S` (`ledger`), if no
  session ended meanwhile.
- *Anything else is checked*: files that were unconfirmed when a session ended, as soon as the next one begins
  (after a broken session or a restart of this process one is begun for that), and, where the server cannot
  sync, once more after `CONFIRM_S`. Size, time and checksum must be unchanged; of a large file only the
  checksums of its first and last 4 KiB are compared.

Where an item folder is missing of which nothing was confirmed, it may have been moved or lost, and it is made
again. A file that the master lost and that is no longer here is reported as `lost` in the ledger.

`check_all` runs on a sender's thread, the rest belongs to the worker's.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

from rla_agent.replicate.backend.errors import LinkError, TargetError
from rla_agent.replicate.backend.remote_stat import Probe, RemoteStat, StatWithParts, same
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.ledger import CONFIRM_S, Ledger
from rla_agent.replicate.ledger_rows import Key, Unconfirmed
from rla_agent.replicate.worker import file_decision
from rla_agent.replicate.worker.file_decision import SMALL_BYTES
from rla_agent.replicate.worker.sharded_lost import of_whole, whole_there
from rla_agent.replicate.worker.sharded_order import is_in_making
from rla_agent.replicate.worker.source_file import EDGE_BYTES
from rla_client.contract.text.terminal_text import printable

RESTED_S: Final = 2.0  # after the last append a log is synced …
SYNC_S: Final = 10.0  # … and while it grows so often: a thousand machines are a hundred rounds a second
MAX_UNSYNCED: Final = 20_000  # files that wait for a sync; others are checked later
SYNCS_A_BATCH: Final = 256
CHECKS_A_BATCH: Final = 64
CHECK_BYTES: Final = 4 << 20  # bytes that are read for one batch
CONFIRM_EVERY_S: Final = 1.0
MAX_NAMED: Final = 10  # lost files in one line of the log
log = logging.getLogger("rla_agent.replicate.worker.confirm")
What: TypeAlias = Literal["there", "missing", "differs", "unknown", "replaced"]


class Sessions(Protocol):
    """Times at which a target's last session began and ended; 0 before the first.

    In monotonic seconds; `ended_on` in Unix seconds.
    """

    begun_at: float
    ended_at: float
    broken_at: float
    ended_on: float


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of a file's check. `synced`: it is on the master's disk.

    `what` is `replaced` where another save has the place of the sharded checkpoint that it is of, or none.
    """

    file: Unconfirmed
    what: What
    synced: bool


@dataclass(frozen=True, slots=True)
class Unsynced:
    """A sent file with `acked` bytes, perhaps in the master's memory only."""

    key: Key
    path: bytes
    acked: int


def check_all(session: TargetSession, files: Sequence[Unconfirmed]) -> list[Checked]:
    """Check files on the master, after syncing them where it can.

    Raises:
        LinkError: the session broke.
    """
    synced = session.sync([file.path for file in files]) if session.syncs else [False] * len(files)
    found = session.probe([Probe(file.path, _spans(file)) for file in files])
    wholes: dict[bytes, What] = {}
    return [
        Checked(file, _of_ours(session, file, _judge(file, one, is_synced), wholes), bool(is_synced))
        for file, one, is_synced in zip(files, found, synced, strict=True)
    ]


def _of_ours(session: TargetSession, file: Unconfirmed, what: What, wholes: dict[bytes, What]) -> What:
    """The fault of a file of a checkpoint that others may replace, unless they have replaced it.

    `wholes`: known `whole.json` of the saves that are checked, by their sums.
    """
    if file.of_whole is None or what not in {"missing", "differs"}:
        return what
    found = wholes.get(file.of_whole)
    if found is None:
        try:
            found = "there" if whole_there(session, file.path, file.of_whole) is not None else "replaced"
        except LinkError:
            raise
        except TargetError:
            found = "unknown"
        wholes[file.of_whole] = found
    return what if found == "there" else found


def _spans(file: Unconfirmed) -> tuple[tuple[int, int], ...]:
    """The spans of a file that are read: all of a small one, else the edges that the ledger has sums of."""
    size = file.record.acked
    if size <= SMALL_BYTES:
        return ((0, size),) if size else ()
    edge = min(EDGE_BYTES, size)
    return (0, edge), (size - edge, edge)


def _judge(file: Unconfirmed, found: StatWithParts | TargetError, is_synced: bool | None) -> What:
    if is_synced is None:
        return "differs"  # the sync failed: the content was read from the server's memory
    if not isinstance(found, StatWithParts):
        return "unknown"
    record = file.record
    if found.state is None:
        return "missing"
    if not same(found.state, RemoteStat(record.acked, record.remote_mtime_s)):
        return "differs"
    sums = [zlib.crc32(part) for part in found.parts]
    expected = [record.crc] if len(sums) == 1 else [record.head_crc, record.tail_crc]
    return "there" if sums == expected[: len(sums)] else "differs"


class Confirmations:
    """Acknowledged, unconfirmed files of a database's master. `mended`: files that it had lost."""

    def __init__(self, ledger: Ledger, number: int, *, needed: bool) -> None:
        """`number`: of the database; `needed`: False where acknowledged bytes are durable (a bucket)."""
        self._ledger, self._number, self._needed = ledger, number, needed
        self._unsynced: dict[Key, Unsynced] = {}
        self._first = self._last = 0.0  # when the first and the last of them were sent
        self._checking: set[Key] = set()
        self._doubted = self._due = 0.0
        self.mended = 0
        if needed:
            self.doubt()
        else:
            ledger.confirm_all(number)

    def doubt(self) -> None:
        """Make all checks due, after a session has ended or on request."""
        self._ledger.doubt(self._number)
        self._doubted = time.monotonic()

    def is_checked(self, key: Key) -> bool:
        """Whether a file is being checked just now, so that nothing of it may be sent."""
        return key in self._checking

    def sent(self, key: Key, path: bytes, acked: int, now: float, *, synced: bool, can_sync: bool) -> None:
        """Note a file that was sent; `can_sync`: the master can sync it."""
        if not self._needed:
            return
        self._ledger.acknowledged(key, time.time() + CONFIRM_S, synced=synced)
        self._unsynced.pop(key, None)
        if can_sync and not synced and len(self._unsynced) < MAX_UNSYNCED:
            self._first = self._first if self._unsynced else now
            self._last = now
            self._unsynced[key] = Unsynced(key, path, acked)

    def take_syncs(self, now: float) -> tuple[Unsynced, ...]:
        """Files to sync now: when one is due, all are, since they share the cost."""
        if not self._unsynced or (now - self._last < RESTED_S and now - self._first < SYNC_S):
            return ()
        return tuple(self._unsynced.pop(key) for key in list(self._unsynced)[:SYNCS_A_BATCH])

    def take_checks(self, flying: Container[Key], sessions: Sessions, now: float) -> tuple[Unconfirmed, ...]:
        """Files to check now, none that is being sent."""
        if not self._needed:
            return ()
        if self._doubted < sessions.ended_at and max(sessions.broken_at, sessions.begun_at) > self._doubted:
            self.doubt()
        if now >= self._due:
            self._due = now + CONFIRM_EVERY_S
            self._ledger.confirm_synced(self._number, time.time(), sessions.ended_on)
        taken: list[Unconfirmed] = []
        size = 0
        rows = self._ledger.unconfirmed(self._number, time.time(), CHECKS_A_BATCH + len(self._checking))
        for file in rows:
            size += sum(count for _, count in _spans(file))
            if size > CHECK_BYTES and taken:
                break
            if file.key not in self._checking and file.key not in flying:
                told = self._ledger, self._number, file.path, file.item
                taken.append(replace(file, of_whole=of_whole(*told) if file.here else None))
        self._checking.update(file.key for file in taken)
        return tuple(taken)

    def waits(self) -> bool:
        """Whether a check is due."""
        return self._needed and self._ledger.any_unconfirmed(self._number, time.time())

    def synced(self, files: Sequence[Unsynced]) -> None:
        """Note files that are on the master's disk."""
        for file in files:
            self._ledger.set_synced(file.key, file.acked)

    def checked(self, asked: Sequence[Unconfirmed], results: Sequence[Checked]) -> None:
        """Take the results of checks; files without a result are checked again."""
        self._checking.difference_update(file.key for file in asked)
        wrong = []
        mended = 0
        for one in results:
            file = one.file
            if one.what in {"there", "unknown"}:
                sure = one.what == "there" and (one.synced or time.time() - file.sent_at >= CONFIRM_S)
                again = max(file.sent_at, time.time() if one.what == "unknown" else 0.0) + CONFIRM_S
                self._ledger.confirm(file.key, file.sent_at, None if sure else again)
                continue
            published = one.what == "missing" and is_in_making(file.path)
            if published or one.what == "replaced":  # another machine gave it its name, or replaced it
                self._ledger.confirm(file.key, file.sent_at, time.time() + CONFIRM_S)
                continue
            wrong.append(file)
            if not file.here:
                self._ledger.confirm(file.key, file.sent_at)
                name = file.path.decode("utf-8", "backslashreplace")
                self._ledger.set_meta(f"lost:{name}", time.time())
            elif one.what == "missing":
                mended += self._ledger.lost(
                    file.key, file_decision.priority(file.kind, file.record.local.size)
                )
            else:
                mended += self._ledger.send_anew(file.key)
        for item in {file.item for file in wrong}:
            self._ledger.forget_lost_item(self._number, item)
        self.mended += mended
        if wrong:
            self._tell(wrong)

    def _tell(self, wrong: Sequence[Unconfirmed]) -> None:
        names = [printable(file.path.decode("utf-8", "backslashreplace")) for file in wrong[:MAX_NAMED]]
        more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
        log.warning(
            "the master had acknowledged %d file(s) that it has lost or damaged (did it lose its power?); "
            "what is here is sent again: %s%s",
            len(wrong),
            ", ".join(names),
            more,
        )
