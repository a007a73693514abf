"""Outbox of a training process.

`put` appends one frame to the segment of its stream (rla_client/stream/segment_writer.py) and returns: from
then on the record survives this process. The agent reads the segment. It checks the size of an awake stream
four times a second; a hint, which has only the end of the stream, keeps it awake (SEND_INTERVAL_S), wakes it
after a pause, and is sent at once for an opening, a job, a flush and the end. Hints are not acknowledged.

A failure of disk, agent or network raises nothing. When the spool cannot be written, frames wait in order in
memory (WAITING_MAX_BYTES) and are written by a later call; beyond that, and beyond the run's share of the
spool (`Quota`), records are counted as lost with one warning a minute. Media are refused first, then texts,
rows last.

Threads share one re-entrant lock, which the logger also uses, so that order in the file is order of the
calls. After fork the child forgets everything at once and opens a stream of its own at its first record.

Signal handlers may log too, and may raise (see segment_writer.py). A waiting record stores the number of
frames before it at its first attempt, so that a retry does not write it twice.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rla_client.contract.agent.agent_process import agent_alive, memory_apart
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import PlaceError, SpoolError
from rla_client.contract.filesystem.safe_paths import is_there
from rla_client.contract.process.fork_hooks import at_fork, renew_lock
from rla_client.contract.spool.losses import LOST_MARK, ROW, Loss, count_text, merged, of_frame
from rla_client.contract.spool.opening import Continuation, Opening
from rla_client.contract.spool.protocol import HANDED_OVER, FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import BLOBS_NAME
from rla_client.stream.messenger import NOT_FLUSHED, REFUSED_PAUSE_S, Flushed, Messenger
from rla_client.stream.quota import CHECK_BYTES, SHARE_MEDIA, SHARE_ROWS, SHARE_TEXT, Quota
from rla_client.stream.rare_warnings import warn_rarely
from rla_client.stream.segment_writer import OpeningFrame, SegmentWriter

SEND_INTERVAL_S = 2.0  # well below ASLEEP_S, after which the agent looks once a second; see docs/adr/0015
WAITING_MAX_BYTES = 16 << 20  # in memory while the spool cannot be written
RETRY_S = 0.05  # between attempts to write to a spool that refused
FULL_RECHECK_S = 1.0
SMALL_FILE_BYTES = 64 << 10  # a whole file in a frame: up to here as dear as a row, beyond as a picture
SHORT_BYTES = WAITING_MAX_BYTES + CHECK_BYTES  # one frame of any size, and those before the next check
SHARES: dict[int, int] = {
    FrameKind.TEXT: SHARE_TEXT,
    FrameKind.EVENT: SHARE_MEDIA,
    FrameKind.SAMPLES: SHARE_MEDIA,
}
WAITING_SAMPLES_BYTES = WAITING_MAX_BYTES // 4  # of those for other records; the rest is for rows


class _Failures(NamedTuple):
    """Files that an agent could not keep, as far as `flush_kept` has said so.

    Attributes:
        stream: whose files.
        since, media, others: as in `Flushed`.
    """

    stream: str = ""
    since: float = 0.0
    media: int = 0
    others: int = 0


class OutboxSettings(Protocol):
    """Settings of an outbox from the `AGENT` section."""

    @property
    def autostart(self) -> bool:
        """Whether an agent may be started from here."""

    @property
    def spool_max_bytes(self) -> int:
        """See `Quota`."""

    @property
    def min_free_fraction(self) -> float:
        """See `Quota`."""

    def secrets(self, config: Path, /) -> Mapping[str, str]:
        """Environment variables that an agent needs for the configuration."""


class Outbox:
    """One stream of one run, seen from the training process.

    Args:
        places: state and runtime folders.
        opening: of the stream; None: `as_worker` will return it.
        settings: of the AGENT section.
        as_worker: called in a forked child; returns the opening of its own stream, None when its records
            are to be dropped.
        config_path: handed to an agent that is started from here.
        lock: shared with the logger, so that order in the file is order of the calls.
        opening_wait_s: while `as_worker` returns None, records wait instead of being dropped, and at
            the end for so long; None: they are dropped.

    Attributes:
        autostart: whether an agent may be started from here.
    """

    def __init__(  # noqa: PLR0913 - one place makes it
        self,
        places: Places,
        opening: Opening | None,
        settings: OutboxSettings,
        *,
        as_worker: Callable[[], Opening | None] | None = None,
        config_path: Path | None = None,
        lock: threading.RLock | None = None,
        opening_wait_s: float | None = None,
    ) -> None:
        self.lock = lock or threading.RLock()
        self._forget_losses()
        self._failures = _Failures()
        self._places = places
        self._opening = opening
        self.autostart = settings.autostart
        self._quota = Quota(places.spool, settings.spool_max_bytes, settings.min_free_fraction)
        self._messenger = Messenger(
            places, autostart=settings.autostart, config_path=config_path, secrets=settings.secrets
        )
        self._as_worker = as_worker
        self._opening_wait_s = opening_wait_s
        self._warned: dict[str, float] = {}
        self._dropping = False
        self._reset()
        with self.lock:
            self._open_writer()
        self._messenger.start_agent_if_none()
        at_fork(self)

    def _forget_losses(self) -> None:
        self.lost = self.lost_others = 0  # rows; other things
        self.losses: tuple[Loss, ...] = ()
        self._untold: tuple[Loss, ...] = ()  # losses that were not reported to the agent
        self._told_before = self._reported = (0, 0)  # by earlier streams; by this one, too
        self._told_lost = 0  # by `flush_kept`

    def _reset(self) -> None:
        #: Of the stream's segments; None before it was opened.
        self._writer: SegmentWriter | None = None
        #: When the next message is due; Unix seconds.
        self._next_send = 0.0
        #: Time of the last fast `put`; Unix seconds.
        self._last_put = 0.0
        #: Frames that could not be written yet, each with `is_row`.
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        #: The first of them once it was tried, with the number of frames before it.
        self._writing: tuple[tuple[bytes, int], int] | None = None
        #: Before it nothing is opened or written that failed; monotonic seconds.
        self._next_try = 0.0
        #: Bytes since the last look at the quota.
        self._unchecked = 0
        #: Of these, bytes of other frames than rows.
        self._no_rows = 0
        #: So many bytes may be written before the next look.
        self._check_after = 0
        self._quota.begin("", None)
        #: Why rows are refused; None: they are not.
        self._full: str | None = None
        #: Of what is no row, a frame may be too much for its share.
        self._short = False
        #: Whether the segment is still in the spool could not be found out, or it could not be put back.
        self._unsure = False
        #: The stream was closed, or let go.
        self._closed = False
        #: `put` takes the slow way. `_update_blocked`; set without a call where no signal handler may come
        #: between.
        self._blocked = True

    def _update_blocked(self) -> None:
        """Find out whether `put` takes the slow way. No calls: a signal handler cannot come between."""
        free = self._full is None and not (self._closed or self._waiting or self._unsure)
        self._blocked = self._writer is None or not free

    def put(self, kind: int, payload: bytes, now: float, is_row: int = 0) -> bool:
        """Append one frame. On return it is in the page cache, waits in memory, or is counted as lost.

        Args:
            kind: a FrameKind.
            payload: msgpack.
            now: Unix seconds, only compared with earlier calls.
            is_row: 1 for a row.

        Returns:
            False when it was dropped: the spool is full, or the stream closed.

        Raises:
            FrameTooLargeError: the record is over the limit; nothing was written.
        """
        frame = encode_frame(kind, payload)
        with self.lock:
            if not is_row:
                if self._short and self._refuses(kind, frame):
                    return False
                self._no_rows += len(frame)
            if self._blocked:
                return self._put_slowly(kind, frame, is_row)
            writer: SegmentWriter = self._writer  # type: ignore[assignment]  # there is one unless blocked
            try:
                if not 0.0 < now - self._last_put < writer.trust_s:
                    writer.verify()
                self._last_put = now
                writer.append(frame, is_row)
            except SpoolError as error:
                self._keep(frame, is_row, str(error))
                return True
            self._unchecked += len(frame)
            if self._unchecked > self._check_after:
                self._check_quota()
            if now >= self._next_send or now < self._next_send - SEND_INTERVAL_S:
                self._send(now)
        return True

    def job(self, kind: str, fields: dict[str, Any]) -> bool:
        """Request a job of the agent: it gets `fields` (plain data) once.

        Returns:
            As for `put`: False when it will not be done, also where its blob exceeds the share.
        """
        with self.lock:
            if (blob := fields.get("blob")) is not None and not self._takes_blob(blob):
                return False
            taken = self.put(FrameKind.JOB, pack([kind, fields]), time.time())
            self.push()
        return taken

    def file(self, kind: str, path: str, content: bytes) -> bool:
        """Have the agent keep `content` durably as `path` in the item folder of `kind`; as for `put`."""
        return self.put(FrameKind.FILE, pack([kind, path, content]), time.time())

    def lose(self, kind: str, name: str, reason: str) -> None:
        """Count the loss of something other than a row, and report it to the agent."""
        with self.lock:
            self._lose([Loss(kind, name, reason)])
            self._report_lost()

    def push(self) -> None:
        """Send the pending hint now instead of within SEND_INTERVAL_S."""
        with self.lock:
            if not self._blocked:
                self._send(time.time())

    def close(self, state: str, reason: str) -> None:
        """Record the run's end `state` and close the stream. Further records are dropped."""
        with self.lock:
            if self._closed:
                return
            self._write_or_lose()
            now = time.time()
            self.put(FrameKind.CLOSE, pack([state, reason, now]), now)
            self.push()
            self._waiting.clear()  # the agent notices the end without it, too
            self.release()
            self._say_last_word()

    def _say_last_word(self) -> None:
        if not (self.lost or self.lost_others):
            return
        import logging  # noqa: PLC0415 - not at import of the package

        said = count_text(self.lost, self.lost_others)
        logging.getLogger("rla_client").warning(
            "the run ended; lost: %s (%s); see: rla show", said, self.losses[-1]
        )

    def release(self) -> None:
        """Close the stream without a closing record."""
        with self.lock:
            if not self._closed:
                self._write_or_lose()
            self._closed = self._blocked = True  # at once: a signal handler may log here
            if self._writer is not None:
                self._writer.close()
            self._messenger.close()

    @property
    def stream_folder(self) -> Path | None:
        """Spool folder of this stream; None while there is none."""
        with self.lock:
            if self._writer is None and not self._closed:
                self._open_writer()
            return self._writer.folder if self._writer else None

    @property
    def blob_room(self) -> int:
        """Maximum size of one more payload; 0 where the spool takes none."""
        with self.lock:
            if self.stream_folder is None:
                return 0
            self._check_quota(count=self._quota.stale)
            return 0 if self._quota.why_full(SHARE_MEDIA, 1) else self._quota.room(SHARE_MEDIA)

    @property
    def blobs_folder(self) -> Path | None:
        """Folder of the payloads of JOB frames, created at first use; None where there is no room."""
        folder = self.stream_folder
        if folder is None or not self.blob_room:
            return None
        blobs = folder / BLOBS_NAME
        with suppress(OSError):
            blobs.mkdir(mode=0o700, exist_ok=True)
        return blobs

    @property
    def why_refused(self) -> str:
        """Why the last `put` or `job` returned False."""
        return "the run has ended" if self._closed or self._dropping else "the spool is full"

    def agent_alive(self, *, memory: bool = False) -> bool:
        """Whether an agent serves this machine now; with `memory`, one that shares our /dev/shm."""
        return agent_alive(self._places) and not (memory and memory_apart(self._places))

    def _put_slowly(self, kind: int, frame: bytes, is_row: int) -> bool:
        if self._closed or self._dropping:
            return False
        if self._writer is None and not self._open_writer():
            return False
        now = time.monotonic()
        if self._full is not None and now >= self._next_try:
            self._check_quota(count=True)
        if self._full is not None:
            self._lose_refused(kind, frame, self._full)
            return False
        if kind == FrameKind.SAMPLES and self._waiting_bytes + len(frame) > WAITING_SAMPLES_BYTES:
            self._write_waiting()
            if self._waiting:
                self._lose_refused(kind, frame, "the spool cannot be written")
                return False
        self._waiting.append((frame, is_row))
        self._waiting_bytes += len(frame)
        if now >= self._next_try:
            self._write_waiting()
        if self._waiting_bytes > WAITING_MAX_BYTES and self._waiting:
            gone, _ = self._waiting.pop()
            self._waiting_bytes -= len(gone)
            why = "the spool cannot be written and the memory kept for that is used up"
            self._lose_refused(kind, gone, why)
            return False
        return True

    def _refuses(self, kind: int, frame: bytes) -> bool:
        """Whether a record other than a row exceeds its share of the spool; it is counted as lost then."""
        size, share = len(frame), SHARES.get(kind, SHARE_ROWS)
        if kind == FrameKind.FILE and size > SMALL_FILE_BYTES:
            share = SHARE_MEDIA
        if share == SHARE_ROWS or self._quota.why_full(share, size) is None:
            return False
        self._check_quota()
        why = self._quota.why_full(share, size)
        if why is not None:
            self._lose_refused(kind, frame, why)
        return why is not None

    def _takes_blob(self, name: str) -> bool:
        """Whether a written payload stays; its bytes count from now on.

        It does not where it is in an earlier stream, after another thread has begun a new one.
        """
        if self._writer is None:
            return True
        with suppress(OSError):
            try:
                size = os.stat(self._writer.folder / BLOBS_NAME / name).st_size
            except FileNotFoundError:
                return False
            self._quota.spend(size)
            self._check_quota(count=self._quota.overspent)
            if self._quota.why_full(SHARE_MEDIA) is not None:
                self._quota.spend(-size)
                return False
        return True

    def _keep(self, frame: bytes, is_row: int, why: str) -> None:
        self._blocked = True  # first: a signal handler's record does not overtake this one
        self._waiting.append((frame, is_row))
        self._waiting_bytes += len(frame)
        self._retry_later(why)

    def _retry_later(self, why: object) -> None:
        self._next_try = time.monotonic() + RETRY_S
        warn_rarely(self._warned, "keep", "%s; records are kept in memory until it can be written", why)

    def _write_waiting(self) -> None:
        writer = self._writer
        if writer is None:
            self._next_try = time.monotonic() + RETRY_S
            return
        try:
            self._ensure_segment(writer)
            self._unsure = False
            while True:
                writer.verify()
                # No calls from here to append(): a signal handler cannot come between.
                if writer.unsettled:
                    continue
                if not self._waiting:
                    break
                entry = self._waiting[0]
                if self._writing is None or self._writing[0] is not entry:
                    self._writing = (entry, writer.frames)
                writer.append(entry[0], entry[1], self._writing[1])
                if self._waiting and self._waiting[0] is entry:
                    self._waiting.popleft()
                    self._waiting_bytes -= len(entry[0])
                    self._unchecked += len(entry[0])
        except (PlaceError, SpoolError) as error:
            if self._waiting and writer.never_fits(len(self._waiting[0][0])):
                gone, _ = self._waiting.popleft()
                self._waiting_bytes -= len(gone)
                why = f"one of {len(gone)} bytes is over the limit of a file's size (ulimit -f)"
                self._lose([Loss(*of_frame(gone), why)])
                self._write_waiting()
                return
            self._retry_later(error)
            return
        self._waiting_bytes = 0
        self._update_blocked()
        self._report_lost()
        self._send(time.time())

    def _write_or_lose(self) -> None:
        """Write, before the end, waiting records and loss counts; records that cannot be written are lost."""
        self._next_try = 0.0
        if self._waiting and self._writer is None:
            self._open_at_end()
        if self._waiting:
            self._write_waiting()  # with the limits checked again
        if self._writer is not None:
            self._full = None  # the last words fit into what the limits leave free
            self._unsure = False  # and nobody can try later
            self._update_blocked()
        if self._waiting:
            missing = self._opening is None and self._opening_wait_s is not None
            why = "rank 0 opened no run to join" if missing else "the spool could not be written"
            gone = [Loss(*of_frame(frame), f"{why} before the run ended") for frame, _ in self._waiting]
            self._waiting.clear()
            self._update_blocked()
            self._warned.pop("lost", None)  # the last word about it
            self._lose(gone)
        self._next_try = 0.0
        self._report_lost()

    def _open_at_end(self) -> None:
        """Open a stream for waiting records; a run to join has some more time to appear."""
        deadline = time.monotonic() + (self._opening_wait_s or 0.0)
        while self._open_writer() and self._opening is None and time.monotonic() < deadline:
            time.sleep(RETRY_S)
            self._next_try = 0.0

    def _open_writer(self) -> bool:
        """Open a stream if it is time to try; False when this process's records are dropped."""
        now = time.monotonic()
        if now < self._next_try:
            return True
        opening = self._opening
        if self._as_worker is not None and (opening is None or opening.pid != os.getpid()):
            self._next_try = now + RETRY_S
            opening = self._as_worker()
            self._opening = opening or self._opening
            self._next_try = 0.0 if opening else self._next_try
        if opening is None:
            self._dropping = self._opening_wait_s is None
            return not self._dropping
        try:
            self._places.create()
            self._writer = SegmentWriter(self._places.spool, self._opening_frames(opening, self._told_before))
        except (PlaceError, SpoolError) as error:
            self._next_try = now + RETRY_S
            warn_rarely(self._warned, "open", "%s; records are kept in memory until it can be written", error)
            return True
        self._quota.begin(self._writer.name, opening.run)
        self._unsure = False
        self._update_blocked()
        self._check_quota(count=True)
        self._send(time.time())
        return True

    def _opening_frames(self, opening: Opening, before: tuple[int, int]) -> OpeningFrame:
        """Frames that begin each segment of a stream; losses `before` it belong to an earlier one."""
        told = opening.of_spool(self._places.spool)
        return lambda number, rows: told.frame(number, rows, self.lost - before[0])

    def go_on(self, continues: Callable[[str], Continuation]) -> bool:
        """Continue in a new stream of the run, which exists before the old one ends.

        Concurrent records go to one of the two, and the old one comes first. Blobs and shared memory stay
        with the records that name them.

        Args:
            continues: the new opening's `continues`, by the old stream's name.

        Returns:
            False when the spool takes no new stream; then nothing has changed.
        """
        with self.lock:
            if self._waiting:
                self._write_waiting()
            old = self._writer
            if old is None or self._opening is None or self._closed or self._waiting:
                return False
            opening = self._opening._replace(continues=continues(old.name))
            self._report_lost()
            before = self._reported
            try:
                writer = SegmentWriter(self._places.spool, self._opening_frames(opening, before))
            except SpoolError:
                return False
            self._told_before = before
            self._opening = opening
            self._writer = writer
            self._unsure = False
            self._update_blocked()
            self._quota.begin(writer.name, opening.run)
            now = time.time()
            with suppress(SpoolError):  # the agent notices the end without it, too
                old.append(encode_frame(FrameKind.CLOSE, pack([HANDED_OVER, "", now])), 0)
            old.close()
            self._send(now)
        return True

    def _check_quota(self, *, count: bool = False) -> None:
        quota = self._quota
        quota.spend(self._unchecked, self._no_rows)
        self._unchecked = self._no_rows = 0
        quota.look(count=count)
        self._full = quota.why_full(SHARE_ROWS)
        self._short = quota.room(SHARE_TEXT) < SHORT_BYTES or quota.room(SHARE_MEDIA) < SHORT_BYTES
        self._check_after = quota.look_after
        self._update_blocked()
        if self._full is not None:
            self._next_try = time.monotonic() + FULL_RECHECK_S
            self._report_lost()  # it fits into the reserve, but not on a completely full disk
        elif self._writer is not None:
            self._report_lost()

    def _lose_refused(self, kind: int, frame: bytes, why: str) -> None:
        """Count a refused frame as lost, except a job, which the caller does itself."""
        if kind == FrameKind.ROW:
            self._lose([Loss(ROW, "", why)])
        elif kind not in {FrameKind.JOB, FrameKind.CLOSE}:
            self._lose([Loss(*of_frame(frame), why)])

    def _lose(self, gone: list[Loss]) -> None:
        rows = sum(loss.kind == ROW for loss in gone)
        self.lost += rows
        self.lost_others += len(gone) - rows
        known = self._untold[-1].kind if self._untold else ""
        if rows < len(gone) or known != ROW:  # else it is the same once more
            self.losses, self._untold = merged(self.losses, gone), merged(self._untold, gone)
        if rows:
            why = gone[-1].reason
            warn_rarely(self._warned, "lost", "rows are being lost (%d so far): %s", self.lost, why)
        if rows < len(gone):
            what = "records other than rows are being lost (%d so far): %s"
            warn_rarely(self._warned, "others", what, self.lost_others, self.losses[-1])

    def _report_lost(self) -> None:
        """Report losses to the agent, behind the waiting records, whose place in the stream is noted."""
        lost = (self.lost, self.lost_others)
        if lost != self._reported and self._writer is not None and not (self._closed or self._waiting):
            rows, others = (now - before for now, before in zip(lost, self._told_before, strict=True))
            told = {"rows": rows, "others": others, "losses": [list(loss) for loss in self._untold]}
            content = {**told, "time": time.time()}
            with suppress(SpoolError):
                self._writer.verify()
                self._writer.append(encode_frame(FrameKind.MARK, pack([LOST_MARK, content])), 0)
                self._reported, self._untold = lost, ()

    def _send(self, now: float) -> None:
        writer = self._writer
        if writer is None:
            return
        try:
            self._ensure_segment(writer)
        except (PlaceError, SpoolError) as error:
            self._unsure = True
            self._update_blocked()
            self._retry_later(error)
            return
        if self._messenger.hint(writer.name, writer.number, writer.size):
            self._next_send = now + SEND_INTERVAL_S
        else:
            self._next_send = now + REFUSED_PAUSE_S
            self._messenger.start_agent_if_none()

    def _ensure_segment(self, writer: SegmentWriter) -> None:
        """Write the open segment again if it is no longer in the spool.

        Raises:
            PlaceError, SpoolError: that cannot be found out, or done, now.
        """
        if not writer.check():
            self._places.create()
            writer.write_anew()
            why = "the spool folder %s was deleted; its open records were written again"
            warn_rarely(self._warned, "anew", why, writer.folder)

    def flush(self, timeout: float | None = 10.0, *, media: bool = True) -> bool:
        """Wait until all earlier records are durable in their final files.

        Args:
            timeout: seconds; None waits for ever.
            media: False waits for rows, texts and checkpoints, not for figures, images and videos.

        Returns:
            False when that did not happen in time, no agent runs, or the stream's folder is gone.
        """
        return self._flush(timeout, media=media)[1].done

    def flush_kept(self, timeout: float | None = 10.0, *, media: bool = True) -> bool:
        """As `flush`; also False, once, when an earlier record was lost or could not be stored."""
        stream, flushed = self._flush(timeout, media=media)
        if not flushed.done:
            return False
        with self.lock:
            every = self.lost + self.lost_others
            lost, self._told_lost = every - self._told_lost, every
            before = self._failures
            if (before.stream, before.since) != (stream, flushed.since):
                before = _Failures(stream, flushed.since)
            others = max(flushed.others, before.others)
            shown = max(flushed.media, before.media) if media else before.media
            failed = others - before.others + shown - before.media
            self._failures = _Failures(stream, flushed.since, shown, others)
        if failed:
            warn_rarely(
                self._warned, "failed", "%d files of this run could not be kept; see: rla-agent logs", failed
            )
        return not (lost or failed)

    def _flush(self, timeout: float | None, *, media: bool) -> tuple[str, Flushed]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._lacks_run() and deadline is not None and time.monotonic() < deadline:
            time.sleep(RETRY_S)
        with self.lock:
            if self._waiting:
                self._write_waiting()
            self.push()
            if (writer := self._writer) is None or self._waiting:
                return "", NOT_FLUSHED
            if not self._closed:  # so that it is not opened and locked again
                with suppress(SpoolError):
                    writer.verify()
            header = {"s": writer.name, "n": writer.number, "o": writer.size, "m": media}
        flushed = self._messenger.await_flushed(header, deadline)
        return writer.name, NOT_FLUSHED if self._spool_gone(writer) else flushed

    def _lacks_run(self) -> bool:
        """Whether records wait for a run to join, which may still appear; tries once more."""
        with self.lock:
            if self._writer is None and self._waiting and not self._closed:
                self._next_try = 0.0
                self._open_writer()
            return self._writer is None and bool(self._waiting and self._opening_wait_s)

    def _spool_gone(self, writer: SegmentWriter) -> bool:
        """Whether somebody removed our stream's folder; no agent does while we hold its lock."""
        gone = False
        if not self._closed and writer is self._writer:
            with suppress(OSError):  # not accessible any more, as after setuid: unknown
                gone = not is_there(writer.folder)
        if gone:
            warn_rarely(
                self._warned, "gone", "the spool folder %s was removed, with the rows in it", writer.folder
            )
        return gone

    def after_fork_in_child(self) -> None:
        """Forget the parent's stream without touching it."""
        renew_lock(self.lock)
        self._messenger.close()
        if self._writer is not None:
            self._writer.abandon()
        closed = self._closed
        self._forget_losses()
        self._failures = _Failures()
        self._reset()
        self._closed = closed
