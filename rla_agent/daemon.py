"""The agent process: wires the parts, serves until told to stop, shuts down in order.

The main thread is the ingest thread: it receives messages, finds new streams in the spool, routes
both to one `Volume` thread per file system, and answers commands. It never touches a data root.

Order of shutdown on SIGTERM or SIGINT: no new streams; each volume takes in what the spool holds,
commits and ends (DRAIN_S at most); sockets close; the lock goes last. A second signal ends the
process at once; nothing is lost by that.
"""

from __future__ import annotations

import argparse
import logging
import logging.handlers
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_agent.lock import AgentLock
from rla_agent.state import open_or_replace
from rla_agent.status import build_status
from rla_agent.stream import read_opening
from rla_agent.volume import Adopt, Data, Flush, Stop, Volume
from rla_agent.wire import Wire
from rla_client.config import AgentConfig, load_config
from rla_client.errors import AgentRunningError, ConfigError, PlaceError, RlaError
from rla_client.places import Places, find_places
from rla_client.protocol import MessageKind
from rla_client.spool import STREAM_NAME, stream_names
from rla_client.storage import TEMP_PREFIX

SCAN_S = 0.25  # how often the spool is looked at for new streams
DRAIN_S = 20.0
MOST_MESSAGES = 2000  # per wake-up, then timers are looked at
MAX_VOLUMES = 64  # file systems with a thread of their own; beyond, they share
LOG_BYTES = 4 << 20
EXIT_RUNNING, EXIT_PLACE, EXIT_CONFIG, EXIT_FAILED = 3, 4, 5, 1

_log = logging.getLogger("rla_agent")


