"""The agent as a process: its lock, who holds it, asking, starting and stopping it, what it sets for itself.

One agent per spool. An agent locks two things for life, before it binds its sockets. `agent.lock` names it
for others, and clients ask that lock whether there is an agent. The spool's folder itself is what must have
one owner: it is the same folder by whatever path it is reached, and nobody can delete it while it is in use,
so its lock holds where `agent.lock` was removed, or a link or a bind mount leads around it. (A cleaner of old
files, such as systemd-tmpfiles, leaves a locked folder alone.)

A path may come to lead elsewhere under an agent: the state folder deleted, renamed, or mounted over, and
made anew by a client. `AgentLock.lost` says so, and the agent ends at once: it may write nothing any more,
because another one may serve what the path leads to now.

Where a systemd unit is installed for this user, starting and stopping go through systemctl, so that
the unit and an autostarted agent never hold each other off. An agent that was started otherwise is
told by signal, and over its control socket where its process cannot be seen from here (a container). A
process is signalled only while it has `agent.lock` open: its number may be another process's in another
container, or after a reboot.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import select
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn

from rla_agent.model.fault_log import Repeats
from rla_agent.model.status import LOG_FORMAT, OneLine
from rla_agent.replicate import settings
from rla_agent.service.systemd import manager_reachable, systemctl
from rla_client.config.schema import password_variables
from rla_client.contract.agent.agent_environment import OWNER_VARIABLE, clean_environment
from rla_client.contract.agent.agent_process import RAW_BLOBS, agent_alive, shared_memory_device
from rla_client.contract.agent.agent_start import detached_command
from rla_client.contract.agent.dealer import ask
from rla_client.contract.agent.places import Places, other_states
from rla_client.contract.agent.systemd_unit import Unit, installed_unit
from rla_client.contract.errors import AgentNotRunningError, AgentRunningError, RlaError
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.process.locks import holder_pid, lock_record, try_lock
from rla_client.contract.process.syscalls import process_descriptor, signal_process
from rla_client.contract.spool.protocol import PROTOCOL_VERSION
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import process_start

TAKE_OVER_S = 25.0  # an agent that drains ends within 20
LOSER_S = 5.0  # an agent whose agent.lock was removed notices that within one, and ends
ASK_TIMEOUT_S = 5.0
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 25.0
EXIT_TIMEOUT_S = 2.0  # from letting go of the lock to the end of the process
POLL_S = 0.02
LOG_TAIL_BYTES = 4000
LOG_POLL_S = 0.25
LOG_BYTES = 4 << 20
GC_THRESHOLD = 20_000  # new containers between looks: some batches of rows


class AgentLock:
    """Holds the locks until `release` or the end of the process."""

    def __init__(self, places: Places, service: str = "", *, spool: Path | None = None) -> None:
        """Take both locks.

        Args:
            places: whose lock.
            service: `user` or `system` when a systemd unit runs this agent.
            spool: folder of the streams, where it is not that of `places`.

        Raises:
            AgentRunningError: somebody else holds one; the message says who.
            OSError: the file or the folder cannot be opened.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptors = [os.open(places.lock, flags, 0o600)]
        self._kept: dict[Path, tuple[int, int]] = {}
        try:
            lock_record(self._descriptors[0])
        except OSError as error:
            self.release()
            raise AgentRunningError(describe_holder(places)) from error
        try:
            self._take_folder(places.spool if spool is None else spool)
        except BaseException:
            self.release()
            raise
        self.keep(places.lock)
        content = {
            "pid": os.getpid(),
            "since": time.time(),
            "host": os.uname().nodename,
            "runtime": str(places.runtime),
            "service": service,
            "protocol": PROTOCOL_VERSION,
            "shm": shared_memory_device(),
            RAW_BLOBS: True,
            "owner": os.environ.get(OWNER_VARIABLE, ""),
        }
        os.ftruncate(self._descriptors[0], 0)
        os.pwrite(self._descriptors[0], json.dumps(content).encode(), 0)

    def _take_folder(self, folder: Path) -> None:
        """Lock the spool's folder; waits for a holder whose agent.lock was removed.

        Raises:
            AgentRunningError: it does not end.
        """
        descriptor = open_root(folder)
        self._descriptors.append(descriptor)
        with suppress(OSError):  # a file system without such locks: agent.lock has to do
            if not try_lock(descriptor, timeout_s=LOSER_S):
                pid = holder_pid(descriptor)
                unseen = "a process that cannot be seen from here (in another container?)"
                holder = unseen if pid is None else f"pid {pid}"
                raise AgentRunningError(f"{holder}, which serves the spool {folder}")
        self._kept[folder] = _identity(os.fstat(descriptor))

    def keep(self, path: Path) -> None:
        """Have `lost` tell of a file, too, that must stay the one that it is now. None there: nothing is."""
        with suppress(FileNotFoundError):
            self._kept[path] = _identity(os.stat(path))

    def lost(self) -> str:
        """Why this process must write nothing any more; empty while its paths lead to what it holds."""
        for path, identity in self._kept.items():
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return f"{path} is gone"
            except OSError:
                continue  # a lack of memory, or a right that was taken away, says nothing
            if _identity(found) != identity:
                return f"{path} is another one now"
        return ""

    def release(self) -> None:
        """Let go."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def take_lock(places: Places, service: str) -> AgentLock:
    """The lock; as a service, from an agent that is none, after that one has drained.

    Args:
        places: whose lock.
        service: `user` or `system` when a systemd unit runs this agent, else empty.

    Raises:
        AgentRunningError: another agent holds it.
        OSError: the lock file cannot be opened.
    """
    deadline = time.monotonic() + TAKE_OVER_S
    told = 0
    while True:
        try:
            return AgentLock(places, service)
        except AgentRunningError:
            holder = read_holder(places)
            pid = holder.get("pid")
            if not service or holder.get("service") or time.monotonic() > deadline:
                raise
        if isinstance(pid, int) and pid != told:
            process = HolderProcess.find(places)
            if process is not None:
                told = pid
                process.terminate()
                process.close()
        time.sleep(POLL_S)


class HolderProcess:
    """The process that holds the lock, as a handle that never means another one."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    @classmethod
    def find(cls, places: Places) -> HolderProcess | None:
        """The process that the lock file names, while it has that file open; None where it has not.

        Then it is not to be seen from here: it runs on the host, or in another container.
        """
        pid = read_holder(places).get("pid")
        if not isinstance(pid, int):
            return None
        try:
            descriptor = process_descriptor(pid)  # refuses what is not a number of a process
        except (OSError, OverflowError):
            return None
        if _has_open(pid, places.lock):
            return cls(pid, descriptor)
        os.close(descriptor)
        return None

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        with suppress(ProcessLookupError):
            signal_process(self._descriptor, signal.SIGTERM)

    def await_end(self, timeout_s: float) -> bool:
        """Whether it ended within that time."""
        return bool(select.select([self._descriptor], [], [], timeout_s)[0])

    def close(self) -> None:
        """Let go of the handle."""
        os.close(self._descriptor)


