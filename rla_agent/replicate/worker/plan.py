"""What to do about one file, and when a target may be tried again. Pure: no I/O, no clock.

`decide` compares the file as it lies here (`Local`), what the agent says of it (`Owned`: it only
grows, and so far it is committed) and what the ledger holds (`Record`) and returns one action.
Three sorts of files: *owned* ones go up to their committed size; *growing* ones (names of logs,
without word from the agent) up to their last whole record; all others go whole, once they rest.

`pieces` cuts what is appended to a growing file into parts that each end with a whole record, so a reader
on the master sees rows, never half ones. Where a record ends the file's encoder knows
(`outputs.formats.ends_of`). A write(2) that crosses a page makes the file longer page by page (ext4,
tmpfs), so a reader may see the part before the page's end. With `page_of` only single records cross pages,
by a write of their own, which leaves a few hundred nanoseconds; nothing over SFTP can leave less.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from rla_client.contract.layout import CHECKPOINT, LOG, OUTPUT_NAMES

if TYPE_CHECKING:
    from rla_agent.outputs.formats import Ends

REST_S: Final = 1.0  # a file that nobody announced goes once it was left alone so long …
OVERDUE_S: Final = 15.0  # … or has waited so long
TORN_TAIL_REST_S: Final = 10.0  # then half a record at the end is all that will come
WHOLE_BACKLOG_BYTES: Final = 1 << 20  # more than this goes by temp + rename,
WHOLE_BACKLOG_FACTOR: Final = 20  # if little of the file is on the master
SMALL_BYTES: Final = 128 << 10  # batched, up to here
FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 300.0
MAX_LOGINS: Final = 3  # sshd's PerSourcePenalties ban after bad logins
LOGIN_REST_S: Final = 3600.0  # after so many; no ban and no lock of an account counts so far apart
PACE_S: Final = 0.5  # between two looks at the content of one growing file,
READ_SHARE: Final = 20  # and at least so many times as long as the last one took to read what was sent before
MAX_RUNS: Final = 20_000  # whose appends are remembered
MAX_TRIES: Final = 12  # of one file whose trouble is not the link's

URGENT, SOON, LATER, LAST = range(4)  # priorities: live and small log files; small; large; checkpoints

_NAMES: Final = "|".join(  # progress.csv, progress.<label>.csv, log.<label>.txt, …
    rf"{stem}(\.[^/]*)?\.txt" if ending == "txt" else rf"{stem}[^/]*\.{ending}"
    for stem, _, ending in (name.partition(".") for name in OUTPUT_NAMES.values())
)
_GROWING: Final = re.compile(rf"({_NAMES}|system\.csv|events\.out\.tfevents\..*)".encode())
PAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Local:
    """A file here. Times in nanoseconds.

    `mode`: permission bits that its copies get (`copy_mode`); None: not known, in rows of older ledgers. A
    change of them shows in the ctime, so they do not tell versions apart.
    """

    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int | None = field(default=None, compare=False)

    @property
    def version(self) -> tuple[int, int, int, int]:
        """What tells versions apart: inode, size, modification and change time."""
        return self.ino, self.size, self.mtime_ns, self.ctime_ns


@dataclass(frozen=True, slots=True)
class Owned:
    """The agent's word on an output: `size` bytes of `generation` are committed; `final`: no more come."""

    generation: int
    size: int
    final: bool


@dataclass(frozen=True, slots=True)
class Record:
    """The ledger's row: the file as it was when it was last sent, and what the master got.

    Attributes:
        local: state here at that moment.
        generation: of an owned output, else 0.
        acked: bytes on the master.
        crc: CRC-32 of these bytes; head_crc, tail_crc: of their first and last 4 KiB.
        sha256: of these bytes, where they went as a whole; else None.
        remote_mtime_s: modification time on the master after our last write.
    """

    local: Local
    generation: int
    acked: int
    crc: int
    head_crc: int
    tail_crc: int
    sha256: bytes | None
    remote_mtime_s: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """The master has it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again in `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Whole:
    """Send `size` bytes by temp name and rename.

    `cut`: only up to the last whole record; `compare`: only if the content differs from the
    record's; `grows`: that the file grows meanwhile does no harm.
    """

    size: int
    generation: int = 0
    cut: bool = False
    compare: bool = False
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Send bytes from `offset` to `upto`.

    `cut`: only up to the last whole record; `owned`: the agent wrote what lies before `offset`, and vouches
    for it. Any other file may have been rewritten there, so all of that is compared with what was sent.
    """

    offset: int
    upto: int
    generation: int = 0
    cut: bool = False
    owned: bool = False


