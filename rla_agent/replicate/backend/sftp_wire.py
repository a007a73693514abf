"""Wire protocol of SFTP version 3.

Why not paramiko's own `SFTPClient`: it does not look at the replies of pipelined writes (a file
with 17 zeroed blocks was reported as sent), swallows errors of close, has no deadline of its own,
and cannot have requests of several files in flight, which is what makes many small files fast.
Here the caller submits requests and collects the reply of each one.

Packet: uint32 length, byte type, uint32 request id, body. Strings are uint32 length + bytes; paths
are bytes, so every name that a file system can hold can be sent. Attributes that we send: size
(flag 1), permissions (flag 4), times (flag 8).

Pace: at most `window_bytes` of payload wait for replies. The window starts at `FIRST_WINDOW_BYTES`,
doubles while replies are quick and halves when they are slow, so that on a 1 kB/s link a reply
comes before the deadline and on a fast one the pipe is full. It only grows on requests that at least
half filled it, since the speed of small ones says nothing about the link. No reply within `REPLY_TIMEOUT_S`
means that the peer is dead. That, a closed connection and a peer that does not speak SFTP raise `LinkError`:
the connection cannot be used any more. Only for a sync, which takes as long as the server's disk needs,
`wait_long` waits for `SYNC_TIMEOUT_S` while the server answers other requests.
"""

from __future__ import annotations

import stat
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.errors import LinkError
from rla_agent.replicate.backend.remote_stat import Kind, RemoteStat

if TYPE_CHECKING:
    import paramiko

INIT: Final = 1
VERSION: Final = 2
OPEN: Final = 3
CLOSE: Final = 4
READ: Final = 5
WRITE: Final = 6
LSTAT: Final = 7
FSTAT: Final = 8
SETSTAT: Final = 9
FSETSTAT: Final = 10
OPENDIR: Final = 11
READDIR: Final = 12
REMOVE: Final = 13
MKDIR: Final = 14
RMDIR: Final = 15
STAT: Final = 17
RENAME: Final = 18
STATUS: Final = 101
HANDLE: Final = 102
DATA: Final = 103
NAME: Final = 104
ATTRS: Final = 105
EXTENDED: Final = 200
EXTENDED_REPLY: Final = 201

OK: Final = 0
EOF: Final = 1
NO_SUCH_FILE: Final = 2
PERMISSION_DENIED: Final = 3
FAILURE: Final = 4
OP_UNSUPPORTED: Final = 8

READ_FLAG: Final = 1
WRITE_FLAG: Final = 2
CREATE_FLAG: Final = 8
EXCLUSIVE_FLAG: Final = 32
NEW_FILE: Final = WRITE_FLAG | CREATE_FLAG | EXCLUSIVE_FLAG

MAX_PACKET_BYTES: Final = 1 << 20  # OpenSSH sends at most 256 KiB; more is not SFTP
SAFE_WRITE_BYTES: Final = 32 << 10  # every server takes this much in one request
_MOST_BYTES: Final = 255 << 10  # of one read or write, whatever the server takes
FIRST_WINDOW_BYTES: Final = 8 << 10  # eight seconds of a 1 kB/s link
MAX_WINDOW_BYTES: Final = 2 << 20  # the window that OpenSSH's channel has
QUICK_REPLY_S: Final = 1.0
SLOW_REPLY_S: Final = 4.0
REPLY_TIMEOUT_S: Final = 25.0  # a dead peer is noticed within 30 s
ASK_AFTER_S: Final = 5.0  # wait for a sync, before the server is asked for a sign of life, …
ANSWER_S: Final = REPLY_TIMEOUT_S - ASK_AFTER_S  # … and its time to answer
SYNC_TIMEOUT_S: Final = 300.0  # of one sync at most, whatever else the server answers
_FLUSH_BYTES: Final = 32 << 10  # one SSH packet
_MIN_PACKET_BYTES: Final = 5  # type and id
_STATUS_BYTES: Final = 8  # code and the length of its text
_LIMITS_BYTES: Final = 24  # of the answer to limits@openssh.com: packet, read, write
_MAX_NAMES: Final = 1_000_000  # entries that one folder listing may have
_LAST_REQUEST: Final = (1 << 32) - 1  # ids have four bytes
START_HINT: Final = "does sshd_config have a Subsystem sftp line?"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: its type and the body after the request id."""

    kind: int
    body: bytes

    @property
    def status(self) -> int:
        """Status code; OK for any answer that is not a status."""
        return int(struct.unpack_from(">I", self.body)[0]) if self.kind == STATUS else OK

    @property
    def text(self) -> str:
        """The server's text of a status."""
        if self.kind != STATUS or len(self.body) < _STATUS_BYTES:
            return ""
        (size,) = struct.unpack_from(">I", self.body, 4)
        return self.body[8 : 8 + size].decode("utf-8", "replace")

    @property
    def handle(self) -> bytes:
        """The file handle of an OPEN or OPENDIR."""
        return _string(self.body, 0)[0]

    @property
    def state(self) -> RemoteStat:
        """The state in an ATTRS answer; a missing size counts as 0."""
        return _parse_attributes(self.body, 0)[0]

    @property
    def size(self) -> int | None:
        """The size in an ATTRS answer; None where it is missing."""
        (flags,) = struct.unpack_from(">I", self.body)
        return self.state.size if flags & 1 else None


