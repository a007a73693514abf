"""The agent of this machine: is there one, starting one when there is none, and a connection to it.

The agent holds an open-file-description lock on `Places.lock` for life; asking for that lock's
holder disturbs nobody. Starting goes through systemd where a unit is installed for this user, else
through a shell that puts the agent into the background and ends, so that the agent is nobody's
child here: no zombie, no surprise for code that waits for its own children. Where a user unit is
installed and the user's service manager cannot be reached (cron, a batch job), the agent starts
without it; the unit takes over when it is started. A system unit that only root may start is
never replaced: rows then wait in the spool.

A connection speaks ZeroMQ's protocol (ZMTP 3.0, NULL, DEALER) over a Unix socket, without threads. The
library would keep some ten descriptors and two threads in the training process, and ends that process
where somebody closes one of them. Here a descriptor that was closed is an OSError like any other.
Nothing waits, `receive` aside. Nothing is queued, but for the rest of a message that was begun: a message
that the socket does not take is refused. https://rfc.zeromq.org/spec/23 has the bytes.
"""

from __future__ import annotations

import errno
import os
import pwd
import resource
import select
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.contract.descriptors import identity, is_locked, leads_to, lift
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.paths import RUNTIME_VARIABLE, STATE_VARIABLE, Places, user_home
from rla_client.contract.protocol import MessageKind, decode_message, encode_message

OWNER_VARIABLE = "RLA_LAUNCH_OWNER"  # set by `rla-agent run`: an agent that its command starts ends with it
UNIT_NAME = "rla-agent.service"
SYSTEM_UNIT_FOLDER = Path("/etc/systemd/system")
START_TIMEOUT_S = 5.0
RAW_BLOBS = "raw_blobs"  # in agent.lock: this agent makes checkpoints from them
LEAST_FILES = 64  # open ones, below which an agent writes no outputs
_KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
    "XDG_CONFIG_HOME", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", STATE_VARIABLE, RUNTIME_VARIABLE,
    OWNER_VARIABLE,
)  # fmt: skip
CONNECT_AGAIN_S = 0.02  # an agent that holds its lock may not listen yet
GREETING_BYTES = 64
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY_BODY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
LONG, COMMAND = 2, 4  # flags of a frame
SHORT_MOST = 255  # bytes of a body whose length is one byte
_SHORT = struct.Struct(">BB")  # flags, length of the body
_LONG = struct.Struct(">BQ")
READY = _SHORT.pack(COMMAND, len(READY_BODY)) + READY_BODY
RECEIVE_BYTES = 1 << 16
MAX_ANSWER_BYTES = 64 << 20  # a status of many runs; beyond, the peer is not an agent


