"""The process behind `console=True`: passes on what a training prints, and keeps it for `console.txt`.

The training prints into files in memory (see console.py). For each of them one thread here passes on to
where the output went before, another writes it into a stream of the run, by which it becomes
`console.txt`; each goes at its own pace, and what both have is freed. A terminal that is held up, or a
disk, delays neither the training nor the other thread.

This process outlives the training, also one that is killed: it ends once nobody holds the files any more
and everything is passed on.

What is kept is the text as a terminal would show it, in lines that stay. Progress bars write over what
they wrote: by a carriage return in one line (tqdm), by moving up in several (nested bars). Only what was
left standing becomes a line. Colours and other escapes are dropped.
"""

from __future__ import annotations

import codecs
import ctypes
import json
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from rla_client.code.secret_values import Secrets
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.agent_environment import shares_our_life
from rla_client.contract.agent.places import find_places
from rla_client.contract.layout import CONSOLE, OUTPUT_NAMES
from rla_client.contract.process.locks import try_lock
from rla_client.contract.spool.opening import Opening, labelled
from rla_client.contract.spool.protocol import FrameKind, TextTarget, pack
from rla_client.stream.outbox import Outbox

POLL_S, IDLE_POLL_S, AWAITED_POLL_S = 0.05, 0.2, 0.005
IDLE_AFTER_S = 2.0
PIECE_BYTES = 64 << 10
PASSED_BYTES = 4096  # to a terminal or pipe in one write
READER_WAIT_S = 0.5
BACKLOG_BYTES = 64 << 20  # that one reader may be behind: then it leaves out the older half
AFTER_S = 60.0  # how long what other processes print after the training's end still goes into its file
SETTLE_S = 1.0
MESSAGE_BYTES = 1 << 20
PASSED = b"passed"  # to the training
_PUNCH = 0x03  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
WINDOW = 100  # lines, below which what is higher stands still
UP_S = 1.0  # after this long without moving up, lines above the last one stand still
QUIET_S = 0.1  # a bar that moves up does so within this time after its newline
MAX_COLUMNS = 1 << 16  # of a line that is still open
_TOKEN = re.compile(
    r"\x1b\[(?P<number>\d{0,20})[0-?]{0,100}[ -/]{0,9}(?P<move>[@-~])|"
    r"\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|\x1b[^\[\]\x1b\r\n\b]|"
    r"(?P<control>[\r\n\b])|(?P<text>[^\x1b\r\n\b\x00\x07]+)"  # NUL and BEL show nothing
)
_OPEN = re.compile(
    r"\x1b(\[[0-?]{0,120}[ -/]{0,9}|\][^\x07\x1b]{0,1000}\x1b?)?\Z"
)  # an escape that continues in the next piece


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


class Screen:
    """The last lines of what was printed, and where the cursor is among them."""

    def __init__(self) -> None:
        self._rows = [""]
        self._row = self._column = 0
        self._rest = ""
        self._up_at = self._line_at = float("-inf")

    def feed(self, text: str, now: float) -> str:
        """Take a piece of output; the whole lines that stand still by now.

        Args:
            text: continues where the last piece ended.
            now: monotonic seconds.
        """
        text = self._rest + text
        found = _OPEN.search(text)
        self._rest = found[0] if found else ""
        for token in _TOKEN.finditer(text[: len(text) - len(self._rest)]):
            if token["text"]:
                self._write(token["text"])
            elif token["control"]:
                self._control(token["control"], now)
            elif token["move"]:
                self._move(token["move"], token["number"], now)
        return self.settled(now)

    def settled(self, now: float) -> str:
        """The whole lines that stand still by now, if they were not given before."""
        still = now - self._up_at > UP_S and now - self._line_at > QUIET_S
        count = self._row if still else max(self._row - WINDOW, 0)
        gone, self._rows = self._rows[:count], self._rows[count:]
        self._row -= count
        return "".join(f"{row}\n" for row in gone)

    def end(self) -> str:
        """All that is left; nothing comes any more."""
        rows, self._rows = self._rows, [""]
        self._row = self._column = 0
        if not rows[-1]:  # behind the last newline
            rows.pop()
        return "".join(f"{row}\n" for row in rows)

    def _write(self, text: str) -> None:
        row = self._rows[self._row]
        if self._column == len(row):  # what nearly all of it is
            row += text
        else:
            row = row[: self._column].ljust(self._column) + text + row[self._column + len(text) :]
        self._rows[self._row] = row
        self._column += len(text)
        if self._column > MAX_COLUMNS:
            self._down()
            self._column = 0

    def _control(self, what: str, now: float) -> None:
        if what == "\n":
            self._down()
            self._line_at = now
        self._column = max(self._column - 1, 0) if what == "\b" else 0

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append("")

    def _move(self, what: str, number: str, now: float) -> None:
        count = min(int(number[:4] or 1), WINDOW)
        if what == "A":
            self._row = max(self._row - count, 0)
            self._up_at = now
        elif what == "B":
            self._row = min(self._row + count, len(self._rows) - 1)
        elif what in "CDG":
            to = {"C": self._column + count, "D": self._column - count, "G": count - 1}[what]
            self._column = min(max(to, 0), MAX_COLUMNS)
        elif what == "K":
            self._rows[self._row] = "" if number == "2" else self._rows[self._row][: self._column]
        elif what == "J":
            del self._rows[self._row + 1 :]


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


