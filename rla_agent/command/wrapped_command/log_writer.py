"""Process that writes into the log folders of a command's runs.

A process that waits for a frozen disk cannot even be killed. So the process that passes the output on never
writes to one: `LogWriter` hands the output over to a process of its own. There one thread buffers it in
bounded memory, another writes to the disk. Where that takes too long at the end, the process is left behind,
and writes once the disk answers.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_agent.command.wrapped_command.console import ConsoleKeeper, write_all
from rla_client.contract.errors import UnsafeNameError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import held_folder

WAITING_BYTES = 8 << 20  # of output that is not written yet; beyond, the oldest is left out
POLL_S = 0.05
_HEAD_BYTES = 5  # of a message's head: what it is, and its length
_OUTPUT, _PLACE, _RUN_FILE, _END = b"o", b"p", b"r", b"e"


class LogWriter:
    """Writes a command's output and exit into the log folders of its runs; thread-safe.

    Only `finish` waits for a disk.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Start the process that writes, before any thread is started here.

        `folder` is for files that have no place yet; `max_bytes` is what console.txt keeps, 0 for none.
        """
        self._lock = threading.Lock()
        source, self._pipe = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _write_apart(source, folder, max_bytes)
        os.close(source)

    def add(self, data: bytes) -> None:
        """Queue a piece of output; beyond WAITING_BYTES the oldest is dropped and counted."""
        self._tell(_OUTPUT, data)

    def place(self, root: str, log_folder: str) -> None:
        """See ConsoleKeeper; may be called again."""
        self._tell(_PLACE, json.dumps([root, log_folder]).encode())

    def write_run_file(self, root: str, log_folder: str, content: dict[str, Any], wait_s: float) -> None:
        """Replace run.json, as soon as it tells of the state in `content`, or `wait_s` later."""
        self._tell(_RUN_FILE, json.dumps([root, log_folder, content, wait_s]).encode())

    def finish(self, deadline: float) -> bool:
        """Wait until all is written; False when it is not at a moment (monotonic): it continues alone."""
        with self._lock:
            os.close(self._pipe)
            self._pipe = -1
        with suppress(ChildProcessError):  # as process 1 we reap all processes
            while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                if time.monotonic() >= deadline:
                    return False
                time.sleep(POLL_S)
        return True

    def _tell(self, kind: bytes, content: bytes) -> None:
        with self._lock, suppress(OSError):  # somebody may have ended the process
            if self._pipe >= 0:
                write_all(self._pipe, kind + len(content).to_bytes(_HEAD_BYTES - 1, "big") + content)


def _write_apart(source: int, folder: Path, max_bytes: int) -> None:
    """Run the writing process until its orders end; it ignores signals to the job."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != source:  # noqa: PLR2004 - a pipe that we held would never end
                with suppress(OSError):
                    os.close(int(name))
        waiting = _Waiting()
        writer = threading.Thread(target=_obey_all, args=(waiting, folder, max_bytes))
        writer.start()
        with open(source, "rb") as orders:
            while head := orders.read(_HEAD_BYTES):
                waiting.put(head[:1], orders.read(int.from_bytes(head[1:], "big")))
        waiting.put(_END, b"")
        writer.join()
    finally:
        os._exit(0)


class _Waiting:
    """Orders for the writing thread, with at most WAITING_BYTES of output."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._outputs: deque[bytes] = deque()
        self._others: deque[tuple[bytes, bytes]] = deque()
        self._bytes = 0
        self._left_out = 0

    def put(self, kind: bytes, content: bytes) -> None:
        with self._change:
            if kind == _OUTPUT:
                self._outputs.append(content)
                self._bytes += len(content)
            else:
                self._others.append((kind, content))
            while self._bytes > WAITING_BYTES:
                oldest = len(self._outputs.popleft())
                self._bytes -= oldest
                self._left_out += oldest
            self._change.notify()

    def take(self) -> tuple[bytes, bytes]:
        """The next order, output first; dropped output is older than waiting output."""
        with self._change:
            while not (self._others or self._outputs):
                self._change.wait()
            if self._left_out:
                note = f"\n[... {self._left_out} bytes left out: the disk was too slow ...]\n"
                self._left_out = 0
                return _OUTPUT, note.encode()
            if self._outputs:
                data = self._outputs.popleft()
                self._bytes -= len(data)
                return _OUTPUT, data
            return self._others.popleft()


def _obey_all(waiting: _Waiting, folder: Path, max_bytes: int) -> None:
    try:
        keeper = ConsoleKeeper(folder, max_bytes)
    except OSError:  # the state folder takes no file
        keeper = ConsoleKeeper(folder, 0)
    while (order := waiting.take())[0] != _END:
        _obey(keeper, *order)
    keeper.finish()


def _obey(keeper: ConsoleKeeper, kind: bytes, content: bytes) -> None:
    if kind == _OUTPUT:
        keeper.add(content)
    elif kind == _PLACE:
        keeper.place(*json.loads(content))
    else:
        with suppress(OSError, UnsafeNameError):
            _write_run_file(*json.loads(content))


def _write_run_file(root: str, log_folder: str, content: dict[str, Any], wait_s: float) -> None:
    path, until = Path(log_folder, "run.json"), time.monotonic() + wait_s
    while time.monotonic() < until and os.path.isdir(path.parent):  # the agent's last one would replace ours
        with suppress(OSError, ValueError, LookupError, TypeError):
            if json.loads(read_small(path))["state"] == content["state"]:
                break
        time.sleep(POLL_S)
    with held_folder(root, os.path.relpath(log_folder, root)) as folder:
        write_atomic(folder / "run.json", json.dumps(content, indent=1).encode(), mode=file_mode(folder))