def agent_alive(places: Places) -> bool:
    """Whether an agent holds the lock of this state folder now."""
    try:
        descriptor = os.open(places.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return is_locked(descriptor, by_file=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def memory_apart(places: Places) -> bool:
    """Whether the agent's /dev/shm is not ours: one of us is in a container, the spool is mounted into it."""
    theirs = agent_record(places).get("shm")
    return isinstance(theirs, int) and theirs != shared_memory_device()


def refuses_raw_blobs(places: Places) -> bool:
    """Whether the agent that serves is older than raw blobs: it would take one for a torn `.pt`."""
    record = agent_record(places)
    return bool(record) and RAW_BLOBS not in record and agent_alive(places)


def agent_record(places: Places) -> dict[str, Any]:
    """What an agent wrote of itself; empty where none did."""
    import json  # noqa: PLC0415 - not at import of the package

    try:
        found = json.loads(places.lock.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def shared_memory_device() -> int | None:
    """Names this process's /dev/shm among all of this machine, None without one."""
    try:
        return os.stat("/dev/shm").st_dev
    except OSError:
        return None


def tight_limits() -> list[str]:
    """What keeps an agent with this process's hard limits from writing all outputs; soft ones it raises."""
    found = []
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        found.append(f"it may open {files} files (ulimit -n), and needs {LEAST_FILES}")
    size = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if size != resource.RLIM_INFINITY:
        found.append(f"its files end at {size} bytes (ulimit -f); what goes beyond waits in the spool")
    return found


def start_agent(
    places: Places, config_path: Path | None = None, secrets: Mapping[str, str] | None = None
) -> bool:
    """Start an agent for `places` without waiting for it to be ready.

    Args:
        places: of the agent.
        config_path: configuration it starts with.
        secrets: further environment variables it needs, see `config.schema.password_variables`.

    Returns:
        False when the user stopped it on purpose (`rla-agent stop`) or it cannot be started.
    """
    if places.stopped:
        return False
    unit = installed_unit()
    if unit is not None and _runs(unit.command("--no-block", "start"), unit.environment()):
        return True
    if unit is not None and unit.system:
        return False
    environment = clean_environment() | dict(secrets or {})
    return _runs(detached_command(config_path, autostarted=True), environment)


def _runs(command: list[str], environment: dict[str, str]) -> bool:
    import subprocess  # noqa: PLC0415 - not at import of the package

    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            start_new_session=True,
            close_fds=True,
            timeout=START_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit that runs the agent of this user."""

    name: str
    system: bool

    def command(self, *words: str) -> list[str]:
        """The systemctl command for this unit; `words` end with the verb."""
        scope = ["--no-ask-password"] if self.system else ["--user"]
        return ["systemctl", *scope, *words, self.name]

    def environment(self) -> dict[str, str]:
        """What systemctl needs to find the user's service manager, also from cron or su."""
        environment = clean_environment()
        runtime = f"/run/user/{os.getuid()}"
        if not self.system and os.path.isdir(runtime):
            environment.setdefault("XDG_RUNTIME_DIR", runtime)
        return environment


def installed_unit() -> Unit | None:
    """The unit that serves this user, None without one; units serve the default places only."""
    import shutil  # noqa: PLC0415 - not at import of the package

    if STATE_VARIABLE in os.environ or shutil.which("systemctl") is None:
        return None
    if unit_file() is not None:
        return Unit(UNIT_NAME, system=False)
    try:
        name = f"rla-agent@{pwd.getpwuid(os.getuid()).pw_name}.service"
    except KeyError:
        return None
    enabled = SYSTEM_UNIT_FOLDER / "multi-user.target.wants" / name
    return Unit(name, system=True) if enabled.is_symlink() else None


def clean_environment() -> dict[str, str]:
    """The few variables that a service needs; nothing of the training job leaks into it."""
    environment = {key: os.environ[key] for key in _KEPT if key in os.environ}
    package_parent = Path(__file__).resolve().parents[2]
    if package_parent.name not in {"site-packages", "dist-packages"}:
        environment["PYTHONPATH"] = str(package_parent)
    return environment


def shares_our_life() -> bool:
    """Whether the agent would end together with this process: a container or a batch job."""
    if any(
        name in os.environ for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "KUBERNETES_SERVICE_HOST")
    ):
        return True
    return os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv")


def unit_file() -> Path | None:
    """The user's installed systemd unit, None without one."""
    base = os.environ.get("XDG_CONFIG_HOME") or user_home() / ".config"
    path = Path(base, "systemd", "user", UNIT_NAME)
    return path if path.exists() else None


def detached_command(config_path: Path | None, *, autostarted: bool) -> list[str]:
    """Command that puts an agent into the background, prints its process id and ends at once."""
    arguments = [sys.executable, "-m", "rla_agent.daemon", "--background"]
    if autostarted:
        arguments.append("--idle-exit")
    if config_path is not None:
        arguments += ["--config", os.path.abspath(config_path)]
    return ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 & echo $!', "sh", *arguments]


# -- a connection -----------------------------------------------------------------------------------


class Dealer:
    """A connection to the ROUTER that listens at `path`.

    Raises:
        OSError: nobody does, or there are no descriptors.
    """

    def __init__(self, path: Path) -> None:
        try:
            import socket  # noqa: PLC0415 - not at import of the package
        except ImportError as error:  # no descriptors left to read it by
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as low:
            low.connect(os.fspath(path))
            self._socket = socket.socket(fileno=lift(low.detach()))
        self._identity = identity(self._socket.fileno())
        self._no_signal = socket.MSG_NOSIGNAL
        self._out = bytearray(GREETING)
        self._in = bytearray()
        self._greeted = self._ready = False

    def send(self, message: bytes) -> bool:
        """Hand a message over whole; False where the socket does not take it now.

        Raises:
            OSError: the connection is gone.
        """
        self._pump()
        if self._out or not self._ready:
            return False
        size = len(message)
        head = _SHORT.pack(0, size) if size <= SHORT_MOST else _LONG.pack(LONG, size)
        sent = self._push(head + message)
        if sent:
            self._out += (head + message)[sent:]
        return sent > 0

    def receive(self, timeout_s: float) -> bytes | None:
        """The next answer; None where none comes within `timeout_s`.

        Raises:
            OSError: the connection is gone.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            gone: OSError | None = None
            try:
                self._pump()
            except OSError as error:  # an agent that ends may have answered before
                gone = error
            answer = self._message()
            if answer is None and gone is not None:
                raise gone
            left = deadline - time.monotonic()
            if answer is not None or left <= 0:
                return answer
            self._wait(left)

    def connected(self, timeout_s: float) -> bool:
        """Whether the agent took the connection within `timeout_s`: from then on it takes messages.

        Raises:
            OSError: the connection is gone.
        """
        deadline = time.monotonic() + timeout_s
        self._pump()
        while (not self._ready or self._out) and (left := deadline - time.monotonic()) > 0:
            self._wait(left)
            self._pump()
        return self._ready and not self._out

    def close(self) -> None:
        """Let go of the connection; also right in a forked child, whose parent keeps its own."""
        if leads_to(self._socket.fileno(), self._identity):
            self._socket.close()
        else:
            self._socket.detach()  # the number is somebody else's by now

    def _wait(self, timeout_s: float) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._out else 0))
        poll.poll(max(1, int(timeout_s * 1000)))

    def _pump(self) -> None:
        """Write what is left over, read what is there."""
        if not leads_to(self._socket.fileno(), self._identity):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._out:
            del self._out[: self._push(self._out)]
        while True:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                break
            if not data:
                raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self._in += data
        if not self._greeted and len(self._in) >= GREETING_BYTES:
            del self._in[:GREETING_BYTES]
            self._greeted = True
            self._out += READY
            del self._out[: self._push(self._out)]
        if self._greeted and not self._ready:
            self._ready = self._frame() is not None

    def _push(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data, self._no_signal)
        except BlockingIOError:
            return 0

    def _message(self) -> bytes | None:
        """The next message that was received whole; commands are passed over."""
        while self._ready and (frame := self._frame()) is not None:
            flags, body = frame
            if not flags & COMMAND:
                return body
        return None

    def _frame(self) -> tuple[int, bytes] | None:
        """Take one whole frame out of what was received."""
        received = self._in
        if not received:
            return None
        head = _LONG if received[0] & LONG else _SHORT
        begin = head.size
        if len(received) < begin:
            return None
        flags, size = head.unpack_from(received)
        if size > MAX_ANSWER_BYTES:
            raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
        if len(received) < begin + size:
            return None
        frame = flags, bytes(received[begin : begin + size])
        del received[: begin + size]
        return frame


def ask(
    socket: Path, question: dict[str, Any], timeout_s: float, *, version: int | None = None
) -> dict[str, Any] | None:
    """The agent's answer; None when there is none in time. No thread, and no descriptor afterwards.

    Args:
        socket: the agent's control socket.
        question: `{}` asks for its status.
        timeout_s: for connecting and the answer together.
        version: of the protocol; None: today's.
    """
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        with suppress(OSError, RemoteProtocolError), closing(Dealer(socket)) as dealer:
            if dealer.connected(left) and dealer.send(
                encode_message(MessageKind.STATUS, question, version=version)
            ):
                answer = dealer.receive(max(0.0, deadline - time.monotonic()))
                return None if answer is None else decode_message(answer)[1]
        time.sleep(min(CONNECT_AGAIN_S, max(0.0, deadline - time.monotonic())))
    return None