def visible_holder(places: Places) -> int | None:
    """Process id of the lock's holder, None where it is not a process that can be seen from here."""
    process = HolderProcess.find(places)
    if process is None:
        return None
    process.close()
    return process.pid


def _has_open(pid: int, path: Path) -> bool:
    try:
        wanted = _identity(os.stat(path, follow_symlinks=False))
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        with suppress(OSError):
            link = f"/proc/{pid}/fd/{name}"
            if os.path.basename(os.readlink(link)) == path.name and _identity(os.stat(link)) == wanted:
                return True
    return False


def read_holder(places: Places) -> dict[str, Any]:
    """What the lock file says of its holder; empty when it says nothing."""
    try:
        content = json.loads(places.lock.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def describe_holder(places: Places) -> str:
    """The holder in words."""
    holder = read_holder(places)
    if "pid" not in holder:
        return f"unknown process, lock {places.lock}"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(holder.get("since", 0))))
    return f"pid {holder['pid']} on {holder.get('host', '?')} since {since}, lock {places.lock}"


# -- asking -------------------------------------------------------------------------------------


def ask_status(places: Places, timeout_s: float = ASK_TIMEOUT_S) -> dict[str, Any]:
    """The agent's own account of itself.

    Raises:
        AgentNotRunningError: no agent holds the lock.
        RlaError: one does and does not answer.
    """
    return _ask(places, {}, timeout_s)


