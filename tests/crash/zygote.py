"""Starts agents and training processes by fork, from a process that has imported everything.

A thousand power cuts need a thousand agents; what each does from its first line on is the real thing, but
the seconds of importing are spent once. `Zygote` is the test's side; run as a program, this is the other.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MAX_REQUEST_BYTES = 1 << 16


class Forked:
    """A process that the zygote made; used like a subprocess.Popen. Its exit code is not known."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """0 once it has ended."""
        if self.returncode is None and select.select([self._pidfd], [], [], 0)[0]:
            self._ended()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._pidfd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._ended()
        return 0

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended just now, of itself
                self.send_signal(signal.SIGKILL)

    def _ended(self) -> None:
        os.close(self._pidfd)
        self.returncode = 0


class Zygote:
    """Asks the other process for children; ends it at the end of the block."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), str(theirs.fileno())],
            pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((os.getcwd(), str(Path(__file__).parents[1])))},
        )  # fmt: skip
        theirs.close()

    def __enter__(self) -> Zygote:  # noqa: PYI034
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def fork(self, kind: str, *arguments: str, log: Path, pipe: int | None = None) -> Forked:
        """A child that runs the agent or the workload with these arguments and our environment."""
        request = {"kind": kind, "arguments": arguments, "log": str(log), "env": dict(os.environ)}
        fds = [] if pipe is None else [pipe]
        socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
        return Forked(int(self._socket.recv(64)))


def main() -> None:
    """Serve until the test's side closes."""
    from crash import workload

    import rla_agent.daemon
    from rla_client import logger  # noqa: F401 - imported for the children
    from rla_client.stream import segment_writer  # noqa: F401 - imported for the children

    programs = {"agent": rla_agent.daemon.main, "workload": workload.main}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        while True:
            data, fds, _, _ = socket.recv_fds(asked, MAX_REQUEST_BYTES, 1)
            if not data:
                return
            request = json.loads(data)
            pid = os.fork()
            if pid == 0:
                asked.close()
                become(request, fds)
                try:
                    code = programs[request["kind"]]() or 0
                except SystemExit as end:
                    code = int(end.code or 0)
                except BaseException:  # noqa: BLE001 - what would end the interpreter
                    sys.excepthook(*sys.exc_info())
                    code = 1
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            for descriptor in fds:
                os.close(descriptor)
            asked.send(str(pid).encode())


def become(request: dict[str, object], fds: list[int]) -> None:
    """Be the child that was asked for: session, signals, descriptors, environment, arguments."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(str(request["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    arguments = [str(one) for one in request["arguments"]]  # type: ignore[attr-defined]
    if fds:
        arguments = [one if one != "PIPE" else str(fds[0]) for one in arguments]
    sys.argv = [str(request["kind"]), *arguments]
    time.tzset()


if __name__ == "__main__":
    main()
