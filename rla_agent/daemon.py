"""The agent process.

It wires the parts, serves until stopped, and shuts down in order. The main thread is the ingest thread: it
receives messages, discovers new streams in the spool, routes both to one `Volume` thread per file system, and
answers commands, `status` by a thread of its own. It never touches a data root.

On SIGTERM or SIGINT: no new streams; each volume ingests the rest of the spool, commits and ends (DRAIN_S at
most); running jobs may end within JOBS_S of that; sockets close. A second signal ends the process at once,
without loss. After releasing the lock on idle exit the spool is scanned once more: a client that saw the lock
held did not start an agent. An agent whose lock, spool or agent.db is missing or replaced ends at once
(service/agent_lock.py); an agent started by systemd lets one that a client started drain, and takes over.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sqlite3
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rla_agent.alerts.alerting import Alerting
from rla_agent.model.problem import problem
from rla_agent.model.rate_meter import RateMeter
from rla_agent.model.records import Position
from rla_agent.model.status import ENDED_SHOWN, Facts, build_status
from rla_agent.outputs.file_system_lanes import Disk, disk_of
from rla_agent.pipeline.flush import NOTHING, Flush
from rla_agent.pipeline.open_stream import Adopt
from rla_agent.pipeline.quarantine import Quarantine
from rla_agent.pipeline.run_registry import RunRegistry
from rla_agent.pipeline.spool_watch import SpoolWatch
from rla_agent.pipeline.stream_cleanup import MEMORY_SWEEP_INTERVAL_S, sweep_half_made, sweep_memory
from rla_agent.pipeline.volume import StreamHint, Volume, stop_volumes
from rla_agent.replicate.agent_side import Replication
from rla_agent.service import agent_lock, process_setup
from rla_agent.service.notifier import Notifier
from rla_agent.sockets import Sockets
from rla_agent.store.agent_db import AgentDatabase
from rla_agent.store.config_reader import ConfigReader
from rla_agent.store.settings import InForce, settings_in_force
from rla_agent.store.sqlite import NewerFormatError, database_files, open_or_replace
from rla_agent.system_metrics.sampler import ResourceSampler
from rla_client.contract.agent.agent_environment import OWNER_VARIABLE, tight_limits
from rla_client.contract.agent.places import Places, find_places
from rla_client.contract.errors import AgentRunningError, ConfigError, PlaceError
from rla_client.contract.filesystem.trusted_paths import check_entries
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import MessageKind
from rla_client.contract.spool.segments import spool_bytes, stream_names
from rla_client.contract.spool.writer_liveness import process_lives

SCAN_S = 0.25  # period of checks for new streams in the spool
SAMPLE_S = 1.0  # of the runs' row counts, for rows/s
OWNERLESS_S = 1.0  # without work, after the end of the `rla-agent run` whose agent it is
DRAIN_S = 20.0
JOBS_S = 5.0  # some GB of a checkpoint; an interrupted job is repeated by the next agent
ALERT_STOP_S, LEAST_ALERT_S = 5.0, 0.5  # for first attempts; the next agent sends the rest
REPLICATOR_STOP_S = 3.0  # its progress is in its ledger; it continues with the next start
MOST_MESSAGES = 2000  # per wake-up, then timers are looked at
MAX_VOLUMES = 64  # file systems with a thread of their own; beyond, they share
EXIT_RUNNING, EXIT_PLACE, EXIT_CONFIG, EXIT_NEWER, EXIT_FAILED = 3, 4, 5, 6, 1  # docs/reference/status.md
_log = logging.getLogger("rla_agent")


class Daemon:
    """One agent."""

    def __init__(
        self,
        places: Places,
        in_force: InForce,
        notifier: Notifier,
        lock: agent_lock.AgentLock,
        *,
        idle_exit: bool = False,
        config: Path | None = None,
    ) -> None:
        self.places = places
        self._lock = lock
        settings = self.settings = in_force.agent
        self._in_force = in_force
        self.idled = False  # ended for lack of work
        self._notifier = notifier
        self._rates = RateMeter()
        self._next_sample = 0.0
        self._next_sweep = time.monotonic() + MEMORY_SWEEP_INTERVAL_S
        self._stopping = False
        self.started = time.time()
        self._owner = os.environ.get(OWNER_VARIABLE, "").encode()  # the `rla-agent run` whose agent it is
        self._idle_exit_s = settings.idle_exit_s if idle_exit else 0.0
        self._wire = Sockets(places)
        self._configs = ConfigReader()
        self._replication = Replication(places, self._configs)
        own = None if idle_exit else config
        self._alerting = Alerting(places, own, self._live_streams, self.started, self._configs)
        self._sampler = ResourceSampler(self._live_streams, settings.sample_interval_s)
        self._volumes: dict[Disk, Volume] = {}
        self._route: dict[str, Volume] = {}
        self._unreadable = Quarantine(places.spool)
        self._next_scan = 0.0
        self._spool_watch = SpoolWatch(places.spool)
        self._busy_at = time.monotonic()
        self._askers: deque[bytes] = deque()  # peers that wait for `status`
        self._teller = ThreadPoolExecutor(1, thread_name_prefix="status")
        self._signals = 0
        self._failed = False

    def serve(self) -> int:
        """Serve until a signal, idleness or a fault; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # `rla-agent run` blocks them, and a mask is inherited
        self._scan()
        self._notifier.ready()
        self._sampler.start()
        self._alerting.start()
        _log.info("serving", extra={"fields": {"state": str(self.places.state), "pid": os.getpid()}})
        while not self._signals and not self._failed and not self._idle():
            for peer, kind, header, is_command in self._wire.receive(SCAN_S, MOST_MESSAGES):
                if is_command:
                    self._command(peer, kind, header)
                else:
                    self._message(peer, kind, header)
            now = time.monotonic()
            if now >= self._next_scan:
                self._scan()
            if now >= self._next_sample:
                self._sample(now)
            self._replication.poll(now)
            self._alerting.poll(now)
            self._notifier.beat(now)
        self.idled = not (self._signals or self._failed)
        self._shut_down()
        return EXIT_FAILED if self._failed else 0

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)
        self._wire.wake()

    def _idle(self) -> bool:
        if self._route or self._alerting.waiting:
            self._busy_at = time.monotonic()
        idle_s = time.monotonic() - self._busy_at
        if self._owner and idle_s > OWNERLESS_S and not process_lives(self._owner):
            return True  # the job is over, and so are all others that used its agent
        return 0 < self._idle_exit_s < idle_s

    def _scan(self) -> None:
        """Adopt streams that appeared."""
        self._end_unless_ours()
        now = time.monotonic()
        self._next_scan = now + SCAN_S
        for name in self._spool_watch.names(now):
            if name not in self._route and self._adopt(name) is None and name not in self._unreadable:
                self._spool_watch.look_again()

    def _end_unless_ours(self) -> None:
        """End the process, without further writes, where its folders belong to another agent by now."""
        if why := self._lock.lost():
            _log.error("%s: the agent ends; the next one continues with what the spool holds", why)
            process_setup.end_process(EXIT_FAILED)

    def _adopt(self, name: str) -> Volume | None:
        self._end_unless_ours()
        opening = self._unreadable.read(name, time.monotonic())
        if opening is None:
            return None
        volume = self._volume(disk_of(opening.root, opening.root_device))
        self._route[name] = volume
        volume.put(Adopt(name, self.places.spool / name, opening.root))
        return volume

    def _volume(self, disk: Disk) -> Volume:
        if disk not in self._volumes and len(self._volumes) >= MAX_VOLUMES:
            disk = sorted(self._volumes)[hash(disk) % MAX_VOLUMES]
        volume = self._volumes.get(disk)
        if volume is None:
            volume = Volume(
                f"volume-{len(self._volumes)}",
                self.places,
                self.settings,
                self._on_failure,
                lambda name: self._route.pop(name, None),
                replication=self._replication,
                registry=RunRegistry(self._alerting),
            )
            self._volumes[disk] = volume
            volume.start()
        return volume

    def _live_streams(self) -> list[tuple[str, Opening]]:
        return [
            (stream.name, stream.opening)
            for volume in list(self._volumes.values())
            for stream in list(volume.streams.values())
            if not stream.writer_gone and not stream.removed and not stream.parked
        ]

    def _on_failure(self) -> None:
        self._failed = True
        self._wire.wake()

    def _message(self, peer: bytes, kind: int, header: dict[str, Any]) -> None:
        name, number, offset = header.get("s"), header.get("n"), header.get("o")
        if not (isinstance(name, str) and isinstance(number, int) and isinstance(offset, int)):
            self._wire.count_garbage()
            return
        volume = self._route.get(name) or self._adopt(name)
        if kind == MessageKind.HINT:
            if volume is not None:
                volume.put(StreamHint(name, Position(number, offset)))
        elif kind == MessageKind.FLUSH:
            answer = partial(self._answer, peer, name)
            if volume is None:
                answer(name not in self._unreadable, NOTHING)  # unknown: taken in long ago
            else:
                volume.put(Flush(peer, name, number, offset, bool(header.get("m")), answer))

    def _answer(self, peer: bytes, stream: str, done: bool, failed: tuple[int, int]) -> None:
        told = {"s": stream, "done": done, "since": self.started, "media": failed[0], "others": failed[1]}
        self._wire.answer_later(peer, told)

    def _command(self, peer: bytes, kind: int, header: dict[str, Any]) -> None:
        if kind == MessageKind.STATUS and isinstance(header.get("item"), str):
            self._replication.ask_arrived(
                str(header.get("root")),
                header["item"],
                lambda found: self._wire.answer_later(peer, {"replicated": found}, command=True),
            )
        elif kind == MessageKind.STATUS and isinstance(header.get("fetch"), dict):
            self._wire.reply(peer, self._replication.fetches.ask(header["fetch"]))
        elif kind == MessageKind.STATUS and header.get("stop") is True:
            self._wire.reply(peer, {"stopping": True})
            self._signals += 1
        elif kind == MessageKind.STATUS:
            self._askers.append(peer)
            problems = self._configs.problems() + self._replication.problems()
            self._teller.submit(self._tell_status, self._facts(), problems)

    def _sample(self, now: float) -> None:
        self._next_sample = now + SAMPLE_S
        if now >= self._next_sweep:
            self._next_sweep = now + MEMORY_SWEEP_INTERVAL_S
            sweep_memory(self.places)
        self._wire.bind_again()
        self._unreadable.forget_gone()
        self._configs.retry()
        self._rates.sample(now, self._rows())
        if self._notifier.status_due(now):
            runs = sum(len(volume.runs) for volume in self._volumes.values())
            self._notifier.status(f"{runs} runs, {len(self._route)} streams")

    def _rows(self) -> dict[str, int]:
        return {run.run: run.rows for volume in self._volumes.values() for run in list(volume.runs.values())}

    def _facts(self) -> Facts:
        """Facts of this thread for `status`."""
        now = time.monotonic()
        return Facts(
            pid=os.getpid(),
            places=self.places,
            started=self.started,
            now=time.time(),
            state="draining" if self._stopping else "serving",
            service=self._notifier.kind,
            spool_max_bytes=self.settings.spool_max_bytes,
            settings=self._in_force.to_plain(),
            settings_faults=self._in_force.faults,
            rates={run: self._rates.rate(run, now, rows) or 0.0 for run, rows in self._rows().items()},
            unreadable=dict(self._unreadable),
            garbage=self._wire.garbage,
            newer=self._wire.newer,
            limits=tuple(tight_limits()),
        )

    def _tell_status(self, facts: Facts, problems: list[dict[str, str]]) -> None:
        """Answer all waiting `status` requests, in a thread of its own, since it walks through the spool."""
        if not self._askers:
            return  # an earlier turn did
        peers = [self._askers.popleft() for _ in range(len(self._askers))]
        try:
            status = self._status(facts, problems)
        except Exception:  # noqa: BLE001 - the top of a thread: no answer is worth the agent
            _log.exception("status cannot be told")
            return
        for peer in peers:
            self._wire.answer_later(peer, status, command=True)

    def _status(self, facts: Facts, problems: list[dict[str, str]]) -> dict[str, Any]:
        """Plain data of `rla-agent status --json`."""
        volumes = list(self._volumes.values())
        lags = {stream.name: stream.lag_bytes() for v in volumes for stream in list(v.streams.values())}
        ended: tuple[dict[str, Any], ...] = ()
        try:
            with closing(AgentDatabase(self.places.database, readonly=True)) as database:
                ended = database.ended_runs(ENDED_SHOWN)
        except sqlite3.Error as error:
            problems = [*problems, problem(f"agent.db cannot be read now: {error}")]
        facts = replace(facts, ended=ended, spool_bytes=spool_bytes(self.places.spool), lags=lags)
        status = build_status(facts, [volume.snapshot() for volume in volumes])
        status["alerts"] = self._alerting.snapshot()
        status["problems"] += status["alerts"].pop("problems") + problems + self._sampler.problems()
        return status

    def _shut_down(self) -> None:
        self._stopping = True
        self._notifier.stopping()
        deadline = time.monotonic() + DRAIN_S
        stop_volumes(self._volumes.values(), deadline, JOBS_S)
        self._sampler.stop()
        self._alerting.stop(max(LEAST_ALERT_S, min(ALERT_STOP_S, deadline - time.monotonic())))
        self._replication.stop(REPLICATOR_STOP_S)
        self._teller.shutdown(wait=False, cancel_futures=True)
        self._wire.close()

    @property
    def writing(self) -> bool:
        """Whether a thread may still write into data roots; after `serve` it ends with the process."""
        return any(volume.is_alive() for volume in self._volumes.values())


