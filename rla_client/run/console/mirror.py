"""The process behind `console=True`.

It passes on what a training prints, and keeps it for `console.txt`. The training prints into files in memory
(see capture.py). For each of them one thread here passes on to where the output went before, another writes
it into a stream of the run, by which it becomes `console.txt`; each goes at its own pace, and what both have
is freed. A terminal that is held up, or a disk, delays neither the training nor the other thread.

This process outlives the training, also one that is killed: it ends once nobody holds the files any more and
everything is passed on.
"""

from __future__ import annotations

import codecs
import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from rla_client.contract.process.locks import try_lock
from rla_client.run.console.recorder import Recorder
from rla_client.run.console.screen import Screen

POLL_S, IDLE_POLL_S, AWAITED_POLL_S = 0.05, 0.2, 0.005
IDLE_AFTER_S = 2.0
PIECE_BYTES = 64 << 10
PASSED_BYTES = 4096  # to a terminal or pipe in one write
READER_WAIT_S = 0.5
BACKLOG_BYTES = 64 << 20  # that one reader may be behind: then it leaves out the older half
AFTER_S = 60.0  # how long what other processes print after the training's end still goes into its file
MESSAGE_BYTES = 1 << 20
PASSED = b"passed"  # to the training
_PUNCH = 0x03  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


class Mark(NamedTuple):
    """From `offset` on, what is printed belongs to the run of `recorder`, or to none.

    Attributes:
        offset: in a source.
        recorder: None for none.
        goes_on: the recorder is the same as before; what it has is written out.
    """

    offset: int
    recorder: Recorder | None = None
    goes_on: bool = False


class Source:
    """A file in memory that a training, and what it starts, prints into.

    Args:
        descriptor: the training's; closed, so that its lock is free once nobody prints into it.
    """

    def __init__(self, descriptor: int) -> None:
        self._file = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        os.close(descriptor)
        self.size = self._free_to = 0
        self.ended = False
        self.readers: list[Reader] = []
        self.changed = threading.Condition()

    def look(self) -> tuple[int, bool]:
        """How long it is, and whether that is its end."""
        ended = try_lock(self._file)  # asked first: nothing comes after it
        return os.fstat(self._file).st_size, ended

    def release(self, size: int, ended: bool) -> bool:
        """Let the readers have what is new; free what they have read. False where nothing is new."""
        with self.changed:
            is_new = (size, ended) != (self.size, self.ended)
            if size < self.size or self._was_cut():  # somebody opened /dev/stdout
                self._free_to = 0
                for reader in self.readers:
                    reader.restart()
            if is_new:
                self.size, self.ended = size, ended
                self.changed.notify_all()
            free = min(max(reader.at, size - BACKLOG_BYTES) for reader in self.readers)
            if free > self._free_to:
                _punch(self._file, self._free_to, free - self._free_to)
                self._free_to = free
        return is_new

    def _was_cut(self) -> bool:
        """Whether there is something where all was freed: the file was cut, and is as long again."""
        return self._free_to > 0 and os.pread(self._file, 1, 0) not in {b"", b"\0"}

    def next(self, reader: Reader) -> bytes | Mark | None:
        """Wait for what a reader has not had yet: a mark, bytes (none after a while), None at the end."""
        with self.changed:
            while True:
                if reader.marks and reader.marks[0].offset <= reader.at:
                    reader.taken = -1  # until it is dealt with
                    return reader.marks.popleft()
                if reader.at < self.size:
                    break
                if self.ended:
                    return None
                if not self.changed.wait(READER_WAIT_S):
                    return b""
            lost = self.size - reader.at - BACKLOG_BYTES
            if lost > 0:
                lost += BACKLOG_BYTES // 2
                reader.at += lost
                return f"\n[... {lost} bytes left out: they could not be written in time ...]\n".encode()
            until = min([self.size, reader.at + PIECE_BYTES, *(mark.offset for mark in reader.marks)])
            data = os.pread(self._file, until - reader.at, reader.at)
            reader.at = until
            return data


class Reader(threading.Thread, ABC):
    """Takes all of a source in order. `at`: how far it was read; `taken`: and dealt with."""

    def __init__(self, source: Source) -> None:
        super().__init__(daemon=True)
        self._source = source
        self.at = self.taken = 0
        self.marks: deque[Mark] = deque()
        source.readers.append(self)

    def restart(self) -> None:
        """The source begins anew."""
        self.at = self.taken = 0
        self.marks = deque(mark._replace(offset=0) for mark in self.marks)

    def run(self) -> None:
        """Until the source's end."""
        while (found := self._source.next(self)) is not None:
            self.take(found)
            self.taken = self.at
        self.finish()

    @abstractmethod
    def take(self, found: bytes | Mark) -> None:
        """Deal with what came, outside of any lock: it may take as long as it likes."""

    def finish(self) -> None:
        """Nothing comes any more."""


class Passing(Reader):
    """Writes to where the output went before; what nobody reads there is dropped.

    Args:
        source: what is passed on.
        target: where to.
        progress: a file of the training's, where it finds how much that is if this process is killed.
        place: of our number in it.
    """

    def __init__(self, source: Source, target: int, progress: int, place: int) -> None:
        super().__init__(source)
        self._target = target
        self._progress = progress
        self._place = place

    def take(self, found: bytes | Mark) -> None:
        """See Reader."""
        data = memoryview(found if isinstance(found, bytes) else b"")
        while data:
            try:
                data = data[os.write(self._target, data[:PASSED_BYTES]) :]
            except BlockingIOError:
                _ready({self._target: select.POLLOUT}, None)
            except OSError:  # the terminal is closed, the pipe's reader gone, the disk full
                return
            done = max(0, self.at - len(data))  # less where the source has begun anew meanwhile
            os.pwrite(self._progress, done.to_bytes(8, sys.byteorder), 8 * self._place)