class Daemon:
    """One agent."""

    def __init__(self, places: Places, settings: AgentConfig, *, idle_exit: bool = False) -> None:
        self.places = places
        self.settings = settings
        self.started = time.time()
        self._idle_exit_s = settings.idle_exit_s if idle_exit else 0.0
        self._wire = Wire(places)
        self._volumes: dict[int, Volume] = {}
        self._route: dict[str, Volume] = {}
        self._unreadable: dict[str, str] = {}
        self._next_scan = 0.0
        self._busy_at = time.monotonic()
        self._signals = 0
        self._failed = False

    def serve(self) -> int:
        """Serve until a signal, idleness or a fault; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._scan()
        _log.info("serving", extra={"fields": {"state": str(self.places.state), "pid": os.getpid()}})
        while not self._signals and not self._failed and not self._idle():
            for peer, kind, header, body, is_command in self._wire.receive(SCAN_S, MOST_MESSAGES):
                if is_command:
                    self._command(peer, kind, header)
                else:
                    self._message(peer, kind, header, body)
            if time.monotonic() >= self._next_scan:
                self._scan()
        self._shut_down()
        return EXIT_FAILED if self._failed else 0

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)
        self._wire.wake()

    def _idle(self) -> bool:
        if self._route:
            self._busy_at = time.monotonic()
        return self._idle_exit_s > 0 and time.monotonic() - self._busy_at > self._idle_exit_s

    # -- streams --------------------------------------------------------------------------------

    def _scan(self) -> None:
        """Adopt streams that appeared; sweep what a killed client left half-made."""
        self._next_scan = time.monotonic() + SCAN_S
        with suppress(OSError):
            for name in stream_names(self.places.spool):
                if name not in self._route:
                    self._adopt(name)

    def _adopt(self, name: str) -> Volume | None:
        if not STREAM_NAME.match(name):
            return None
        folder = self.places.spool / name
        try:
            opening, _ = read_opening(folder)
        except FileNotFoundError:
            return None
        except (RlaError, OSError) as error:
            self._unreadable[name] = str(error)
            return None
        self._unreadable.pop(name, None)
        volume = self._volume(opening.root_device)
        self._route[name] = volume
        volume.put(Adopt(name, folder))
        return volume

    def _volume(self, device: int) -> Volume:
        if device not in self._volumes and len(self._volumes) >= MAX_VOLUMES:
            device = sorted(self._volumes)[device % MAX_VOLUMES]
        volume = self._volumes.get(device)
        if volume is None:
            volume = Volume(
                f"volume-{len(self._volumes)}", self.places, self.settings, self._on_failure, self._on_done
            )
            self._volumes[device] = volume
            volume.start()
        return volume

    def _on_done(self, name: str) -> None:
        self._route.pop(name, None)

    def _on_failure(self) -> None:
        self._failed = True
        self._wire.wake()

    # -- messages -------------------------------------------------------------------------------

    def _message(self, peer: bytes, kind: int, header: dict[str, Any], body: bytes) -> None:
        name, number, offset = header.get("s"), header.get("n"), header.get("o")
        if not (isinstance(name, str) and isinstance(number, int) and isinstance(offset, int)):
            self._wire.garbage += 1
            return
        volume = self._route.get(name) or self._adopt(name)
        if kind == MessageKind.DATA:
            if volume is not None:
                volume.put(Data(name, number, offset, body))
        elif kind == MessageKind.FLUSH:
            answer = self._answerer(peer, name)
            if volume is None:
                answer(name not in self._unreadable)  # unknown: taken in long ago
            else:
                volume.put(Flush(name, number, offset, bool(header.get("m")), answer))

    def _answerer(self, peer: bytes, stream: str) -> Callable[[bool], None]:
        def answer(done: bool) -> None:  # noqa: FBT001 - one meaning
            self._wire.answer_later(peer, {"s": stream, "done": done})

        return answer

    def _command(self, peer: bytes, kind: int, header: dict[str, Any]) -> None:
        if kind == MessageKind.STATUS:
            del header
            self._wire.reply(peer, self.status())

    def status(self) -> dict[str, Any]:
        """Plain data of `rla-agent status --json`."""
        return build_status(
            self.places,
            self.started,
            [volume.snapshot() for volume in list(self._volumes.values())],
            self._unreadable,
            self._wire.garbage,
            self._wire.newer,
        )

    # -- the end --------------------------------------------------------------------------------

    def _shut_down(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        for volume in self._volumes.values():
            volume.put(Stop(deadline))
        for volume in self._volumes.values():
            volume.join(max(0.0, deadline + 1.0 - time.monotonic()))
        self._wire.close()


def sweep_half_made(spool: Path, older_than_s: float = 60.0) -> None:
    """Remove stream folders that a client was killed in the middle of making."""
    now = time.time()
    with suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            if entry.name.startswith(TEMP_PREFIX) and now - entry.stat().st_mtime > older_than_s:
                with suppress(OSError):
                    for name in os.listdir(entry.path):
                        os.unlink(os.path.join(entry.path, name))
                    os.rmdir(entry.path)


def set_up_logging(places: Places, *, to_console: bool) -> None:
    """Log to `<state>/agent.log`, two files of LOG_BYTES, and to stderr when in the foreground."""
    form = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handlers: list[logging.Handler] = [
        logging.handlers.RotatingFileHandler(places.log, maxBytes=LOG_BYTES, backupCount=1)
    ]
    if to_console:
        handlers.append(logging.StreamHandler())
    for handler in handlers:
        handler.setFormatter(form)
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)


def raise_file_limit() -> None:
    """Use all descriptors that this user may have: a client takes three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run_agent(config_path: Path | None, *, idle_exit: bool, to_console: bool) -> int:
    """Run an agent for the places of this environment until it is told to stop.

    Returns:
        Exit code; messages for the user go to stderr.
    """
    places = find_places()
    os.umask(0o022)
    try:
        settings = load_config(config_path).agent if config_path else AgentConfig()
        places.create()
        lock = AgentLock(places)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIG
    except AgentRunningError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_RUNNING
    except (PlaceError, OSError) as error:
        sys.stderr.write(f"cannot use the state folder {places.state}: {error}\n")
        return EXIT_PLACE
    set_up_logging(places, to_console=to_console)
    raise_file_limit()
    sweep_half_made(places.spool)
    try:
        database, broken = open_or_replace(places.database)
        if broken:
            _log.error("agent.db was damaged and is now %s; positions come from the spool", broken)
        database.grow_wal()  # stays open: the last connection to close would shrink the WAL
        database.drop_old_runs()
        code = Daemon(places, settings, idle_exit=idle_exit).serve()
        database.close()
    finally:
        lock.release()
    return code


def main() -> int:
    """Entry of the agent process itself; `rla-agent start` is what people call."""
    parser = argparse.ArgumentParser(prog="rla_agent.daemon")
    parser.add_argument("--config", type=Path, help="rla_config.yaml whose AGENT section is used")
    parser.add_argument("--background", action="store_true", help="log to the log file only")
    parser.add_argument("--idle-exit", action="store_true", help="end after idle_exit_s without work")
    arguments = parser.parse_args()
    if arguments.background:
        os.chdir("/")
    return run_agent(arguments.config, idle_exit=arguments.idle_exit, to_console=not arguments.background)


if __name__ == "__main__":
    sys.exit(main())
