"""The SFTP target: pipelined, every reply checked, renamed into place by `posix-rename@openssh.com`.

Small files go in batches on one channel, so a batch of 64 takes four round trips: look at the final
names and open the temp files; write, set the time, close; (source re-stat); rename. A large file
goes in writes of up to 255 KiB, as many in flight as the wire's window allows; the confirmed prefix
is what a later try may start from. Appends are one write each, awaited.

A server without posix-rename: the old file is moved aside, the new one renamed, the old one removed
(`ensure_plain_rename`); the name is missing for two round trips. Without statvfs `free_bytes` is
None, without hardlink `link` is False.
"""

from __future__ import annotations

import stat as stat_bits
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rla_agent.replicate import wire
from rla_agent.replicate.connect import HANDSHAKE_TIMEOUT_S, Login, open_transport
from rla_agent.replicate.target import (
    BlockedError,
    ConflictError,
    DeniedError,
    FullError,
    Kind,
    LinkError,
    MissingError,
    RemoteStat,
    SmallFile,
    SourceChangedError,
    TargetError,
    TransientError,
    Upload,
    check_remote,
    parents,
    same,
)

if TYPE_CHECKING:
    import paramiko

POSIX_RENAME: Final = b"posix-rename@openssh.com"
STATVFS: Final = b"statvfs@openssh.com"
COPY_DATA: Final = b"copy-data"
HARDLINK: Final = b"hardlink@openssh.com"
FULL_BYTES: Final = 1 << 20  # less free space than this explains a bare "Failure"
_NEW: Final = wire.WRITE_FLAG | wire.CREATE_FLAG | wire.EXCLUSIVE_FLAG
_SUFFIX_ASIDE: Final = b".old"


def open_sftp(login: Login, root: str) -> SftpSession:
    """Connect, log in, start SFTP and check that the root is a folder.

    Raises:
        LinkError: the master cannot be reached now.
        BlockedError: host key, login or root need somebody.
    """
    import paramiko  # noqa: PLC0415 - half a second, and only this needs it

    transport = open_transport(login)
    try:
        channel = transport.open_session(timeout=HANDSHAKE_TIMEOUT_S, window_size=4 << 20)
        channel.settimeout(HANDSHAKE_TIMEOUT_S)
        channel.invoke_subsystem("sftp")
        return SftpSession(wire.Wire(channel), root.encode("utf-8", "surrogateescape"), transport)
    except (paramiko.SSHException, EOFError, OSError, wire.WireError) as error:
        transport.close()
        raise LinkError(
            "start sftp",
            b"",
            str(error) or type(error).__name__,
            "does sshd_config have a Subsystem sftp line?",
        ) from error
    except BaseException:
        transport.close()
        raise