class Keeping(Reader):
    """Writes into the stream of the run that what is printed belongs to."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._recorder: Recorder | None = None
        self._screen = Screen()
        self._decoder: codecs.IncrementalDecoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def take(self, found: bytes | Mark) -> None:
        """See Reader."""
        if isinstance(found, Mark) and found.goes_on:
            if self._recorder is not None:
                self._recorder.add(self._screen.end())
                self._recorder.settle()
        elif isinstance(found, Mark):
            self.finish()
            self._recorder = found.recorder
        elif self._recorder is not None:  # also without bytes: lines stand still after a while
            self._recorder.add(self._screen.feed(self._decoder.decode(found), time.monotonic()))

    def finish(self) -> None:
        """See Reader."""
        if self._recorder is not None:
            self._recorder.add(self._screen.end())
            self._recorder.leave()
            self._recorder = None


def _ready(waits: dict[int, int], pause_s: float | None) -> list[int]:
    """Which of some descriptors are ready, of any number, after `pause_s` at the latest."""
    poll = select.poll()
    for descriptor, events in waits.items():
        poll.register(descriptor, events)
    return [descriptor for descriptor, _ in poll.poll(None if pause_s is None else 1000 * pause_s)]


def _punch(descriptor: int, offset: int, size: int) -> None:
    """Free a part of a file in memory."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate(descriptor, _PUNCH, ctypes.c_int64(offset), ctypes.c_int64(size))


class Mirror:
    """All of it.

    Args:
        sources: descriptors of the training's files.
        targets: where they went before.
        progress: see `Passing`.
        control: a socket to the training.
        training: a pidfd of it.
    """

    def __init__(
        self, sources: list[int], targets: list[int], progress: int, control: int, training: int
    ) -> None:
        self._sources = [Source(descriptor) for descriptor in sources]
        self._passing = [
            Passing(source, target, progress, place)
            for place, (source, target) in enumerate(zip(self._sources, targets, strict=True))
        ]
        self._keeping = [Keeping(source) for source in self._sources]
        self._control = socket.socket(fileno=control)
        self._control.setblocking(False)
        self._training = training
        self._awaited: list[int] | None = None

    def run(self) -> None:
        """Until everything is passed on."""
        readers: list[Reader] = [*self._passing, *self._keeping]
        for reader in readers:
            reader.start()
        waits = dict.fromkeys([self._control.fileno(), self._training], select.POLLIN)
        gone_at: float | None = None
        printed_at = time.monotonic()
        while any(reader.is_alive() for reader in readers):
            now = time.monotonic()
            pause_s = POLL_S if now - printed_at < IDLE_AFTER_S else IDLE_POLL_S
            pause_s = pause_s if self._awaited is None else AWAITED_POLL_S
            if self._training in _ready(waits, pause_s):
                waits.clear()  # a process that it forked may have the control socket, too
                gone_at = now
            seen = [source.look() for source in self._sources]
            # Heard afterwards: where a run ends is told before anything more is printed.
            if not self._hear():
                waits.pop(self._control.fileno(), None)
            for source, (size, ended) in zip(self._sources, seen, strict=True):
                printed_at = now if source.release(size, ended) else printed_at
            if gone_at is not None and now - gone_at > AFTER_S:
                gone_at = None
                self._mark([source.size for source in self._sources], None)
            if self._awaited is not None and self._reached(self._awaited):
                self._awaited = None
                with suppress(OSError):
                    self._control.send(PASSED)

    def _hear(self) -> bool:
        """Do what the training says; False where it says nothing ever again."""
        try:
            while message := self._control.recv(MESSAGE_BYTES):
                self._obey(json.loads(message))
        except BlockingIOError:
            return True
        except OSError:  # killed before it read what it was told: the connection is reset
            return False
        return False

    def _obey(self, message: dict[str, Any]) -> None:
        """A run begins or ends where the files have these sizes, or the training waits for them."""
        if message["what"] == "wait":
            self._awaited = message["at"]
            self._mark(message["at"], None, goes_on=True)
        else:
            run = message["run"]
            self._mark(message["at"], None if run is None else Recorder(run, len(self._keeping)))

    def _mark(self, offsets: list[int], recorder: Recorder | None, *, goes_on: bool = False) -> None:
        for source, reader, offset in zip(self._sources, self._keeping, offsets, strict=True):
            with source.changed:
                reader.marks.append(Mark(offset, recorder, goes_on))
                source.changed.notify_all()

    def _reached(self, offsets: list[int]) -> bool:
        """Whether all has been dealt with up to there."""
        readers = [*self._passing, *self._keeping]
        return not any(reader.marks for reader in readers) and all(
            reader.taken >= offset for reader, offset in zip(readers, offsets * 2, strict=True)
        )


def _give_up(failed: threading.ExceptHookArgs) -> None:
    """End: a thread is gone, and where nobody is, the training leads its output where it went before."""
    threading.__excepthook__(failed)
    os._exit(1)


def main(what: str) -> None:
    """Serve a training until its end. `what`: arguments of `Mirror`, as JSON."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    threading.excepthook = _give_up
    Mirror(**json.loads(what)).run()
