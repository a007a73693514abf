"""The open outputs of one experiment: its rows and how many there are, its text, and its snapshots' way.

An experiment owns a run of its own (rla_client/run/run.py) and makes its logger the current one;
`close` puts the former logger, clock, prefixes and pending values back, so experiments nest and
follow each other in one process. What is logged after that goes to whoever was current before.

`rows` counts the rows of progress.csv since the very beginning of the experiment, also over
resumes; snapshots carry it, and `rewind` begins the outputs anew with that many of them.

The agent never appends to files of an earlier stream: it puts them aside as `progress.old-1.csv`
and so on, and begins new ones. So a resumed run sends the rows that stay once more, with their
time-steps and timestamps, and then its own. An output is a pure function of the frames: the
new progress.csv begins with the bytes of the old one, TensorBoard's file likewise, and what was cut off
is kept beside them as a side branch. Old event files get a name that TensorBoard does not look for. A resume
that is killed while it sends leaves the whole old file put aside, and the next one finds it there.

A snapshot goes through the agent, too: it is safe from SIGKILL when `SnapshotSaver.offer` returns. Like
checkpoints (rla_client/checkpoint/saver.py), of which it uses arenas and spool, it travels in one of three
ways:

*frame* (up to FRAME_BYTES, most small policies): the content travels in the stream itself.
*arena*: the content is put together in a slot of shared memory, a JOB frame names it.
*blob* (no slot that is large enough and free): a file in the stream's blob folder, then the JOB frame. A
    thread fsyncs it afterwards; an arena of the right size is made meanwhile, for the next one.

`offer` refuses when no agent has been there yet, too much waits for it or the spool is full; then the
snapshotter's own thread writes. Once the agent has taken snapshots of this stream, the next ones go the
same way, also when it is away for a while: their order is that of the stream, and of the footers.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rla_client import logger as rla_logger
from rla_client.checkpoint.blob_file import has_room, sync_later
from rla_client.checkpoint.saver import BACKLOG_MAX_BYTES
from rla_client.checkpoint.storage_copy import pin_memory
from rla_client.contract.errors import AgentNotRunningError, LaunchError
from rla_client.contract.job.job_source import ArenaSource, BlobSource
from rla_client.contract.job.snapshot_job import SNAPSHOT_KIND, SnapshotJob
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.contract.spool.protocol import FrameKind, TextTarget, pack
from rla_client.contract.text.csv_lines import stream_rows
from rla_client.launcher import dowel
from rla_client.launcher.context import FolderLock, kind_of, settle
from rla_client.launcher.dowel import time_lead
from rla_client.launcher.training_state import Pieces
from rla_client.run.start import open_plain_run
from rla_client.stream.clock import TimeStepHolder, clock
from rla_client.stream.slot_sender import Slot, SlotSender

if TYPE_CHECKING:
    from rla_client.code.secret_values import Secrets
    from rla_client.run.recording import Row
    from rla_client.run.run import Run
    from rla_client.stream.outbox import Outbox

CSV_NAME = "progress.csv"
EVENT_MARK = ".tfevents."
TEXT_PIECE_BYTES = 1 << 20  # well below a frame's limit
FRAME_BYTES = 256 << 10  # of a snapshot: some 100 us to write; the agent holds a few of them in memory
BACKLOG_MAX = 64  # of blobs: an agent does about 100 jobs a second
_ASIDE = re.compile(r"progress\.old-(\d+)\.csv")
Value = int | float | bool | str
PastRow: TypeAlias = tuple[int | float, float, dict[str, Value]]  # time-step, timestamp, values
Opener: TypeAlias = "Callable[[Callable[[Row], None]], Run]"
SINKS = ("stdout", "log", "csv", "tensorboard")
TEXT_NAME = "debug.log"
RESUME_WAIT_S = 30.0  # an agent that starts first replays whatever else waits in the spool
REUSE_WAIT_S = 5.0  # a run that only uses its folder again does not depend on the agent
_log = logging.getLogger("rla_client")
_open: list[Outputs] = []


def current_outputs() -> Outputs | None:
    """The innermost open experiment's outputs, None outside of any."""
    return _open[-1] if _open else None