class SftpSession:
    """A `target.Session` over one SFTP channel."""

    def __init__(self, link: wire.Wire, root: bytes, transport: paramiko.Transport | None = None) -> None:
        self._wire = link
        self._transport = transport
        self._root = root.rstrip(b"/") or (b"/" if root.startswith(b"/") else b".")
        self._folders: set[bytes] = set()
        self.extensions = link.extensions
        self._posix_rename = POSIX_RENAME in link.extensions
        self._check_root()

    @property
    def written_bytes(self) -> int:
        """See `Session`."""
        return self._wire.written_bytes

    @property
    def append_limit_bytes(self) -> int:
        """32 KiB is what every server writes as one."""
        return wire.SAFE_WRITE_BYTES

    def stat(self, path: bytes) -> RemoteStat | None:
        """See `Session`."""
        reply = self._call(wire.path_request(wire.LSTAT, self._full(path)))
        if reply.status == wire.NO_SUCH_FILE:
            return None
        self._check(reply, "look at", path)
        return _remote_stat(wire.parse_attributes(reply.body)[0])

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `Session`."""
        reply = self._call(wire.path_request(wire.OPENDIR, self._full(path)))
        self._check(reply, "list", path)
        handle = reply.handle
        found: list[tuple[bytes, RemoteStat]] = []
        while True:
            reply = self._call(wire.path_request(wire.READDIR, handle))
            if reply.kind != wire.NAME:
                break
            found += [(name, _remote_stat(attributes)) for name, attributes in wire.parse_names(reply.body)]
        self._call(wire.path_request(wire.CLOSE, handle))
        if reply.status != wire.EOF:
            self._check(reply, "list", path)
        return [(name, state) for name, state in found if name not in {b".", b".."}]

    def make_folders(self, paths: Sequence[bytes]) -> None:
        """See `Session`; all requests are in flight at once."""
        wanted = dict.fromkeys(folder for path in paths for folder in parents(check_remote(path)))
        missing = [folder for folder in wanted if folder not in self._folders]
        replies = self._calls([wire.mkdir_request(self._full(folder)) for folder in missing])
        for folder, reply in zip(missing, replies, strict=True):
            if reply.status != wire.OK:
                self._check_folder(folder, reply)
            self._folders.add(folder)

    def _check_folder(self, folder: bytes, reply: wire.Reply) -> None:
        found = self.stat(folder)
        if found is None:
            self._check(reply, "make folder", folder)
        elif found.kind != "folder":
            what = f"a {found.kind} of that name is in the way"
            raise DeniedError("make folder", folder, what, "rename it on the master")

    def forget_folders(self) -> None:
        """Look again whether folders are there."""
        self._folders.clear()

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """See `Session`."""
        results: list[RemoteStat | Exception | None] = [None] * len(files)
        handles = self._open_many(files, results)
        self._write_many(files, results, handles)
        for number, file in enumerate(files):
            if results[number] is None and not file.unchanged():
                results[number] = SourceChangedError(file.path.decode("utf-8", "backslashreplace"))
        self._rename_many(files, results)
        failed = [number for number in handles if isinstance(results[number], Exception)]
        self._calls([wire.path_request(wire.REMOVE, self._full(files[number].temp)) for number in failed])
        return [
            result if result is not None else TransientError("send", b"", "no result") for result in results
        ]

    def _open_many(
        self, files: Sequence[SmallFile], results: list[RemoteStat | Exception | None]
    ) -> dict[int, bytes]:
        requests = []
        for file in files:
            requests.append(wire.path_request(wire.LSTAT, self._full(file.path)))
            requests.append(wire.open_request(self._full(file.temp), _NEW))
        replies = self._calls(requests)
        handles = {}
        for number, file in enumerate(files):
            look, opened = replies[2 * number : 2 * number + 2]
            problem = self._conflict(look, file.path, file.expect)
            results[number] = problem or self._problem(opened, "create", file.temp)
            if opened.kind == wire.HANDLE:
                handles[number] = opened.handle
        return handles

    def _write_many(
        self,
        files: Sequence[SmallFile],
        results: list[RemoteStat | Exception | None],
        handles: dict[int, bytes],
    ) -> None:
        plan: list[tuple[int, str]] = []
        pending: list[int] = []
        for number, handle in handles.items():
            data = memoryview(files[number].data) if results[number] is None else memoryview(b"")
            at = 0
            while at < len(data):
                piece = data[at : at + self._wire.chunk_bytes()]
                pending.append(self._submit(wire.write_request(handle, at, piece)))
                plan.append((number, "write"))
                at += len(piece)
            pending.append(self._submit(wire.fsetstat_times(handle, files[number].mtime_s)))
            pending.append(self._submit(wire.path_request(wire.CLOSE, handle)))
            plan += [(number, "set the time of"), (number, "close")]
        for request, (number, operation) in zip(pending, plan, strict=True):
            reply = self._wait(request)
            if results[number] is None:
                results[number] = self._problem(reply, operation, files[number].path)

    def _rename_many(self, files: Sequence[SmallFile], results: list[RemoteStat | Exception | None]) -> None:
        ready = [number for number, result in enumerate(results) if result is None]
        if not self._posix_rename:
            for number in ready:
                results[number] = self._rename_plain(files[number])
            return
        replies = self._calls(
            [self._rename_request(files[number].temp, files[number].path) for number in ready]
        )
        for number, reply in zip(ready, replies, strict=True):
            file = files[number]
            done = RemoteStat(len(file.data), file.mtime_s)
            results[number] = self._problem(reply, "rename", file.path) or done

    def _rename_plain(self, file: SmallFile) -> RemoteStat | Exception:
        try:
            self.rename(file.temp, file.path)
        except TargetError as error:
            return error
        return RemoteStat(len(file.data), file.mtime_s)

    def upload(self, job: Upload) -> RemoteStat:
        """See `Session`."""
        look = self._call(wire.path_request(wire.LSTAT, self._full(job.path)))
        problem = self._conflict(look, job.path, job.expect)
        if problem is not None:
            raise problem
        flags = _NEW if job.start == 0 else wire.WRITE_FLAG
        opened = self._call(wire.open_request(self._full(job.temp), flags))
        self._check(opened, "create", job.temp)
        handle = opened.handle
        self._send_body(job, handle)
        self._check_size(job, handle)
        for request in (wire.fsetstat_times(handle, job.mtime_s), wire.path_request(wire.CLOSE, handle)):
            self._check(self._call(request), "close", job.path)
        if not job.unchanged():
            self.remove(job.temp)
            raise SourceChangedError(job.path.decode("utf-8", "backslashreplace"))
        self.rename(job.temp, job.path)
        return RemoteStat(job.size, job.mtime_s)

    def _send_body(self, job: Upload, handle: bytes) -> None:
        waiting: deque[tuple[int, int]] = deque()
        at = job.start
        while at < job.size:
            data = job.read(at, min(self._wire.chunk_bytes(), job.size - at))
            if not data:
                self._abandon(waiting, handle, job.temp)
                raise SourceChangedError(job.path.decode("utf-8", "backslashreplace"))
            waiting.append((self._submit(wire.write_request(handle, at, data)), at + len(data)))
            at += len(data)
            while waiting and self._wire.answered(waiting[0][0]):
                self._confirm(job, waiting)
        while waiting:
            self._confirm(job, waiting)

    def _confirm(self, job: Upload, waiting: deque[tuple[int, int]]) -> None:
        request, end = waiting.popleft()
        self._check(self._wait(request), "write", job.path)
        job.progress(end)

    def _abandon(self, waiting: deque[tuple[int, int]], handle: bytes, temp: bytes) -> None:
        while waiting:
            self._wait(waiting.popleft()[0])
        self._call(wire.path_request(wire.CLOSE, handle))
        self.remove(temp)

    def _check_size(self, job: Upload, handle: bytes) -> None:
        reply = self._call(wire.path_request(wire.FSTAT, handle))
        self._check(reply, "look at", job.temp)
        size = wire.parse_attributes(reply.body)[0].size
        if size != job.size:
            self._call(wire.path_request(wire.CLOSE, handle))
            self.remove(job.temp)
            raise TransientError("send", job.path, f"the master holds {size} bytes of {job.size}")

    def append(self, path: bytes, offset: int, pieces: Iterable[bytes], expect: RemoteStat) -> RemoteStat:
        """See `Session`."""
        opened = self._call(wire.open_request(self._full(path), wire.WRITE_FLAG))
        self._check(opened, "open", path)
        handle = opened.handle
        try:
            return self._append(path, handle, offset, list(pieces), expect)
        finally:
            self._submit(wire.path_request(wire.CLOSE, handle))
            self._drain()

    def _append(
        self, path: bytes, handle: bytes, offset: int, pieces: list[bytes], expect: RemoteStat
    ) -> RemoteStat:
        found = self._handle_stat(handle, path)
        end = offset + sum(len(piece) for piece in pieces)
        if found.size != offset and not offset < found.size <= end:
            raise ConflictError("append to", path, found)
        if found.size == offset and not same(found, expect):
            raise ConflictError("append to", path, found)
        at = offset
        limit = self._wire.write_bytes
        fitting = [piece[start : start + limit] for piece in pieces for start in range(0, len(piece), limit)]
        for piece in fitting:
            reply = self._call(wire.write_request(handle, at, piece))
            if reply.status != wire.OK:
                self._call(wire.fsetstat_size(handle, at))  # a torn piece must not stay
                self._check(reply, "append to", path)
            at += len(piece)
        return self._handle_stat(handle, path)

    def extend(self, path: bytes, temp: bytes, offset: int, data: bytes, expect: RemoteStat) -> RemoteStat | None:
        """See `Session`: the server copies what it has, the rest is sent, then the rename."""
        if COPY_DATA not in self.extensions or not self._posix_rename or offset == 0:
            return None
        look = self._call(wire.path_request(wire.LSTAT, self._full(path)))
        self._check(look, "look at", path)
        found = _remote_stat(wire.parse_attributes(look.body)[0])
        if found.size != offset or not same(found, expect):
            return None  # `append` judges it
        source = self._call(wire.open_request(self._full(path), wire.READ_FLAG))
        self._check(source, "open", path)
        target = self._call(wire.open_request(self._full(temp), _NEW))
        self._check(target, "create", temp)
        copied = self._call(wire.copy_request(source.handle, offset, target.handle))
        if copied.status != wire.OK:
            for handle in (source.handle, target.handle):
                self._call(wire.path_request(wire.CLOSE, handle))
            self.remove(temp)
            return None
        pending = []
        at = 0
        while at < len(data):
            piece = memoryview(data)[at : at + self._wire.chunk_bytes()]
            pending.append(self._submit(wire.write_request(target.handle, offset + at, piece)))
            at += len(piece)
        for reply in [self._wait(request) for request in pending]:
            self._check(reply, "write", path)
        state = self._handle_stat(target.handle, temp)
        for handle in (source.handle, target.handle):
            self._check(self._call(wire.path_request(wire.CLOSE, handle)), "close", path)
        if state.size != offset + len(data):
            raise TransientError("send", path, f"the master holds {state.size} bytes of {offset + len(data)}")
        self.rename(temp, path)
        return state

    def _handle_stat(self, handle: bytes, path: bytes) -> RemoteStat:
        reply = self._call(wire.path_request(wire.FSTAT, handle))
        self._check(reply, "look at", path)
        return _remote_stat(wire.parse_attributes(reply.body)[0])

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        """See `Session`."""
        opened = self._call(wire.open_request(self._full(path), wire.READ_FLAG))
        self._check(opened, "open", path)
        size = self._wire.read_bytes
        spans = [(at, min(size, offset + count - at)) for at in range(offset, offset + count, size)]
        replies = self._calls([wire.read_request(opened.handle, at, length) for at, length in spans])
        self._call(wire.path_request(wire.CLOSE, opened.handle))
        found = bytearray()
        for (at, length), reply in zip(spans, replies, strict=True):
            if reply.status == wire.EOF:
                break
            self._check(reply, "read", path)
            data = reply.handle  # DATA has the layout of HANDLE
            found += data[:length]
            if len(data) < length:
                rest = offset + count - at - len(data)
                return bytes(found) + (self.read(path, at + len(data), rest) if data else b"")
        return bytes(found)

    def truncate(self, path: bytes, size: int) -> None:
        """See `Session`."""
        request = bytes([wire.SETSTAT]) + wire.string(self._full(path)) + struct.pack(">IQ", 1, size)
        self._check(self._call(request), "cut", path)

    def rename(self, old: bytes, new: bytes) -> None:
        """See `Session`."""
        reply = self._call(self._rename_request(old, new))
        if reply.status == wire.OP_UNSUPPORTED:
            self._posix_rename = False
            reply = self._call(self._rename_request(old, new))
        if reply.status == wire.FAILURE and not self._posix_rename and self.stat(new) is not None:
            aside = old + _SUFFIX_ASIDE
            self._check(self._call(wire.rename_request(self._full(new), self._full(aside))), "rename", new)
            reply = self._call(self._rename_request(old, new))
            self.remove(aside)
        self._check(reply, "rename", new)

    def remove(self, path: bytes) -> None:
        """See `Session`."""
        reply = self._call(wire.path_request(wire.REMOVE, self._full(path)))
        if reply.status != wire.NO_SUCH_FILE:
            self._check(reply, "remove", path)

    def remove_folder(self, path: bytes) -> None:
        """See `Session`."""
        reply = self._call(wire.path_request(wire.RMDIR, self._full(path)))
        self._folders.clear()
        if reply.status != wire.NO_SUCH_FILE:
            self._check(reply, "remove folder", path)

    def free_bytes(self) -> int | None:
        """See `Session`."""
        if STATVFS not in self.extensions:
            return None
        reply = self._call(wire.extended_request(STATVFS, self._root))
        if reply.kind != wire.EXTENDED_REPLY or len(reply.body) < 88:  # noqa: PLR2004 - eleven uint64
            return None
        _, fragment, _, _, available = struct.unpack_from(">QQQQQ", reply.body)
        return int(fragment * available)

    def link(self, old: bytes, new: bytes) -> bool:
        """See `Session`."""
        if HARDLINK not in self.extensions:
            return False
        reply = self._call(wire.extended_request(HARDLINK, self._full(old), self._full(new)))
        return reply.status == wire.OK

    def close(self) -> None:
        """See `Session`."""
        with suppress(OSError, EOFError):  # the link may be gone already
            self._wire.close()
        if self._transport is not None:
            with suppress(OSError, EOFError):
                self._transport.close()

    def _check_root(self) -> None:
        try:
            found = self._call(wire.path_request(wire.STAT, self._root))
            if found.status == wire.NO_SUCH_FILE:
                self._make_root()
                return
            self._check(found, "look at", b"")
            if _remote_stat(wire.parse_attributes(found.body)[0]).kind != "folder":
                raise BlockedError("look at", b"", "the remote root is no folder", "correct remote_data_root")
        except DeniedError as error:
            raise BlockedError(
                "look at", b"", error.why, "correct remote_data_root, or its permissions"
            ) from error

    def _make_root(self) -> None:
        parts = self._root.split(b"/")
        for count in range(1, len(parts) + 1):
            folder = b"/".join(parts[:count])
            reply = self._call(wire.mkdir_request(folder)) if folder else None
        if reply is not None and reply.status not in {wire.OK, wire.FAILURE}:
            raise BlockedError(
                "make folder",
                b"",
                f"{self._root.decode('utf-8', 'replace')}: {reply.text}",
                "make the remote_data_root on the master and give it to this user",
            )

    def _full(self, path: bytes) -> bytes:
        return self._root.rstrip(b"/") + b"/" + path if check_remote(path) else self._root

    def _rename_request(self, old: bytes, new: bytes) -> bytes:
        if self._posix_rename:
            return wire.extended_request(POSIX_RENAME, self._full(old), self._full(new))
        return wire.rename_request(self._full(old), self._full(new))

    def _conflict(self, look: wire.Reply, path: bytes, expect: RemoteStat | None) -> TargetError | None:
        if look.status == wire.NO_SUCH_FILE:
            return None  # gone, or not there yet: nothing that could be overwritten
        problem = self._problem(look, "look at", path)
        if problem is not None:
            return problem
        found = _remote_stat(wire.parse_attributes(look.body)[0])
        return None if same(found, expect) else ConflictError("send", path, found)

    def _problem(self, reply: wire.Reply, operation: str, path: bytes) -> TargetError | None:
        status = reply.status
        if status == wire.OK:
            return None
        if status == wire.NO_SUCH_FILE:
            return MissingError(operation, path, "not there")
        if status == wire.PERMISSION_DENIED:
            return DeniedError(
                operation, path, "permission denied on the master", "give the folder to this user"
            )
        if status == wire.OP_UNSUPPORTED:
            return DeniedError(operation, path, "the server cannot do this", "see rla-agent doctor --master")
        return self._explain(reply, operation, path)

    def _explain(self, reply: wire.Reply, operation: str, path: bytes) -> TargetError:
        """sftp-server says "Failure" for whatever else went wrong; a full disk is the usual reason."""
        free = self.free_bytes()
        if free is not None and free < FULL_BYTES:
            return FullError(operation, path, "the master's disk is full", "free space on the master")
        return TransientError(
            operation,
            path,
            reply.text or "Failure",
            "a quota on the master, or a file where a folder should be?",
        )

    def _check(self, reply: wire.Reply, operation: str, path: bytes) -> None:
        problem = self._problem(reply, operation, path)
        if problem is not None:
            raise problem

    def _call(self, request: bytes) -> wire.Reply:
        return self._wait(self._submit(request))

    def _calls(self, requests: Sequence[bytes]) -> list[wire.Reply]:
        pending = [self._submit(request) for request in requests]
        return [self._wait(request) for request in pending]

    def _submit(self, request: bytes) -> int:
        try:
            return self._wire.submit(request)
        except (wire.WireError, struct.error) as error:
            raise LinkError("talk to", b"", str(error)) from error

    def _wait(self, request: int) -> wire.Reply:
        try:
            return self._wire.wait(request)
        except (wire.WireError, struct.error) as error:
            raise LinkError("talk to", b"", str(error)) from error

    def _drain(self) -> None:
        try:
            self._wire.drain()
        except wire.WireError:
            pass  # the connection is gone, and the handle with it


def _remote_stat(attributes: wire.Attributes) -> RemoteStat:
    mode = attributes.mode or 0
    kind: Kind = "file"
    if stat_bits.S_ISDIR(mode):
        kind = "folder"
    elif stat_bits.S_ISLNK(mode):
        kind = "link"
    elif not stat_bits.S_ISREG(mode):
        kind = "other"
    return RemoteStat(attributes.size or 0, attributes.mtime_s or 0, kind)