@dataclass(frozen=True, slots=True)
class Permit:
    """The master has the content; it is to get these permission bits."""

    mode: int


Action: TypeAlias = "Nothing | Wait | Whole | Append | Permit"


def copy_mode(found: int) -> int:
    """Permission bits of copies of a file of mode `found`: read, write, execute; the owner can read them."""
    return found & 0o777 | 0o400


def is_growing(kind: str, name: bytes) -> bool:
    """Whether a file of this name only grows, as long as nobody rewrites it."""
    return kind == LOG and _GROWING.fullmatch(name) is not None


def decide(
    local: Local, owned: Owned | None, record: Record | None, *, growing: bool, rest_s: float, waited_s: float
) -> Action:
    """What to do about a file.

    Args:
        local: the file as it lies here.
        owned: the agent's word, if it is one of its outputs.
        record: the ledger's row, if it was sent before.
        growing: `is_growing`.
        rest_s: seconds since it was last written.
        waited_s: seconds since it was first seen as changed.
    """
    action = _decide(local, owned, record, growing=growing, rest_s=rest_s, waited_s=waited_s)
    if isinstance(action, Nothing) and record is not None and local.mode not in {None, record.local.mode}:
        assert local.mode is not None
        return Permit(local.mode)
    return action


def _decide(  # noqa: PLR0911 - one return per case
    local: Local, owned: Owned | None, record: Record | None, *, growing: bool, rest_s: float, waited_s: float
) -> Action:
    if record is not None and record.generation < 0:  # found to differ
        if owned is not None:
            return Whole(min(owned.size, local.size), owned.generation, grows=True)
        return Whole(local.size, grows=growing)
    if owned is not None:
        upto = min(owned.size, local.size)
        return _grow(upto, owned.generation, local, record, cut=False, owned=True)
    if growing:
        cut = rest_s < TORN_TAIL_REST_S
        if record is not None and local.size == record.acked and local != record.local:
            return Whole(local.size, record.generation, cut=cut, compare=True, grows=True)
        generation = record.generation if record is not None else 0
        return _grow(local.size, generation, local, record, cut=cut)
    if record is not None and local == record.local and local.size == record.acked:
        return Nothing()
    if rest_s < REST_S and waited_s < OVERDUE_S:
        return Wait(REST_S - rest_s if rest_s >= 0 else REST_S)
    untouched = record is not None and (local.size, local.mtime_ns) == (
        record.local.size,
        record.local.mtime_ns,
    )
    return Whole(local.size, compare=untouched)


def _grow(
    upto: int, generation: int, local: Local, record: Record | None, *, cut: bool, owned: bool = False
) -> Action:
    if record is None or record.generation != generation or record.acked > upto:
        return Whole(upto, generation, cut=cut, grows=True)
    if record.local.ino != local.ino:
        return Whole(upto, generation, cut=cut, compare=True, grows=True)
    if record.acked == upto:
        return Nothing()
    backlog = upto - record.acked
    if backlog > WHOLE_BACKLOG_BYTES and backlog > WHOLE_BACKLOG_FACTOR * record.acked:
        return Whole(upto, generation, cut=cut, grows=True)
    return Append(record.acked, upto, generation, cut=cut, owned=owned)


