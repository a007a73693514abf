"""Helper process that records a training's console output.

It reads a training's output from a pipe (see capture.py), or from two. Each piece goes at once and unchanged
to the former target, and into a stream of the run, by which it becomes `console.txt`. Threads do both, each
at its own pace: a blocked terminal or disk delays neither the reading nor the other thread.

This process outlives the training, also one that is killed: it ends once nobody has the pipes open for
writing any more and everything is passed on.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from rla_client.run.console.carriage_returns import CollapsedLines
from rla_client.run.console.pass_on import pass_on, ready
from rla_client.run.console.recorder import Recorder

READ_BYTES = 1 << 20  # all that a pipe holds
LEAST_TO_GATHER = 256 << 10  # bytes of a pipe; a smaller one, of a user with many, fills between two reads
GATHER_S = 0.005  # between reads, as waking a reader costs the training more than the write
BACKLOG_BYTES = 64 << 20  # backlog of one thread, of which the older half is dropped
AFTER_S = 60.0  # how long output of other processes after the training's end still goes into its file
MESSAGE_BYTES = 1 << 20
DONE = b"done"  # to the training


class OutputPiece(NamedTuple):
    """Output from a source, by its number."""

    source: int
    data: bytes


class OutputWorker(threading.Thread):
    """Thread that handles pieces of output, or calls functions, in order.

    Args:
        take: called with each piece; it may block.
    """

    def __init__(self, take: Callable[[OutputPiece], None]) -> None:
        super().__init__(daemon=True)
        self._take = take
        self._changed = threading.Condition()
        self._waiting: deque[OutputPiece | Callable[[], None] | None] = deque()
        self._waiting_bytes = self._left_out = 0

    def put(self, item: OutputPiece | Callable[[], None] | None) -> None:
        """Queue a piece or a function; None ends the thread."""
        with self._changed:
            self._waiting.append(item)
            if isinstance(item, OutputPiece):
                self._waiting_bytes += len(item.data)
                if self._waiting_bytes > BACKLOG_BYTES:
                    self._leave_out_half()
            self._changed.notify_all()

    def _leave_out_half(self) -> None:
        before, self._waiting = self._waiting, deque()
        for item in before:
            if isinstance(item, OutputPiece) and self._waiting_bytes > BACKLOG_BYTES // 2:
                self._waiting_bytes -= len(item.data)
                self._left_out += len(item.data)
            else:
                self._waiting.append(item)

    def run(self) -> None:
        """Handle the queue until None is put."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                item = self._waiting.popleft()
                left_out, self._left_out = self._left_out, 0
                if isinstance(item, OutputPiece):
                    self._waiting_bytes -= len(item.data)
            if left_out:
                note = f"\n[... {left_out} bytes left out: they could not be written in time ...]\n"
                self._take(OutputPiece(0, note.encode()))
            if item is None:
                return
            if isinstance(item, OutputPiece):
                self._take(item)
            else:
                item()


class Keeper:
    """Writes output into the stream of the current run."""

    def __init__(self, sources: int) -> None:
        self._recorder: Recorder | None = None
        self._lines = [CollapsedLines() for _ in range(sources)]

    def take(self, piece: OutputPiece) -> None:
        """Store a piece."""
        if self._recorder is not None:
            self._recorder.add(self._lines[piece.source].feed(piece.data))

    def begin(self, run: dict[str, Any] | None) -> None:
        """Let output from now on belong to this run, or to none."""
        self.settle()
        if self._recorder is not None:
            self._recorder.close()
        self._recorder = None if run is None else Recorder(run)

    def settle(self) -> None:
        """Write the pending output, including an incomplete line."""
        if self._recorder is not None:
            for lines in self._lines:
                self._recorder.add(lines.end())
            self._recorder.settle()


def _size(pipe: int) -> int:
    with suppress(OSError):
        return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    return 0


class ConsoleProcess:
    """The reader of the pipes, with its threads.

    Args:
        sources: pipes into which the training and its children write.
        targets: the former target of each.
        control: a socket to the training, which has named the first run.
    """

    def __init__(self, sources: list[int], targets: list[int], control: int) -> None:
        self._numbers = {source: number for number, source in enumerate(sources)}
        self._large = all(_size(source) >= LEAST_TO_GATHER for source in sources)
        self._passing = [OutputWorker(partial(_pass_on, target)) for target in targets]
        self._keeper = Keeper(len(sources))
        self._keeping = OutputWorker(self._keeper.take)
        self._control = socket.socket(fileno=control)
        self._not_done: set[OutputWorker] = set()

    def run(self) -> None:
        """Serve until everything is passed on."""
        workers = [*self._passing, self._keeping]
        for worker in workers:
            worker.start()
        self._keeping.put(partial(self._keeper.begin, json.loads(self._control.recv(MESSAGE_BYTES))["run"]))
        control = [self._control.fileno()]
        end_at: float | None = None  # of the file
        while self._numbers:
            found = ready([*self._numbers, *control], end_at and max(0.0, end_at - time.monotonic()))
            if control and control[0] in found:
                if self._hear():
                    continue
                control, end_at = [], time.monotonic() + AFTER_S
            if self._read(found) < READ_BYTES // 2 and self._large:
                ready(control, GATHER_S)
            if end_at is not None and time.monotonic() >= end_at:
                self._keeping.put(partial(self._keeper.begin, None))
                end_at = None
        self._keeping.put(partial(self._keeper.begin, None))
        for worker in workers:
            worker.put(None)
            worker.join()

    def _read(self, sources: list[int]) -> int:
        """Read some sources and queue their output; returns the number of bytes."""
        total = 0
        for source in self._numbers.keys() & sources:
            data = os.read(source, READ_BYTES)
            total += len(data)
            number = self._numbers[source]
            if not data:
                del self._numbers[source]
                continue
            self._passing[number].put(OutputPiece(number, data))
            self._keeping.put(OutputPiece(number, data))
        return total

    def _hear(self) -> bool:
        """Carry out a message of the training; False once its connection has ended."""
        try:
            message = self._control.recv(MESSAGE_BYTES)
        except OSError:  # killed before it read our answer: the connection is reset
            return False
        if not message:
            return False
        self._read(ready(self._numbers, 0.0))  # printed before this message
        said = json.loads(message)
        if said["what"] == "run":
            self._keeping.put(partial(self._keeper.begin, said["run"]))
            self._answer()
        else:
            self._keeping.put(self._keeper.settle)
            self._not_done = {*self._passing, self._keeping}
            for worker in tuple(self._not_done):
                worker.put(partial(self._done, worker))
        return True

    def _done(self, worker: OutputWorker) -> None:
        self._not_done.discard(worker)
        if not self._not_done:
            self._answer()

    def _answer(self) -> None:
        with suppress(OSError):
            self._control.send(DONE, socket.MSG_DONTWAIT)


def _pass_on(target: int, piece: OutputPiece) -> None:
    pass_on(piece.data, target)


def _give_up(failed: threading.ExceptHookArgs) -> None:
    """End after a thread has died; the training then restores its descriptors."""
    threading.__excepthook__(failed)
    os._exit(1)


def main(arguments: str) -> None:
    """Serve a training until its end. `arguments`: those of `ConsoleProcess`, as JSON."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    threading.excepthook = _give_up
    given = json.loads(arguments)
    for descriptor in (*given["sources"], *given["targets"], given["control"]):
        os.set_inheritable(descriptor, False)
    ConsoleProcess(**given).run()
