"""The agent's side of replication: which databases go, what was committed, the worker process.

Volume threads call `run_opened` and `committed`; the main thread calls `poll`. The worker runs only
while there is a database to replicate, so that an agent without a master costs no second process.

A worker that dies is started again with full-jitter backoff (1 s → 60 s); one that ran for `STEADY_S`
starts from the first step again.

`arrived` tells a client that waits (`sync_log_file(wait=True)`, which asks again and again) whether all of
one item is on the master. It only reads: the files' stats, the config, and the ledger beside the worker
that writes it.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from rla_agent.pipeline.stream import Stream
from rla_agent.replicate import settings
from rla_agent.replicate.fetch_back import FetchQueue
from rla_agent.replicate.ledger import CLEAN, STEPS, database_number, folder_states, ledger_path
from rla_agent.replicate.settings import Announcer, ListBusyError
from rla_agent.replicate.worker.source import Folder, ScanError, Scanner
from rla_agent.store.config_reader import ConfigReader, Reading
from rla_agent.store.sqlite import NewerFormatError, connect_readonly
from rla_client.contract.agent.places import Places
from rla_client.contract.filesystem.atomic_write import fsync_folder
from rla_client.contract.spool.opening import Opening

MAX_UNDECIDED: Final = 1000  # runs whose configuration cannot be read yet, or database registered
MAX_ASKED: Final = 16  # questions about items that wait for their turn
LOOK_INTERVAL_S: Final = 2.0  # at the list of databases, which `rla-agent replicate add` changes
FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 60.0
STEADY_S: Final = 60.0
KILL_AFTER_S: Final = 5.0
LOG_BYTES: Final = 4 << 20  # of worker.log; the one before is kept
_log = logging.getLogger("rla_agent.replicate.agent_side")


class Replication:
    """What the agent does for replication."""

    def __init__(self, places: Places, reader: ConfigReader) -> None:
        self._places = places
        self._reader = reader
        self._announcer = Announcer(places.state)
        self._process = ReplicatorProcess(places.state)
        self._lock = threading.Lock()
        self._undecided: deque[Opening] = deque()
        self._next_look = 0.0
        self._wanted = False
        self._refused = ""  # why a database could not be registered, as it was logged last
        self._opened: set[str] = set()  # runs whose first commit is to come
        self._askers = ThreadPoolExecutor(1, thread_name_prefix="arrived")
        self._asked = threading.Semaphore(MAX_ASKED)
        self.fetches = FetchQueue(places.state)

    def run_opened(self, opening: Opening) -> None:
        """Have the run's database replicated if its configuration says so."""
        if opening.primary and opening.table and opening.config is not None and not opening.offline:
            self._decide(opening, opening.config, self._reader.reading(opening.config))

    def _decide(self, opening: Opening, config: str, found: Reading | None) -> bool:
        """Register the run's database; later, where that or reading its configuration cannot be done now.

        False: the list of databases takes none now.
        """
        if found is None:
            self._put_off(opening)
        elif _sends(config, found) and not self._register(opening, config):
            self._put_off(opening)
            return False
        return True

    def _put_off(self, opening: Opening) -> None:
        self._undecided.append(opening)
        with suppress(IndexError):  # another thread has taken it
            while len(self._undecided) > MAX_UNDECIDED:
                dropped = self._undecided.popleft()
                _log.error(
                    "database %s of run %s/%s could not be registered, nor those of %d later runs: it is not "
                    "replicated on account of this run; once there is room: rla-agent replicate add",
                    *(dropped.root, dropped.table, dropped.index, MAX_UNDECIDED),
                )

    def _register(self, opening: Opening, config: str) -> bool:
        """Whether it is done; on the threads that take in rows, so it waits for no other process."""
        item = f"{opening.table}/{opening.index}"
        try:
            settings.register(self._places.state, opening.root, config, item, is_master_node=opening.master)
        except (OSError, ListBusyError) as error:
            if str(error) != self._refused:
                _log.warning("database %s is not replicated yet, tried again: %s", opening.root, error)
            self._refused = str(error)
            return False
        self._refused = ""
        with self._lock:
            self._opened.add(opening.log_folder)
        self._wanted = True
        return True

    def committed(self, streams: Iterable[Stream]) -> None:
        """Outputs of these streams have been committed."""
        if self._process.pid is None:
            return
        streams = [stream for stream in streams if not stream.opening.offline]
        self._announcer.committed(
            (output.path, output.generation, output.size, False)
            for stream in streams
            for output in stream.outputs
            if output.storable
        )
        asked = []
        for stream in streams:
            folder = stream.opening.log_folder
            if stream.replicate_now or folder in self._opened:
                stream.replicate_now = False
                asked.append(folder)
        with self._lock:
            self._opened.difference_update(asked)
        if asked:
            self._announcer.now(asked)

    def ask_arrived(self, data_root: str, item: str, answer: Callable[[bool | None], None]) -> None:
        """Find out, in a thread that calls `answer`, whether an item is on its master: see `arrived`."""
        if self._asked.acquire(blocking=False):
            self._askers.submit(self._arrived, data_root, item, answer)
        else:
            answer(False)  # many ask; this one asks again

    def _arrived(self, data_root: str, item: str, answer: Callable[[bool | None], None]) -> None:
        try:
            answer(arrived(self._places.state, data_root, item, socket.gethostname(), self._reader))
        except Exception:  # noqa: BLE001 - the top of a thread; whoever asks must get an answer
            _log.exception("cannot tell whether %s is on the master", item)
            answer(False)
        finally:
            self._asked.release()

    def run_ended(self, opening: Opening) -> None:
        """A run's files have reached their last state."""
        with self._lock:
            self._opened.discard(opening.log_folder)
        if self._process.pid is not None:
            self._announcer.now([opening.log_folder])

    def poll(self, now: float) -> None:
        """Start the worker when there is work for it, and again when it died; take in fetches that ended."""
        self.fetches.poll()
        if now >= self._next_look:
            self._next_look = now + LOOK_INTERVAL_S
            for _ in range(len(self._undecided)):
                opening = self._undecided.popleft()
                config = opening.config or ""
                if not self._decide(opening, config, self._reader.known(config)):
                    break  # each would try to write the list
            with suppress(settings.UnreadableListError):  # status tells; as it was till then
                self._wanted = bool(settings.entries(self._places.state))
        if self._wanted:
            self._process.poll(now)

    def stop(self, timeout: float) -> None:
        """End the worker."""
        self._askers.shutdown(wait=False, cancel_futures=True)
        self.fetches.stop()
        self._process.stop(timeout)
        self._announcer.close()


