"""Snapshots of a training in one folder.

`save_itr_params` copies the state (snapshot_pickle) and returns. In the folder of an open experiment the
copy goes to the agent (snapshot_saver) and so survives SIGKILL of this process. Elsewhere, and without an
agent, a daemon thread of this process writes it by temporary file, fsync, rename and fsync of the folder;
at most `MAX_WAITING` copies wait. `wait`, called at the end of a training and by `load`, returns when all
are written; so does a normal exit.

Other processes find a snapshot once `save_itr_params` has returned. Their `load` waits, for a bounded time,
until the agent has written all that was in the spool at the call. For a snapshot that a living process has
yet to write there is an empty file `late/<folder>-<pid>-<start>-<token>` in the state folder of this machine.
Snapshots that are lost or cannot be written cause a warning. Loading unpickles and so runs code: only the
user's own files are loaded without `trust`.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import queue
import re
import secrets
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.pickle_trust import pickle_problem
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import (
    RlaError,
    SnapshotError,
    UntrustedCheckpointError,
)
from rla_client.contract.filesystem.atomic_write import atomic_file
from rla_client.contract.filesystem.trusted_paths import make_private
from rla_client.contract.job.snapshot_footer import encode_footer, saved_order
from rla_client.contract.spool.writer_liveness import process_lives, process_start
from rla_client.launcher.outputs import current_outputs
from rla_client.launcher.pending_streams import await_written
from rla_client.launcher.snapshot.snapshot_files import find_snapshot
from rla_client.launcher.snapshot.snapshot_modes import check_mode, snapshot_names
from rla_client.launcher.snapshot.snapshot_pickle import CopyTarget, Pieces, decode, encode
from rla_client.launcher.snapshot.snapshot_saver import Save
from rla_client.stream.rare_warnings import warn_rarely
from rla_client.stream.values import whole_number

if TYPE_CHECKING:
    from rla_client.launcher.snapshot.snapshot_saver import SnapshotSaver

MAX_WAITING = 2  # one being written, one ready: memory stays at two copies of the state
AGENT_WAIT_S = 10.0  # for the agent to write snapshots; it also does so later
EXIT_WAIT_S = 30.0  # of a normal exit, for the thread
OTHERS_WAIT_S = 30.0  # for snapshots of other processes: as long as their own EXIT_WAIT_S
POLL_S = 0.02
MARKS_FOLDER = "late"  # in the state folder
_LATE = re.compile(r"([0-9a-f]{32})-(\d+)-(\d+)-[0-9a-f]{16}")
_log = logging.getLogger("rla_client")
_all: weakref.WeakSet[Snapshotter] = weakref.WeakSet()
_warned: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class _Order:
    target: CopyTarget
    save: Save
    saver: SnapshotSaver | None
    mark: Path | None


class Snapshotter:
    """Saves and loads snapshots in one folder.

    Args:
        snapshot_dir: the folder; it is made if possible.
        snapshot_mode: one of SNAPSHOT_MODES.
        snapshot_gap: epochs between snapshots in the gap modes.

    Attributes:
        folder: the absolute path, which a change of the working folder does not affect.

    Raises:
        ArgumentError: mode and gap do not go together.
    """

    _last_order: int

    def __init__(
        self,
        snapshot_dir: str | os.PathLike[str] = "data/local/experiment",
        snapshot_mode: str = "last",
        snapshot_gap: int = 1,
    ) -> None:
        self._gap = check_mode(snapshot_mode, snapshot_gap)
        self._mode = snapshot_mode
        self._place(snapshot_dir)
        with suppress(OSError):  # a save says why
            self.folder.mkdir(parents=True, exist_ok=True)
        self._reset()

    @property
    def snapshot_dir(self) -> str:
        """Folder of the snapshots, as passed."""
        return str(self._given)

    @property
    def snapshot_mode(self) -> str:
        """One of SNAPSHOT_MODES."""
        return self._mode

    @property
    def snapshot_gap(self) -> int:
        """Epochs between snapshots in the gap modes."""
        return self._gap

    def is_due(self, itr: int) -> bool:
        """Whether `save_itr_params(itr, …)` would write anything."""
        return bool(snapshot_names(self._mode, self._gap, itr))

    def save_itr_params(self, itr: int, params: dict[str, Any], note: dict[str, Any] | None = None) -> None:
        """Copy `params`, if a snapshot is due at epoch `itr`, and write it in the background.

        Args:
            itr: number of the epoch.
            params: the state that `load` returns.
            note: plain data that can be read without loading (`jobs.read_footer`).

        Raises:
            ArgumentError: `itr` is not a whole number.
            SnapshotError: something in `params` cannot be pickled.
        """
        itr = whole_number(itr, "itr", 0)
        names = snapshot_names(self._mode, self._gap, itr)
        if not names:
            return
        if self._pid != os.getpid():
            self._reset()
        self._last_order = max(self._last_order + 1, time.time_ns())
        save = Save(secrets.token_hex(8), self._last_order, names)
        footer = {"itr": itr, **(note or {}), "token": save.token, "order": save.order}
        pieces = encode(params, encode_footer(footer))
        saver = _saver_of(self.folder)
        if saver is None or self._orders.unfinished_tasks or not saver.offer(pieces, save):
            self._hand_to_thread(pieces, save, saver)

    def _hand_to_thread(self, pieces: Pieces, save: Save, saver: SnapshotSaver | None) -> None:
        target = self._free.get()
        try:
            target.take(pieces)
        except BaseException:
            self._free.put(target)
            raise
        self._orders.put(_Order(target, save, saver, self._mark(save)))
        if not self._start_thread():
            self._write_next()

    def _mark(self, save: Save) -> Path | None:
        """Mark a snapshot as not yet written, for other processes."""
        with suppress(OSError, RlaError):  # without a state folder there is no mark
            if self._start is None:
                return None
            marks = find_places().state / MARKS_FOLDER
            make_private(marks)
            mark = marks / f"{self._key}-{self._pid}-{self._start}-{save.token}"
            mark.touch()
            return mark
        return None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every snapshot is on disk; False after `timeout_s`.

        It waits at most AGENT_WAIT_S for the agent, and in a forked child OTHERS_WAIT_S for its parent.
        """
        if self._pid != os.getpid():
            return _wait_for_others(self.folder, OTHERS_WAIT_S if timeout_s is None else timeout_s)
        began = time.monotonic()
        if not self._wait_for_thread(timeout_s):
            return False
        saver = _saver_of(self.folder)
        if saver is None:
            return True
        left = AGENT_WAIT_S if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - began))
        return saver.wait(min(left, AGENT_WAIT_S))

    def _wait_for_thread(self, timeout_s: float | None) -> bool:
        if self._thread is None or self._pid != os.getpid():
            return True
        with self._orders.all_tasks_done:
            return self._orders.all_tasks_done.wait_for(lambda: not self._orders.unfinished_tasks, timeout_s)

    def load(
        self,
        load_dir: str | os.PathLike[str] | None = None,
        itr: int | str = "last",
        *,
        trust: bool = False,
    ) -> Any:  # noqa: ANN401
        """Unpickle one of this user's own snapshots, which runs code that the file names.

        Args:
            load_dir: folder of the snapshots; default: `folder`.
            itr: number of the epoch (int or digits), `last` or `first`.
            trust: load it even if it came from another machine, belongs to another user, or is in a folder
                where others may write.

        Raises:
            ArgumentError: `itr` has another value.
            UntrustedCheckpointError: the snapshot is not this user's own, and `trust` is False.
            FileNotFoundError: no such folder or snapshot.
            NotAFileError: the path of the snapshot is not a file.
            SnapshotError: the file cannot be unpickled here.
        """
        folder = self.folder if load_dir is None else Path(load_dir)
        data = None if _wait_for(folder) else self._late(folder, itr)
        if data is None:
            path = find_snapshot(folder, itr)
            problem = None if trust else pickle_problem(path)
            if problem is not None:
                raise UntrustedCheckpointError(
                    f"{path} is not loaded: {problem}. A snapshot runs code that the file names: pass "
                    "trust=True if you trust whoever wrote it"
                )
            data = path.read_bytes()
        try:
            return decode(data)
        except Exception as error:  # unpickling may raise anything
            message = f"{self.folder if load_dir is None else load_dir}: the snapshot {itr} cannot be "
            message += f"loaded: {type(error).__name__}: {error}"
            raise SnapshotError(message) from error

    @staticmethod
    def _late(folder: Path, itr: int | str) -> bytes | None:
        """Content of the last snapshot, if `itr` means it and the agent has yet to write it."""
        saver = _saver_of(folder)
        if saver is None or itr == "first":
            return None
        return saver.late(None if itr == "last" else f"itr_{itr}.pkl")

    def _place(self, folder: str | os.PathLike[str]) -> None:
        self._given = self.folder = Path(folder)
        with suppress(OSError):  # the working folder is gone
            self.folder = self._given.absolute()
        self._key = _key_of(self.folder)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._start = process_start(self._pid)
        self._last_order = 0
        _all.add(self)
        self._thread: threading.Thread | None = None
        self._orders: queue.Queue[_Order] = queue.Queue()
        self._free: queue.Queue[CopyTarget] = queue.Queue()
        for _ in range(MAX_WAITING):
            self._free.put(CopyTarget())

    def _start_thread(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._write_orders, name="rla-snapshots", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter is going down
                return False
            self._thread = thread
        return True

    def _write_orders(self) -> None:
        while True:
            self._write_next()

    def _write_next(self) -> None:
        order = self._orders.get()
        try:
            self._write(order)
        except Exception as error:  # noqa: BLE001 - top of the thread; training continues
            _log.warning("snapshot %s was not written: %s", self.folder / order.save.names[0], error)
        finally:
            if order.mark is not None:
                with suppress(OSError):
                    order.mark.unlink()
            self._free.put(order.target)
            self._orders.task_done()

    def _write(self, order: _Order) -> None:
        if order.saver is not None:
            order.saver.wait(AGENT_WAIT_S)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in order.save.names:
            if saved_order(self.folder / name)[1] < order.save.order:
                with atomic_file(self.folder / name) as file:
                    order.target.write_to(file)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.snapshot_dir, "mode": self._mode, "gap": self._gap}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._place(state["folder"])
        self._mode, self._gap = state["mode"], state["gap"]
        self._reset()


