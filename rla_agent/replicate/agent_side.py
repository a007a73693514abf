"""Replication as the agent sees it.

Volume threads call `run_opened` and `committed`; the main thread calls `poll`. The worker runs only while
there is a database to replicate, so that an agent without a master costs no second process.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from rla_agent.pipeline.stream import Stream
from rla_agent.replicate import registry
from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.item_on_master import arrived
from rla_agent.replicate.registry import ListBusyError
from rla_agent.replicate.replicator_process import ReplicatorProcess
from rla_agent.replicate.transfer.fetch_queue import FetchQueue
from rla_agent.store.config_reader import ConfigReader, Reading
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.opening import Opening

MAX_UNDECIDED: Final = 1000  # runs whose configuration cannot be read yet, or database registered
MAX_ASKED: Final = 16  # queued questions about items
LOOK_INTERVAL_S: Final = 2.0  # between two reads of the list of databases
_log = logging.getLogger("rla_agent.replicate.agent_side")


class Replication:
    """The agent's part of replication."""

    def __init__(self, places: Places, reader: ConfigReader) -> None:
        self._places = places
        self._reader = reader
        self._announcer = Announcer(places.state)
        self._process = ReplicatorProcess(places.state)
        self._lock = threading.Lock()
        self._undecided: deque[Opening] = deque()
        self._next_look = 0.0
        self._wanted = False
        self._refused = ""  # the last logged reason why a database could not be registered
        self._opened: set[str] = set()  # runs whose first commit is to come
        self._askers = ThreadPoolExecutor(1, thread_name_prefix="arrived")
        self._asked = threading.Semaphore(MAX_ASKED)
        self.fetches = FetchQueue(places.state)

    def run_opened(self, opening: Opening) -> None:
        """Have the run's database replicated if its configuration says so."""
        begins = opening.primary or (opening.ends_part and opening.replicate)
        if begins and opening.table and opening.config is not None and not opening.offline:
            self._decide(opening, opening.config, self._reader.reading(opening.config))

    def _decide(self, opening: Opening, config: str, reading: Reading | None) -> bool:
        """Register the run's database, or later where its configuration cannot be read now.

        False: the list of databases cannot be changed now.
        """
        if reading is None:
            self._put_off(opening)
        elif _sends(config, reading) and not self._register(opening, config):
            self._put_off(opening)
            return False
        return True

    def _put_off(self, opening: Opening) -> None:
        self._undecided.append(opening)
        with suppress(IndexError):  # another thread has taken it
            while len(self._undecided) > MAX_UNDECIDED:
                dropped = self._undecided.popleft()
                _log.error(
                    "database %s of run %s/%s, and those of %d later runs, could not be registered for "
                    "replication; once there is room: rla-agent replicate add",
                    *(dropped.root, dropped.table, dropped.index, MAX_UNDECIDED),
                )

    def _register(self, opening: Opening, config: str) -> bool:
        """Register a database; False: later. It never waits, since volumes' threads call it."""
        item = f"{opening.table}/{opening.index}"
        try:
            registry.register(self._places.state, opening.root, config, item, is_master_node=opening.master)
        except (OSError, ListBusyError) as error:
            if str(error) != self._refused:
                _log.warning("database %s is not replicated yet; retrying: %s", opening.root, error)
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
            if stream.take_replicate_now() or folder in self._opened:
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
            answer(False)  # the queue is full; the client asks again

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
        """Start the worker when there is work for it or when it died; collect ended fetches."""
        self.fetches.poll()
        if now >= self._next_look:
            self._next_look = now + LOOK_INTERVAL_S
            for _ in range(len(self._undecided)):
                opening = self._undecided.popleft()
                config = opening.config or ""
                if not self._decide(opening, config, self._reader.known(config)):
                    break  # each would try to write the list
            with suppress(registry.UnreadableListError):  # `status` reports it; until then nothing changes
                self._wanted = bool(registry.entries(self._places.state))
        if self._wanted:
            self._process.poll(now)

    def problems(self) -> list[dict[str, str]]:
        """Problems because of which databases are not replicated at all."""
        refused = f"a database is not replicated yet; retrying: {self._refused}" if self._refused else ""
        fault = self._process.fault if self._wanted else ""
        return [{"what": what, "fix": "see: rla-agent logs"} for what in (refused, fault) if what]

    def stop(self, timeout: float) -> None:
        """End the worker."""
        self._askers.shutdown(wait=False, cancel_futures=True)
        self.fetches.stop()
        self._process.stop(timeout)
        self._announcer.close()


def _sends(config: str, reading: Reading) -> bool:
    """SEND_LOG_FILE of a configuration."""
    if reading.config is None:
        _log.warning("cannot read %s, its runs are not replicated: %s", config, "; ".join(reading.faults))
        return False
    return reading.config.send_log_file
