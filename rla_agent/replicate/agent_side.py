"""The agent's side of replication: which databases go, what was committed, the worker process.

Volume threads call `run_opened` and `committed`; the main thread calls `poll`. The worker runs only
while there is a database to replicate, so that an agent without a master costs no second process.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from rla_agent.pipeline.stream import Stream
from rla_agent.replicate import Announcer, ReplicatorProcess, register
from rla_agent.replicate.pull.fetch_back import FetchQueue
from rla_agent.replicate.registry import entries
from rla_agent.replicate.retain.prune_plan import arrived
from rla_agent.store.config_reader import ConfigReader, Reading
from rla_client.contract.opening import Opening
from rla_client.contract.paths import Places

MAX_UNDECIDED = 1000  # runs whose configuration cannot be read yet
MAX_ASKED = 16  # questions about items that wait for their turn
LOOK_INTERVAL_S = 2.0  # at the list of databases, which `rla-agent replicate add` changes

_log = logging.getLogger("rla_agent.replicate.agent_side")


class Replication:
    """What the agent does for replication."""

    def __init__(self, places: Places, reader: ConfigReader) -> None:
        self._places = places
        self._reader = reader
        self._announcer = Announcer(places.state)
        self._process = ReplicatorProcess(places.state)
        self._lock = threading.Lock()
        self._undecided: deque[Opening] = deque(maxlen=MAX_UNDECIDED)
        self._next_look = 0.0
        self._wanted = False
        self._opened: set[str] = set()  # runs whose first commit is to come
        self._askers = ThreadPoolExecutor(1, thread_name_prefix="arrived")
        self._asked = threading.Semaphore(MAX_ASKED)
        self.fetches = FetchQueue(places.state)

    def run_opened(self, opening: Opening) -> None:
        """Have the run's database replicated if its configuration says so."""
        if not opening.primary or not opening.table or opening.config is None or opening.offline:
            return
        found = self._reader.reading(opening.config)
        if found is None:
            self._undecided.append(opening)
        elif _sends(opening.config, found):
            self._register(opening, opening.config)

    def _register(self, opening: Opening, config: str) -> None:
        master = opening.master
        with self._lock:
            try:
                register(
                    self._places.state,
                    opening.root,
                    config,
                    f"{opening.table}/{opening.index}",
                    is_master_node=master,
                )
            except OSError as error:
                _log.warning("database %s is not replicated: %s", opening.root, error)
            self._opened.add(opening.log_folder)
        self._wanted = True

    def _decide_late(self) -> None:
        """Runs whose configuration could not be read when they were opened, and can be now."""
        for _ in range(len(self._undecided)):
            opening = self._undecided.popleft()
            config = opening.config or ""
            found = self._reader.known(config)
            if found is None:
                self._undecided.append(opening)
            elif _sends(config, found):
                self._register(opening, config)

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
        """Find out, in a thread of its own, whether all of an item is on its master.

        Args:
            data_root: absolute.
            item: `table/YYYY/MM/DD/name`.
            answer: called from the thread: see `arrived`.
        """
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
            self._decide_late()
            self._wanted = bool(entries(self._places.state))
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