class Outputs:
    """The outputs of one experiment. Opens at once.

    Args:
        log_dir: their folder.
        x_axis: key of the row that is the time-step.
        keep_rows: rows of an earlier part that stay; None: as many as there are.
        opener: opens the run, given what is to be called with each row.
        text_name: file of the text log.
        fresh: the folder is new, so there is no earlier part to look for.
        on_close: called with state and reason before the run is closed.

    Raises:
        LaunchError: a process, this one or another, is writing there.
        AgentNotRunningError: `keep_rows` was asked for, and no agent writes the earlier part out.
    """

    def __init__(  # noqa: PLR0913 - how a folder is opened has this many sides
        self,
        log_dir: str | os.PathLike[str],
        x_axis: str,
        keep_rows: int | None = None,
        opener: Opener | None = None,
        text_name: str = TEXT_NAME,
        *,
        fresh: bool = False,
        on_close: Callable[[str, str], None] | None = None,
    ) -> None:
        self.log_dir = os.path.realpath(log_dir)
        if any(other.log_dir == self.log_dir for other in _open):
            raise LaunchError(f"an experiment of this process is writing into {self.log_dir}")
        self.rows = 0
        self._opener = opener or self._open_plain
        self._text_name = text_name
        self._on_close = on_close
        self._secrets: Secrets | None = None
        self._lead: Callable[[], str] | None = None
        self._former_logger = rla_logger.get_current()
        self._savers: dict[str, SnapshotSaver] = {}
        self._kinds: dict[Path, str | None] = {}
        self._former_time = TimeStepHolder()
        self._former_time.take_over(clock())
        self._lock = FolderLock(self.log_dir)
        try:
            self._run = self._begin(keep_rows, fresh=fresh)
        except BaseException:
            self._lock.release()
            raise
        self._former_tabular = dowel.tabular.swap({}, [])
        self._former_dowel = dowel.logger.swap(([], {}, [], x_axis))
        self._clock = clock()
        self._clock.clear()
        _open.append(self)

    def _begin(self, keep_rows: int | None, *, fresh: bool) -> Run:
        folder = Path(self.log_dir)
        rows: list[PastRow] = []
        text: list[str] = []
        if not fresh and self._is_settled(folder, needed=keep_rows is not None):
            rows = _past_rows(folder, keep_rows)
            text = list(_past_text(folder / self._text_name))
            _hide_events(folder)
        run = self._opener(self._count_row)
        self.rows = len(rows)
        if run.outbox is not None:
            now = time.time()
            for step, stamp, values in rows:  # their tables are in the text already
                content = [step, stamp, values, dict.fromkeys(values, ("log",))]
                run.outbox.put(FrameKind.ROW, pack(content), now, 1)
            for piece in text:
                run.outbox.put(FrameKind.TEXT, pack([TextTarget.LOG, piece]), now)
            run.outbox.push()
        rla_logger.set_current(run.logger)
        return run

    def introduce(self, name: str, secrets: Secrets) -> None:
        """Begin texts with the time and `[name]`; hide these in text and in the reason of a failure."""
        self._secrets, self._lead = secrets, lambda: f"{time_lead()}[{name}] "
        self._tell_logger()
        dowel.logger.push_prefix(f"[{name}] ")
        dowel.logger.log(f"Logging to {self.log_dir}")

    def _tell_logger(self) -> None:
        self._run.logger.secrets, self._run.logger.lead = self._secrets, self._lead

    def _is_settled(self, folder: Path, *, needed: bool) -> bool:
        try:
            settle(folder, RESUME_WAIT_S if needed else REUSE_WAIT_S)
        except AgentNotRunningError as error:
            if needed:
                raise
            _log.warning("%s continues without the rows of its earlier part: %s", folder, error)
            return False
        return True

    def _open_plain(self, on_row: Callable[[Row], None]) -> Run:
        return open_plain_run(self.log_dir, SINKS, on_row, None, "", {"log": TEXT_NAME})

    def _count_row(self, _row: Row) -> None:
        self.rows += 1

    def rewind(self, rows: int) -> None:
        """Begin the outputs anew with their first `rows` rows and continue behind them.

        Where nothing is stored, there is nothing to do.

        Raises:
            AgentNotRunningError: no agent writes the earlier part out.
        """
        if rows == self.rows or self._run.outbox is None:
            return
        self._end_savers()
        self._run.close("finished", "")
        self._run = self._begin(rows, fresh=False)
        self._tell_logger()

    def snapshot_saver(self, folder: Path) -> SnapshotSaver | None:
        """Who hands snapshots for `folder` to the agent; None where it is not a folder of this run."""
        outbox, opening = self._run.outbox, self._run.opening
        if folder not in self._kinds:
            self._kinds[folder] = None if opening is None else kind_of(os.path.realpath(folder), opening)
        kind = self._kinds[folder]
        if outbox is None or kind is None:
            return None
        if kind not in self._savers:
            self._savers[kind] = SnapshotSaver(outbox, kind)
        return self._savers[kind]

    def _end_savers(self) -> None:
        for saver in self._savers.values():
            saver.close()
        self._savers.clear()

    def close(self, state: str, reason: str) -> None:
        """End the run and put the former logger back, whatever goes wrong.

        Args:
            state: finished, interrupted or failed.
            reason: why.
        """
        if self not in _open:
            return
        _open.remove(self)
        with ExitStack() as steps:  # from the last to the first
            steps.callback(self._put_back)
            steps.callback(dowel.logger.remove_all)
            steps.callback(self._lock.release)
            steps.callback(self._run.close, state, reason)
            steps.callback(self._end_savers)
            if self._on_close is not None:
                self._on_close(state, reason)

    def _put_back(self) -> None:
        rla_logger.set_current(self._former_logger)
        self._clock.take_over(self._former_time)
        dowel.tabular.swap(*self._former_tabular)
        dowel.logger.swap(self._former_dowel)