def _packed(data: bytes) -> bytes:
    """Length-prefixed bytes."""
    return struct.pack(">I", len(data)) + data


def open_request(path: bytes, flags: int, mode: int = 0o600) -> bytes:
    """OPEN with permission bits."""
    return bytes([OPEN]) + _packed(path) + struct.pack(">III", flags, 4, mode)


def request(kind: int, *arguments: bytes) -> bytes:
    """A request whose arguments are strings: paths, a handle, the name of an extension.

    RENAME: OpenSSH's fails when the new name exists.
    """
    return bytes([kind]) + b"".join(_packed(argument) for argument in arguments)


def mkdir_request(path: bytes, mode: int | None = None) -> bytes:
    """MKDIR with permission bits; None: the server's default."""
    attributes = struct.pack(">I", 0) if mode is None else struct.pack(">II", 4, mode)
    return bytes([MKDIR]) + _packed(path) + attributes


def write_request(handle: bytes, offset: int, count: int) -> bytes:
    """WRITE at `offset`; its `count` bytes are the body given to `Wire.submit`."""
    return bytes([WRITE]) + _packed(handle) + struct.pack(">QI", offset, count)


def read_request(handle: bytes, offset: int, count: int) -> bytes:
    """READ of up to `count` bytes at `offset`."""
    return bytes([READ]) + _packed(handle) + struct.pack(">QI", offset, count)


def setstat(kind: int, subject: bytes, *, mode: int | None = None, mtime_s: int | None = None) -> bytes:
    """SETSTAT of a path or FSETSTAT of a handle: permission bits, access and modification time."""
    flags = (0 if mode is None else 4) | (0 if mtime_s is None else 8)
    values = (() if mode is None else (mode,)) + (() if mtime_s is None else (mtime_s, mtime_s))
    return bytes([kind]) + _packed(subject) + struct.pack(f">{1 + len(values)}I", flags, *values)


def resize(kind: int, subject: bytes, size: int) -> bytes:
    """SETSTAT of a path or FSETSTAT of a handle that truncates (or extends) the file."""
    return bytes([kind]) + _packed(subject) + struct.pack(">IQ", 1, size)


def _parse_attributes(body: bytes, at: int) -> tuple[RemoteStat, int]:
    """Read an ATTRS structure; returns it and the position behind it."""
    (flags,) = struct.unpack_from(">I", body, at)
    at += 4
    size = mtime = 0
    mode = None
    if flags & 1:
        (size,) = struct.unpack_from(">Q", body, at)
        at += 8
    if flags & 2:
        at += 8
    if flags & 4:
        (mode,) = struct.unpack_from(">I", body, at)
        at += 4
    if flags & 8:
        (mtime,) = struct.unpack_from(">I", body, at + 4)
        at += 8
    if flags & 0x80000000:
        (count,) = struct.unpack_from(">I", body, at)
        at += 4
        for _ in range(2 * min(count, 1024)):
            _, at = _string(body, at)
    bits = None if mode is None else stat.S_IMODE(mode)
    return RemoteStat(size, mtime, _kind(mode or 0), bits), at


def _kind(mode: int) -> Kind:
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISLNK(mode):
        return "link"
    return "file" if stat.S_ISREG(mode) else "other"