def _sends(config: str, found: Reading) -> bool:
    """SEND_LOG_FILE of a configuration."""
    if found.config is None:
        _log.warning("cannot read %s, its runs are not replicated: %s", config, "; ".join(found.faults))
        return False
    return found.config.send_log_file


class ReplicatorProcess:
    """One worker process under the agent."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._log_path = state / "replicate" / "worker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._tries = 0
        self._not_before = 0.0
        self._started = 0.0
        self._refused = ""  # why it could not be started, as it was logged last

    @property
    def pid(self) -> int | None:
        """The worker's process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, now: float = 0.0) -> None:
        """Start the worker; does nothing when it runs."""
        if self.pid is not None:
            return
        self._log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [sys.executable, "-m", "rla_agent.replicate.worker.main"]
        command += ["--state", str(self._state), "--parent", str(os.getpid())]
        rotate(self._log_path)
        with self._log_path.open("ab") as output:
            fsync_folder(self._log_path.parent)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", close_fds=True
            )
        self._started = now

    def poll(self, now: float) -> None:
        """See whether the worker lives; start it again when its time has come (`now`: monotonic seconds)."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._process = None
            self._later(now, 0 if now - self._started > STEADY_S else self._tries + 1)
        elif now >= self._not_before:
            try:
                self.start(now)
            except OSError as error:  # no room for its log, no process: the agent goes on without it
                if str(error) != self._refused:
                    _log.warning("the replicator cannot be started now, tried again: %s", error)
                self._refused = str(error)
                self._later(now, self._tries + 1)
            else:
                self._refused = ""

    def _later(self, now: float, tries: int) -> None:
        self._tries = tries
        limit = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(tries, 10))
        self._not_before = now + random.random() * limit  # noqa: S311 - jitter

    def stop(self, timeout: float = 10.0) -> None:
        """Ask the worker to end, wait at most `timeout` seconds, then kill it."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout)
            return
        process.kill()
        try:
            process.wait(KILL_AFTER_S)
        except subprocess.TimeoutExpired:  # it hangs in the kernel, and goes once that lets it
            _log.warning("the replicator (pid %d) does not end; the agent does not wait for it", process.pid)


def rotate(path: Path) -> None:
    """Put a log that is long aside, in the place of the one that was put aside before."""
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES:
            path.replace(path.with_name(path.name + ".1"))


def arrived(state: Path, data_root: str, item: str, host: str, reader: ConfigReader) -> bool | None:
    """Whether every file of an item that is in scope is on its master, as it is now.

    None where the item is not replicated at all; a configuration, or the list of databases, that cannot be
    read now is a no.
    `host`: this machine's name in run.json.
    """
    found: bool | None = None
    try:
        entries = settings.entries(state)
    except settings.UnreadableListError:
        return False
    for entry in entries:
        if entry.data_root != os.path.abspath(data_root) or item in entry.off:
            continue
        reading = reader.reading(entry.config)
        if reading is None:
            return False
        config = reading.config
        if config is None:
            return None
        if not settings.wanted(entry, config):
            continue
        name = settings.target(config, state / "replicate").name
        scanner = Scanner(os.fsencode(entry.data_root), settings.scope(entry, config, host))
        if not _all_there(ledger_path(state), scanner, item, name):
            return False
        found = True
    return found


def _all_there(path: Path, scanner: Scanner, item: str, target: str) -> bool:
    try:
        with closing(connect_readonly(path, STEPS)) as db:
            number = database_number(db, scanner.root, target)
            if number is None:
                return False
            folders = [*scanner.item(item), *scanner.archives(item)]
            if scanner.unread:
                return False
            return bool(folders) and all(_folder_there(db, number, folder) for folder in folders)
    except (sqlite3.Error, ScanError, NewerFormatError):
        return False


def _folder_there(db: sqlite3.Connection, number: int, folder: Folder) -> bool:
    known = folder_states(db, number, folder.path)
    return all(
        known.get(name, ())[:-1] == (CLEAN, *local.version, local.size)
        for name, local in folder.files.items()
    )