def _past_rows(log_dir: Path, limit: int | None) -> list[PastRow]:
    """The first `limit` rows of the run's CSV (None: all there are).

    Where the CSV has fewer, because a resume was interrupted, the newest file put aside that has
    enough of them is read instead.
    """
    rows = list(_read(log_dir / CSV_NAME, limit))
    if limit is None or len(rows) >= limit:
        return rows
    for path in _put_aside(log_dir):
        older = list(_read(path, limit))
        if len(older) >= limit:
            return older
    return rows


def _past_text(path: Path) -> Iterator[str]:
    """Content of a text log, in pieces."""
    with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace", newline="") as file:
        while piece := file.read(TEXT_PIECE_BYTES):
            yield piece


def _hide_events(log_dir: Path) -> None:
    """Rename TensorBoard's files so that it shows only those that are written from now on."""
    for path in sorted(log_dir.rglob(f"*{EVENT_MARK}*")):
        for number in range(1, 10_000):
            hidden = path.with_name(path.name.replace(EVENT_MARK, f".old-{number}.", 1))
            if not hidden.exists():
                path.rename(hidden)
                break


def _put_aside(log_dir: Path) -> list[Path]:
    found = [(int(match[1]), name) for name in os.listdir(log_dir) if (match := _ASIDE.fullmatch(name))]
    return [log_dir / name for _number, name in sorted(found, reverse=True)]


def _read(path: Path, limit: int | None) -> Iterator[PastRow]:
    if not path.exists():
        return
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        rows = (row for row in stream_rows(file) if row)
        columns = next(rows, [])
        for number, row in enumerate(rows):
            if limit is not None and number >= limit:
                return
            cells = zip(columns, row, strict=False)
            values = {key: _plain_value(cell) for key, cell in cells if cell}
            step = values.pop(TIME_STEP, 0)
            stamp = values.pop(TIMESTAMP, 0.0)
            if isinstance(step, str) or isinstance(stamp, str):
                return  # not a row of ours; nothing behind it is either
            yield step, float(stamp), values


def _plain_value(cell: str) -> Value:
    """The value whose text a CSV cell is; numbers come back exactly."""
    if cell in {"True", "False"}:
        return cell == "True"
    for kind in (int, float):
        with suppress(ValueError):
            value = kind(cell)
            if repr(value) == cell:
                return value
    return cell


@dataclass(frozen=True, slots=True)
class Save:
    """Which snapshot this is: see SnapshotJob."""

    token: str
    order: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Sent:
    """A snapshot whose file may not be there yet."""

    save: Save
    size: int
    content: bytes | None = None
    blob: Path | None = None
    slot: Slot | None = None

    @property
    def arrived(self) -> bool:
        """True once the agent has done with it; a frame's content does not say."""
        if self.slot is not None:
            return self.slot.arrived
        return self.blob is not None and not self.blob.exists()

    def read(self) -> bytes | None:
        """The file's content, while it is still here."""
        if self.content is not None or self.arrived:
            return self.content
        if self.slot is not None:
            return ctypes.string_at(self.slot.address, self.size)
        assert self.blob is not None
        with suppress(OSError):
            return self.blob.read_bytes()
        return None