def run_agent(config: Path | None, *, idle_exit: bool, to_console: bool) -> int:
    """Run an agent for the places of this environment until it is stopped.

    Where threads still write in the end, the lock is kept: the caller ends the process then.

    Returns:
        Exit code; messages for the user go to stderr.
    """
    places = find_places()
    notifier = Notifier(os.environ)
    os.umask(0)  # a run's folder says how open is what is made in it (`contract.filesystem.modes`)
    try:
        places.create()
        check_entries(places.state)
        process_setup.set_up_logging(places, to_console=to_console)
        settings = settings_in_force(config, autostarted=idle_exit)
        lock = agent_lock.take_lock(places, notifier.kind)
    except ConfigError as error:
        _log.error("%s", error)
        return EXIT_CONFIG
    except AgentRunningError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_RUNNING
    except (PlaceError, OSError) as error:
        sys.stderr.write(f"cannot use the state folder {places.state}: {error}\n")
        return EXIT_PLACE
    process_setup.raise_limits()
    process_setup.spare_collections()
    while True:
        if lock.elsewhere:
            _log.warning("%s; the sockets are in %s", lock.elsewhere, lock.places.runtime)
        code, idled, writing = serve_once(
            lock.places, settings, notifier, lock, idle_exit=idle_exit, config=config
        )
        if writing:
            return code
        lock.release()
        if not idled or not stream_names(places.spool):
            return code
        try:
            lock = agent_lock.AgentLock(places)
        except AgentRunningError:
            return code