class Recorder:
    """The `console.txt` of one run: at most `console_max_bytes`, the first half and the last.

    Args:
        told: by the training: its opening, secrets and settings.
        users: readers that will `leave`.
    """

    def __init__(self, told: dict[str, Any], users: int) -> None:
        self._opening = Opening.from_fields(told["opening"])
        self._secrets = Secrets(tuple(told["secrets"]))
        self._settings = AgentConfig(**told["settings"])
        self._head_room = self._settings.console_max_bytes - self._settings.console_max_bytes // 2
        self._tail_room = self._settings.console_max_bytes // 2
        self._tail: deque[bytes] = deque()
        self._left_out = 0
        self._outbox: Outbox | None = None
        self._users = users
        self._lock = threading.Lock()

    def add(self, text: str) -> None:
        """Keep whole lines."""
        if not text:
            return
        data = self._secrets.verbatim(text).encode("utf-8", "backslashreplace")
        with self._lock:
            fits = data.rfind(b"\n", 0, self._head_room) + 1
            if fits:
                self._head_room -= fits
                self._put(data[:fits])
            if fits == len(data):
                return
            self._head_room = 0
            self._tail.append(data[fits:])
            self._tail_room -= len(data) - fits
            while self._tail_room < 0:
                first = self._tail.popleft()
                gone = first.find(b"\n", -self._tail_room - 1) + 1 or len(first)
                if gone < len(first):
                    self._tail.appendleft(first[gone:])
                self._tail_room += gone
                self._left_out += gone

    def settle(self) -> None:
        """Where the agent ends with the training: have it write what there is."""
        with self._lock:
            if self._outbox is not None and shares_our_life():
                self._outbox.flush(SETTLE_S)

    def leave(self) -> None:
        """One reader is through; the last one ends the stream."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if self._left_out:
                self._put(f"[... {self._left_out} bytes left out ...]\n".encode())
            for data in self._tail:
                self._put(data)
            if self._outbox is not None:
                self._outbox.release()

    def _put(self, data: bytes) -> None:
        if self._outbox is None:
            opening = console_opening(self._opening)
            if opening is None:
                return  # the item is gone
            config = None if opening.config is None else Path(opening.config)
            self._outbox = Outbox(find_places(), opening, self._settings, config_path=config)
        self._outbox.put(FrameKind.TEXT, pack([TextTarget.CONSOLE, data.decode()]), time.time())


def console_opening(opening: Opening) -> Opening | None:
    """Describe the stream of a run's console: it has one output, a new file; None where none can be made."""
    for number in count(1):
        name = labelled(OUTPUT_NAMES[CONSOLE], "" if number == 1 else str(number))
        try:
            path = os.path.join(opening.log_folder, name)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            continue
        except OSError:
            break
        return opening._replace(
            primary=False,
            sinks=frozenset((CONSOLE,)),
            names={**opening.names, CONSOLE: name},
            label="",
            continues=None,
        )
    return None


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