class SnapshotSaver(SlotSender):
    """Hands snapshots of one run to the agent.

    Args:
        outbox: where jobs go; its lock is not held while bytes are copied.
        kind: the folder of the run that they go to, log or checkpoint.
    """

    def __init__(self, outbox: Outbox, kind: str) -> None:
        self.ways = {"frame": 0, "arena": 0, "blob": 0}
        self._kind = kind
        self._outbox = outbox
        super().__init__(outbox)

    def _reset(self) -> None:
        super()._reset()
        self._waiting: list[_Sent] = []
        self._last: _Sent | None = None

    @property
    def used(self) -> bool:
        """Whether the agent has been given a snapshot."""
        return self._last is not None

    def offer(self, pieces: Pieces, save: Save) -> bool:
        """Take a snapshot over. On True it survives SIGKILL; on False nothing has happened.

        Args:
            pieces: its content; what it refers to may change afterwards.
            save: its name, and its place among the others.
        """
        if self._inside == threading.get_ident():  # a signal handler that saves while we do
            return False
        with self._lock:
            self._inside = threading.get_ident()
            try:
                if not self.used and not self._outbox.agent_alive():
                    return False
                self._waiting = [sent for sent in self._waiting if not sent.arrived]
                if pieces.size <= FRAME_BYTES:
                    return self._as_frame(pieces, save)
                if self._in_arena(pieces, save):
                    return True
                taken = self._as_blob(pieces, save)
                self._prepare(pieces.size)  # not before: making it would compete with the writing
                return taken
            finally:
                self._inside = None

    def wait(self, timeout_s: float | None) -> bool:
        """Whether all that was taken over is in its files within `timeout_s`."""
        if not self.used:
            return True
        return self._outbox.flush(timeout_s, media=False)

    def late(self, name: str | None) -> bytes | None:
        """Content of the last snapshot, if it is called `name` (None: in any case) and still here."""
        with self._lock:
            last = self._last
            if last is None or name not in {None, *last.save.names}:
                return None
            return last.read()

    # -- the three ways -----------------------------------------------------------------------

    def _as_frame(self, pieces: Pieces, save: Save) -> bool:
        content = pieces.to_bytes()
        for name in save.names:
            if not self._outbox.put(FrameKind.FILE, pack([self._kind, name, content]), time.time()):
                return False
        self._outbox.push()
        self._note(_Sent(save, pieces.size, content=content), "frame")
        return True

    def _in_arena(self, pieces: Pieces, save: Save) -> bool:
        if self._outbox.agent_alive() and not self._outbox.agent_alive(memory=True):
            return False  # the agent is outside of this container
        sent = self._send_in_slot(
            pieces.size, lambda slot: self._fill(slot, pieces), lambda source: self._send(save, source)
        )
        if sent is None:
            return False
        self._note(_Sent(save, pieces.size, slot=sent[0]), "arena")
        return True

    @staticmethod
    def _fill(slot: Slot, pieces: Pieces) -> ArenaSource:
        if pieces.on_device:
            pin_memory(slot.arena)
        pieces.copy_to(slot.address)
        return ArenaSource(slot.arena.name, slot.index, slot.number, pieces.size, ())

    def _as_blob(self, pieces: Pieces, save: Save) -> bool:
        blobs = self._outbox.blobs_folder
        waiting = [sent.size for sent in self._waiting if sent.blob is not None]
        full = len(waiting) >= BACKLOG_MAX or sum(waiting) >= BACKLOG_MAX_BYTES
        if blobs is None or full or pieces.size > self._outbox.blob_room or not has_room(blobs):
            return False
        blob = blobs / f"{save.token}.pkl"
        try:
            with open(blob, "xb") as file:
                pieces.write_to(file)
        except OSError:
            with suppress(OSError):
                blob.unlink()
            return False
        if not self._send(save, BlobSource(blob.name, pieces.size)):
            with suppress(OSError):
                blob.unlink()
            return False
        self._note(_Sent(save, pieces.size, blob=blob), "blob")
        sync_later(blob)
        return True

    def _send(self, save: Save, source: ArenaSource | BlobSource) -> bool:
        job = SnapshotJob(save.token, save.order, self._kind, save.names, source)
        return self._outbox.job(SNAPSHOT_KIND, job.encode())

    def _note(self, sent: _Sent, way: str) -> None:
        self.ways[way] += 1
        self._last = sent
        if sent.content is None:
            self._waiting.append(sent)