def pieces(data: bytes, ends_of: Ends, limit: int, *, cut: bool, page_of: int | None = None) -> list[bytes]:
    """Split `data`, which begins at a record, into parts of whole records.

    Args:
        data: the bytes.
        ends_of: tells where records end.
        limit: bytes that a part should not exceed; a longer record is a part of its own.
        cut: leave out an unfinished record at the end; else it is the end of the last part.
        page_of: where in the file `data` goes; then no part of several records crosses a page.

    Returns:
        The parts; joined they are `data`, or `data` without its unfinished end.
    """
    ends = ends_of(data)
    if not cut and (not ends or ends[-1] < len(data)):
        ends.append(len(data))
    parts = []
    start = last = 0
    for end in ends:
        if last > start and (end - start > limit or _crosses(page_of, start, end)):
            parts.append(data[start:last])
            start = last
        last = end
    if last > start:
        parts.append(data[start:last])
    return parts


def _crosses(page_of: int | None, start: int, end: int) -> bool:
    return page_of is not None and (page_of + start) // PAGE_BYTES != (page_of + end - 1) // PAGE_BYTES


def pace_s(read_s: float) -> float:
    """Seconds until a growing file is read again, after one that took `read_s`: 5 % of the time at most."""
    return max(PACE_S, READ_SHARE * read_s)


def priority(kind: str, size: int) -> int:
    """Small and live files first, checkpoints behind."""
    if kind == CHECKPOINT:
        return LAST
    if size > SMALL_BYTES:
        return LATER
    return URGENT if kind == LOG else SOON


def backoff_s(tries: int, random: float) -> float:
    """Full jitter: anything from 0 to min(5 min, 1 s · 2^tries), by `random` in [0, 1)."""
    return random * float(min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(tries, 20)))


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a target may be tried. Times on the monotonic clock, which stands while suspended.

    Attributes:
        tries: failures in a row.
        logins: refused logins in a row.
        not_before: no attempt before this.
        reason, fix: of the last failure, whatever the one before it was.
        blocked: somebody must act; a try looks whether they did, and sends nothing until it is so.
    """

    tries: int = 0
    logins: int = 0
    not_before: float = 0.0
    reason: str = ""
    fix: str = ""
    blocked: bool = False

    def may_try(self, now: float) -> bool:
        """Whether a connection may be made at `now`."""
        return now >= self.not_before

    def failed(self, now: float, random: float, reason: str, fix: str) -> Health:
        """After a failure that may pass."""
        not_before = now + backoff_s(self.tries, random)
        return Health(self.tries + 1, self.logins, not_before, reason, fix)

    def refused(self, now: float, random: float, reason: str, fix: str) -> Health:
        """After a refused login: three, then somebody must act, and the next try is an hour away."""
        after = replace(self.failed(now, random, reason, fix), logins=self.logins + 1)
        if after.logins < MAX_LOGINS:
            return after
        return replace(after, blocked=True, not_before=now + LOGIN_REST_S * (1 + random))

    def stopped(self, now: float, random: float, reason: str, fix: str) -> Health:
        """Somebody must act: a foreign host key, no root, no credentials. It is looked at again as above."""
        return replace(self.failed(now, random, reason, fix), blocked=True)


class Appends:
    """When runs are appended to where each request costs: one takes what all files of a run got."""

    def __init__(self) -> None:
        # by run: when the last append was made, and when the next one goes; 0: nothing waits for it yet
        self._runs: dict[bytes, tuple[float, float]] = {}

    def next(self, item: bytes, seen: float, now: float, every_s: float) -> float:
        """When the next append to a run is: at once after a pause, else `every_s` after what waits came.

        Counted from the last append instead, what came just after that would wait as long, for more requests.

        Args:
            item: the run.
            seen: when the first of what waits was seen.
            now: on the same clock.
            every_s: 0: at once.

        Returns:
            `now` if it is now: then it counts as made, and all files of the run go with it.
        """
        last, at = self._runs.get(item, (float("-inf"), 0.0))
        if last == now or every_s <= 0:
            return now
        if at <= last and 0 <= now - last < every_s:
            at = min(max(seen, last), now) + every_s
        if not now < at <= now + every_s:
            last, at = now, 0.0
        if len(self._runs) > MAX_RUNS:
            self._runs.clear()
        self._runs[item] = last, at
        return max(at, now)