def parse_names(body: bytes) -> list[tuple[bytes, RemoteStat]]:
    """Entries of a NAME answer (READDIR, REALPATH)."""
    (count,) = struct.unpack_from(">I", body)
    if count > _MAX_NAMES:
        raise _broken(f"the server announces {count} names")
    at = 4
    found = []
    for _ in range(count):
        name, at = _string(body, at)
        _, at = _string(body, at)
        state, at = _parse_attributes(body, at)
        found.append((name, state))
    return found


def _string(body: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">I", body, at)
    end = at + 4 + size
    if end > len(body):
        raise _broken("the server's answer is cut short")
    return body[at + 4 : end], end


class SilentError(LinkError):
    """No answer within the channel's timeout. The received bytes stay, so that waiting may continue."""


def _broken(why: str) -> LinkError:
    return LinkError("talk to the master", b"", why)


class Wire:
    """One SFTP session. Not for two threads at a time."""

    def __init__(self, channel: paramiko.Channel) -> None:
        """Greet the server; raises LinkError when it does not answer as SFTP."""
        self._channel = channel
        self._out = bytearray()
        self._in = bytearray()
        self._next = 1
        self._waiting: OrderedDict[int, tuple[float, int, int]] = OrderedDict()  # sent at, bytes, outstanding
        self._replies: dict[int, Reply] = {}
        self._syncs: set[int] = set()  # requests that wait for the server's disk
        self._synced_at = 0.0  # when the last of them was answered
        self._outstanding = 0
        self.window_bytes = FIRST_WINDOW_BYTES
        self.written_bytes = 0
        channel.settimeout(REPLY_TIMEOUT_S)
        try:
            self.extensions = self._greet()
            self.write_bytes, self.read_bytes = self._limits()
        except LinkError as error:
            raise LinkError("start sftp", b"", error.why, START_HINT) from error

    def submit(self, request: bytes, body: bytes | memoryview = b"", *, syncs: bool = False) -> int:
        """Queue a request, and a write's data; waits while the window is full. Returns its id.

        `syncs`: it waits for the server's disk, and so do requests queued behind it: their duration says
        nothing about the link.

        Raises:
            LinkError: the connection failed, or has used all request ids.
        """
        size = len(request) + len(body)
        while self._waiting and self._outstanding + size > self.window_bytes:
            self._receive()
        number = self._next
        if number > _LAST_REQUEST:
            raise _broken("the connection has no more numbers for requests")
        self._next += 1
        self._outstanding += size
        self._waiting[number] = (time.monotonic(), size, self._outstanding)
        if request[0] == WRITE:
            self.written_bytes += size
        if syncs:
            self._syncs.add(number)
        self._out += struct.pack(">IBI", size + 4, request[0], number)
        self._out += request[1:]
        self._out += body
        if len(self._out) >= _FLUSH_BYTES:
            self.flush()
        return number

    def wait(self, number: int) -> Reply:
        """The reply to request `number`."""
        while number not in self._replies:
            self._receive()
        return self._replies.pop(number)

    def wait_long(self, number: int, ask: Callable[[], None]) -> Reply:
        """The reply to a sync, which may take long; `ask` raises LinkError where the peer is dead."""
        began = time.monotonic()
        self.flush()
        self._channel.settimeout(ASK_AFTER_S)
        try:
            while number not in self._replies:
                try:
                    self._receive()
                except SilentError as error:
                    if time.monotonic() - began > SYNC_TIMEOUT_S:
                        raise _broken(f"a sync did not end in {SYNC_TIMEOUT_S:g} s") from error
                    ask()
        finally:
            self._channel.settimeout(REPLY_TIMEOUT_S)
        return self._replies.pop(number)

    def answered(self, number: int) -> bool:
        """Whether the reply to `number` was received already."""
        return number in self._replies

    def poll(self) -> None:
        """Receive what has arrived."""
        while self._waiting and self._channel.recv_ready():
            self._receive()

    def drain(self) -> None:
        """Wait for all outstanding replies and drop them."""
        while self._waiting:
            self._receive()
        self._replies.clear()

    def call(self, packet: bytes) -> Reply:
        """Send one request and wait for its reply."""
        return self.wait(self.submit(packet))

    def calls(self, packets: Iterable[bytes]) -> list[Reply]:
        """Send several requests, then wait for their replies."""
        pending = [self.submit(packet) for packet in packets]
        return [self.wait(number) for number in pending]

    def flush(self) -> None:
        """Hand queued requests to the channel."""
        view = memoryview(self._out)
        self._out = bytearray()  # no further copy of the data
        at = 0
        while at < len(view):
            try:
                sent = self._channel.send(view[at:])  # type: ignore[arg-type]
            except (OSError, EOFError) as error:
                raise _broken(_words(error)) from error
            if sent <= 0:
                raise _broken("the connection was closed")
            at += sent

    def chunk_bytes(self) -> int:
        """How much payload the next write should carry."""
        return max(1 << 10, min(self.write_bytes, self.window_bytes))

    def close(self) -> None:
        """Drop the channel without waiting."""
        self._channel.close()

    def _receive(self) -> None:
        if self._out:
            self.flush()
        number, reply = self._read_packet()
        sent = self._waiting.pop(number, None)
        if sent is None:
            raise _broken(f"the server answered request {number}, which was not made")
        self._outstanding -= sent[1]
        self._replies[number] = reply
        now = time.monotonic()
        if number in self._syncs:
            self._syncs.remove(number)
            self._synced_at = now
        took = now - sent[0]
        if took < QUICK_REPLY_S and sent[2] * 2 >= self.window_bytes:
            self.window_bytes = min(MAX_WINDOW_BYTES, self.window_bytes * 2)
        elif took > SLOW_REPLY_S and not self._syncs and sent[0] > self._synced_at:
            self.window_bytes = max(FIRST_WINDOW_BYTES // 4, self.window_bytes // 2)

    def _read_packet(self) -> tuple[int, Reply]:
        self._await(5)
        size, kind = struct.unpack_from(">IB", self._in)
        if not _MIN_PACKET_BYTES <= size <= MAX_PACKET_BYTES:
            raise _broken(f"the server sent a packet of {size} bytes, which is not SFTP")
        packet = self._take(size + 4)
        (number,) = struct.unpack_from(">I", packet, 5)
        return number, Reply(kind, packet[9:])

    def _await(self, count: int) -> None:
        """Wait until so many bytes are received; a timeout loses none of them."""
        while len(self._in) < count:
            try:
                more = self._channel.recv(256 << 10)
            except TimeoutError as error:
                raise SilentError("talk to", b"", _words(error)) from error
            except (OSError, EOFError) as error:
                raise _broken(_words(error)) from error
            if not more:
                raise _broken("the connection was closed")
            self._in += more

    def _take(self, count: int) -> bytes:
        self._await(count)
        taken = bytes(self._in[:count])
        del self._in[:count]
        return taken

    def _greet(self) -> dict[bytes, bytes]:
        self._out += struct.pack(">IBI", 5, INIT, 3)
        self.flush()
        size, kind = struct.unpack(">IB", self._take(5))
        if kind != VERSION or not _MIN_PACKET_BYTES <= size <= MAX_PACKET_BYTES:
            raise _broken("the server does not speak SFTP (does its login shell print something?)")
        body = self._take(size - 1)
        extensions = {}
        at = 4
        while at < len(body):
            name, at = _string(body, at)
            value, at = _string(body, at)
            extensions[name] = value
        return extensions

    def _limits(self) -> tuple[int, int]:
        """Bytes that one write and one read may have."""
        read = write = 0
        if b"limits@openssh.com" in self.extensions:
            reply = self.call(request(EXTENDED, b"limits@openssh.com"))
            if reply.kind == EXTENDED_REPLY and len(reply.body) >= _LIMITS_BYTES:
                _, read, write = struct.unpack_from(">QQQ", reply.body)
        return (
            max(SAFE_WRITE_BYTES, min(write, _MOST_BYTES)),
            max(SAFE_WRITE_BYTES, min(read, _MOST_BYTES)),
        )


def open_wire(transport: paramiko.Transport) -> Wire:
    """One more SFTP session over a connection: a process of its own on the server.

    Raises:
        paramiko.SSHException, EOFError, OSError: the server refuses, or is gone.
        LinkError: it does not answer as SFTP.
    """
    channel = transport.open_session(timeout=REPLY_TIMEOUT_S, window_size=4 << 20)
    channel.settimeout(REPLY_TIMEOUT_S)
    channel.invoke_subsystem("sftp")
    return Wire(channel)


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer for {REPLY_TIMEOUT_S:g} s"
    return f"the connection failed: {error or type(error).__name__}"