def _ask(places: Places, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    if not agent_alive(places):
        raise AgentNotRunningError(
            f"no agent is running for {places.state}; start one: rla-agent start --detach"
        )
    told = read_holder(places).get("protocol", 1)  # an agent that was not restarted after an upgrade
    version = min(told, PROTOCOL_VERSION) if isinstance(told, int) else None
    answer = ask(places.control_socket, question, timeout_s, version=version)
    if answer is not None:
        return answer
    raise RlaError(f"the agent does not answer within {timeout_s:g} s: {describe_holder(places)}")


def left_behind(places: Places) -> list[dict[str, str]]:
    """Spools of this user beside the own one that hold rows and that no agent serves: `what` and `fix`.

    A machine's host name or id was changed, or a home came from another machine.
    """
    found = []
    for state in other_states(places.state):
        other = Places(state, state)
        try:
            names = stream_names(other.spool)
        except OSError:
            continue
        if names and not agent_alive(other):
            what = f"rows of {len(names)} process(es) wait in {other.spool}, of another host name or machine"
            found.append({"what": what, "fix": f"rla-agent drain --spool {shlex.quote(str(state))}"})
    return found


# -- start --------------------------------------------------------------------------------------


def start_detached(places: Places, config: Path | None) -> bool:
    """Start an agent in the background and wait until it answers.

    Returns:
        False when one was running already.

    Raises:
        RlaError: it did not come up; the message says why.
    """
    if agent_alive(places):
        ask_status(places)
        return False
    places.create()
    unit = installed_unit()
    if unit is not None and config is not None:
        raise RlaError(
            f"{unit.name} starts the agent; name its configuration there: rla-agent install-service --config"
        )
    if unit is not None and _start_unit(unit, places):
        return True
    before = places.log.stat().st_size if places.log.exists() else 0
    configs = [Path(entry.config) for entry in settings.listed(places.state)]
    done = subprocess.run(
        detached_command(config, autostarted=False),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd="/",
        env=clean_environment() | password_variables(configs if config is None else [config, *configs]),
        start_new_session=True,
        check=True,
    )
    if _await_serving(places, int(done.stdout)):
        return True
    tail = ""
    with suppress(OSError), places.log.open("rb") as log:
        log.seek(before)
        tail = log.read(LOG_TAIL_BYTES).decode("utf-8", "replace")
    raise RlaError(f"the agent did not come up; its log {places.log} says:\n{tail}")


def _start_unit(unit: Unit, places: Places) -> bool:
    """Start through systemd; False when the user's service manager cannot be reached."""
    done = systemctl(unit, "start")
    if done.returncode == 0 and _await_serving(places):
        return True
    if not unit.system and not manager_reachable(unit):
        return False
    scope = "" if unit.system else "--user "
    raise RlaError(
        f"systemctl {scope}start {unit.name} failed: {done.stderr.strip() or 'the agent does not answer'}; "
        f"see: journalctl {scope}-u {unit.name}"
        + (f"; as root: systemctl start {unit.name}" if unit.system and os.geteuid() != 0 else "")
    )


def _await_serving(places: Places, starting: int | None = None) -> bool:
    """Whether an agent answers in time; not waited for when the process `starting` has ended."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if agent_alive(places) and read_holder(places).get("pid"):
            with suppress(RlaError):
                ask_status(places, min(1.0, max(0.1, deadline - time.monotonic())))
                return True
        elif starting is not None and process_start(starting) is None:
            return agent_alive(places)  # another one may have been quicker
        time.sleep(POLL_S)
    return False


# -- stop ---------------------------------------------------------------------------------------


def stop_agent(places: Places) -> bool:
    """Tell the agent to drain and end, and wait for that.

    Returns:
        False when none was running.

    Raises:
        RlaError: it did not end in time, or cannot be told.
    """
    if not agent_alive(places):
        return False
    holder = read_holder(places)
    unit = installed_unit()
    if holder.get("service") and unit is not None and systemctl(unit, "stop").returncode == 0:
        return _await_end(places, holder)
    process = HolderProcess.find(places)
    if process is None:
        _ask_to_end(places)
        return _await_end(places, holder)
    with closing(process):
        process.terminate()  # a unit sees a clean end and does not start it again
        return _await_end(places, holder, process)


def _ask_to_end(places: Places) -> None:
    """Have an agent end that cannot be signalled from here: its number means another process, or none."""
    if not agent_alive(places):
        return
    with suppress(RlaError):
        if _ask(places, {"stop": True}, ASK_TIMEOUT_S).get("stopping"):
            return
    raise RlaError(
        f"the agent runs outside this container or pid namespace and does not answer here "
        f"({describe_holder(places)}); run there: rla-agent stop"
    )


def _await_end(places: Places, holder: dict[str, Any], process: HolderProcess | None = None) -> bool:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    pid = holder.get("pid")
    while agent_alive(places):
        if read_holder(places).get("pid") != pid:
            return True  # that one ended, somebody started another
        if time.monotonic() > deadline:
            raise RlaError(f"the agent (pid {pid}) did not end within {STOP_TIMEOUT_S:g} s")
        time.sleep(POLL_S)
    if process is not None:
        process.await_end(EXIT_TIMEOUT_S)
    return True


# -- its log ------------------------------------------------------------------------------------


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines, those before the last rotation included."""
    found: deque[str] = deque(maxlen=count)
    for file in (path.with_name(path.name + ".1"), path):
        if file.exists():
            with file.open(encoding="utf-8", errors="replace") as lines:
                found.extend(line.rstrip("\n") for line in lines)
    return list(found)


def follow_log(path: Path) -> Iterator[str]:
    """Lines written from this call on, for ever; a file that is rotated away is read to its end first."""
    descriptor = _open(path)
    if descriptor >= 0:
        os.lseek(descriptor, 0, os.SEEK_END)
    return _follow(path, descriptor)


def _follow(path: Path, descriptor: int) -> Iterator[str]:
    rest = b""
    try:
        while True:
            data = os.read(descriptor, 1 << 16) if descriptor >= 0 else b""
            if data:
                *lines, rest = (rest + data).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines)
            elif _replaced(path, descriptor):
                if descriptor >= 0:
                    os.close(descriptor)
                descriptor = _open(path)
            else:
                time.sleep(LOG_POLL_S)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def _replaced(path: Path, descriptor: int) -> bool:
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False
    if descriptor < 0:
        return True
    held = os.fstat(descriptor)
    return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino)


# -- the agent's own process --------------------------------------------------------------------


def set_up_logging(places: Places, *, to_console: bool) -> None:
    """Log to `<state>/agent.log`, two files of LOG_BYTES, and to stderr when in the foreground."""
    from logging.handlers import RotatingFileHandler  # noqa: PLC0415 - commands need none of it

    form = OneLine(LOG_FORMAT)
    handlers: list[logging.Handler] = [RotatingFileHandler(places.log, maxBytes=LOG_BYTES, backupCount=1)]
    if to_console:
        handlers.append(logging.StreamHandler())
    for handler in handlers:
        handler.setFormatter(form)
        handler.addFilter(Repeats())
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)


def spare_collections() -> None:
    """Let the garbage collector look at what comes from here on, and seldom.

    Records are plain data that die by reference count; there are hardly any cycles to find.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 10, 10)


def raise_limits() -> None:
    """Use all that this user may have: the limits of a training job are not meant for its agent."""
    for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, hard = resource.getrlimit(which)
        if soft != hard:
            with suppress(ValueError, OSError):
                resource.setrlimit(which, (hard, hard))


def end_process(code: int) -> NoReturn:
    """End at once: at a usual exit Python waits for the threads of pools, while they write on."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