def _key_of(folder: Path) -> str:
    """Key of a folder in the names of marks."""
    return hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]


def _saver_of(folder: Path) -> SnapshotSaver | None:
    outputs = current_outputs()
    return None if outputs is None else outputs.snapshot_saver(folder.absolute())


def _wait_for(folder: Path) -> bool:
    """Wait for the snapshots of `folder`; False if the agent has yet to write one of this process."""
    real = os.path.realpath(folder)
    for one in list(_all):
        if os.path.realpath(one.folder) == real:
            one._wait_for_thread(None)  # noqa: SLF001
    saver = _saver_of(folder)
    if saver is not None and not saver.wait(AGENT_WAIT_S):
        return False
    _wait_for_others(folder, OTHERS_WAIT_S)
    return True


def _wait_for_others(folder: Path, timeout_s: float) -> bool:
    """Wait for snapshots of other processes; False, with a warning, if one is still missing."""
    deadline = time.monotonic() + timeout_s
    while (late := _lives_late(folder)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    why = "a process has yet to write it" if late else ""
    with suppress(OSError):
        left = max(0.0, deadline - time.monotonic())
        why = why or await_written(os.path.realpath(folder), left, own=_saver_of(folder) is None)
    if why:
        warn_rarely(_warned, str(folder), "a later snapshot may be on its way to %s: %s", folder, why)
    return not why


def _lives_late(folder: Path) -> bool:
    """Whether another living process has yet to write a snapshot; removes the marks of dead processes."""
    living, key, marks = False, _key_of(folder), find_places().state / MARKS_FOLDER
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(marks)
    for mark in filter(None, map(_LATE.fullmatch, names)):
        pid, start = mark[2], mark[3]
        if process_lives(f"{pid} {start}".encode()):
            living |= mark[1] == key and int(pid) != os.getpid()
            continue
        if mark[1] == key:
            _log.warning("a snapshot is not in %s: process %s ended before it was written", folder, pid)
        with suppress(OSError):  # another process may have removed it
            os.unlink(marks / mark[0])
    return living


def _at_exit() -> None:
    deadline = time.monotonic() + EXIT_WAIT_S
    for snapshotter in list(_all):
        snapshotter._wait_for_thread(max(0.0, deadline - time.monotonic()))  # noqa: SLF001


atexit.register(_at_exit)