def serve_once(
    places: Places,
    settings: InForce,
    notifier: Notifier,
    lock: agent_lock.AgentLock,
    *,
    idle_exit: bool,
    config: Path | None,
) -> tuple[int, bool, bool]:
    """Serve until the end; the caller holds the lock.

    Returns:
        Exit code, whether it ended for lack of work, and whether threads still write.
    """
    sweep_half_made(places.spool)
    sweep_memory(places)
    try:
        database, broken = open_or_replace(places.database, AgentDatabase)
    except NewerFormatError as error:
        _log.error("%s; rows stay in the spool", error)
        return EXIT_NEWER, False, False
    except (sqlite3.Error, OSError) as error:
        _log.error("cannot open %s: %s", places.database, error)
        return EXIT_FAILED, False, False
    if broken:
        _log.error("agent.db was damaged and is now %s; positions come from the spool", broken)
    with closing(database):
        try:
            database.grow_wal()  # stays open: the last connection to close would shrink the WAL
            database.drop_old_runs(time.time())
        except sqlite3.OperationalError as error:
            _log.warning("agent.db cannot be written now: %s; rows stay in the spool", error)
        for path in database_files(places.database):
            lock.keep(path)
        daemon = Daemon(places, settings, notifier, lock, idle_exit=idle_exit, config=config)
        try:
            code = daemon.serve()
        except sqlite3.Error as error:
            _log.error("agent.db failed: %s; the agent ends, rows stay in the spool", error)
            code = EXIT_FAILED
        return code, daemon.idled, daemon.writing


def main() -> NoReturn:
    """Entry point of the agent process itself; users call `rla-agent start`."""
    parser = argparse.ArgumentParser(prog="rla_agent.daemon")
    parser.add_argument("--config", type=Path, help="rla_config.yaml whose AGENT section is used")
    parser.add_argument("--background", action="store_true", help="log to the log file only")
    parser.add_argument("--idle-exit", action="store_true", help="end after idle_exit_s without work")
    arguments = parser.parse_args()
    if arguments.background:
        os.chdir("/")
    code = EXIT_FAILED
    try:
        code = run_agent(arguments.config, idle_exit=arguments.idle_exit, to_console=not arguments.background)
    except Exception:  # noqa: BLE001 - the top of the main thread
        _log.exception("the agent failed; it replays on the next start")
    process_setup.end_process(code)


if __name__ == "__main__":
    main()
