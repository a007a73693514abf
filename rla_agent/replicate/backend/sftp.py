"""Target on an SFTP server.

Requests are pipelined, every reply is checked, and files are renamed into place by
`posix-rename@openssh.com`. Small files are sent in batches (`sftp_batch`), a large file in many writes
(`sftp_large_file`). Appends are one write each, awaited.

*Syncing* is `fsync@openssh.com`, on files before their rename and on folders (opened for reading) after it:
without it, an acknowledged file is empty or missing after a power cut.

A server without fsync acknowledges bytes that are in its memory only (`syncs`). Without statvfs `free_bytes`
is None, without hardlink files with a twin are written like others. A missing root is `NoRootError`: a
mistyped name must not fill a second database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rla_agent.replicate.backend import sftp_wire as wire
from rla_agent.replicate.backend.append_check import check_append
from rla_agent.replicate.backend.continued_upload import continued
from rla_agent.replicate.backend.errors import (
    BlockedError,
    DeniedError,
    LinkError,
    NoRootError,
    TargetError,
)
from rla_agent.replicate.backend.master_room import check_room
from rla_agent.replicate.backend.one_by_one import check_folder
from rla_agent.replicate.backend.remote_modes import mode_for_umask, new_mode
from rla_agent.replicate.backend.remote_paths import check_remote, parent, parents
from rla_agent.replicate.backend.remote_stat import Probe, RemoteStat, StatWithParts
from rla_agent.replicate.backend.session import ModeOf, TargetSession
from rla_agent.replicate.backend.sftp_batch import SmallFileBatch
from rla_agent.replicate.backend.sftp_calls import CheckedCalls
from rla_agent.replicate.backend.sftp_fsync import SyncChannels
from rla_agent.replicate.backend.sftp_large_file import LargeFile
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.upload import Upload

if TYPE_CHECKING:
    import paramiko


def _pieces(start: int, length: int, most: int) -> list[tuple[int, int]]:
    """Split a span of a file into (offset, count), each of at most `most` bytes."""
    return [(at, min(most, start + length - at)) for at in range(start, start + length, most)]


class SftpSession(TargetSession):
    """A `session.Session` over one SFTP channel."""

    def __init__(
        self, link: wire.Wire, root: bytes, transport: paramiko.Transport, *, make_root: bool
    ) -> None:
        """`make_root`: make the root where it is not there."""
        self._wire = link
        self._transport = transport
        self._calls = CheckedCalls(link, root)
        self._folders: set[bytes] = set()
        self.extensions = link.extensions
        self._channels = SyncChannels(link, transport, self._calls.full)
        self._check_root(make=make_root)

    @property
    def written_bytes(self) -> int:
        """See `TargetSession`."""
        return self._wire.written_bytes

    @property
    def syncs(self) -> bool:
        """See `TargetSession`."""
        return self._channels.works

    @property
    def alive(self) -> bool:
        """See `TargetSession`."""
        return bool(self._transport.is_active())

    def sync(self, paths: Sequence[bytes]) -> list[bool | None]:
        """See `TargetSession`; all requests are in flight at once."""
        if not self._channels.works or not paths:
            return [False] * len(paths)
        synced = self._channels.sync_names([*paths, *set(map(parent, paths))])
        return [synced[path] and bool(synced[parent(path)]) for path in paths]

    def probe(self, wanted: Sequence[Probe]) -> list[StatWithParts | TargetError]:
        """See `TargetSession`; all requests are in flight at once."""
        call = self._wire.submit
        looks = [call(self._calls.lstat(one.path)) for one in wanted]
        opens = [
            call(wire.open_request(self._calls.full(one.path), wire.READ_FLAG)) if one.spans else 0
            for one in wanted
        ]
        replies = [self._wire.wait(request) for request in looks]
        opened = [self._wire.wait(request) if request else None for request in opens]
        reads = [self._ask_spans(one, reply) for one, reply in zip(wanted, opened, strict=True)]
        return [
            self._found(one, look, reply, parts)
            for one, look, reply, parts in zip(wanted, replies, opened, reads, strict=True)
        ]

    def _ask_spans(self, one: Probe, opened: wire.Reply | None) -> list[list[tuple[int, int]]]:
        """Request reads and close the file: for each span its requests and their lengths."""
        if opened is None or opened.kind != wire.HANDLE:
            return []
        size = self._wire.read_bytes
        asked = [
            [
                (self._wire.submit(wire.read_request(opened.handle, at, count)), count)
                for at, count in _pieces(start, length, size)
            ]
            for start, length in one.spans
        ]
        asked.append([(self._wire.submit(wire.request(wire.CLOSE, opened.handle)), 0)])
        return asked

    def _found(
        self, one: Probe, look: wire.Reply, opened: wire.Reply | None, asked: list[list[tuple[int, int]]]
    ) -> StatWithParts | TargetError:
        read = [[(self._wire.wait(request), count) for request, count in span] for span in asked]
        if look.status == wire.NO_SUCH_FILE:
            return StatWithParts(None)
        problem = self._calls.problem(look, "look at", one.path)
        if problem is not None:
            return problem
        if opened is None or look.state.kind != "file":
            return StatWithParts(look.state)
        problem = self._calls.problem(opened, "open", one.path)
        if problem is not None:
            return problem
        parts = []
        for span in read[:-1]:
            part = bytearray()
            for reply, count in span:
                if reply.status == wire.EOF:
                    break
                problem = self._calls.problem(reply, "read", one.path)
                if problem is not None:
                    return problem
                part += reply.handle  # DATA has the layout of HANDLE
                if len(reply.handle) < count:
                    break
            parts.append(bytes(part))
        return StatWithParts(look.state, tuple(parts))

    def stat(self, path: bytes) -> RemoteStat | None:
        """See `TargetSession`."""
        return self._calls.stat(path)

    def reaches(self, absolute: bytes) -> bool:
        """Whether the login can see an absolute path outside of the root, as without a chroot."""
        return self._wire.call(wire.request(wire.LSTAT, absolute)).kind == wire.ATTRS

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `TargetSession`."""
        reply = self._calls.ask(wire.request(wire.OPENDIR, self._calls.full(path)), "list", path)
        handle = reply.handle
        found: list[tuple[bytes, RemoteStat]] = []
        while True:
            reply = self._wire.call(wire.request(wire.READDIR, handle))
            if reply.kind != wire.NAME:
                break
            found += wire.parse_names(reply.body)
        self._wire.call(wire.request(wire.CLOSE, handle))
        if reply.status != wire.EOF:
            self._calls.check(reply, "list", path)
        return [(name, state) for name, state in found if name not in {b".", b".."}]

    def make_folders(self, paths: Sequence[bytes], mode_of: ModeOf | None = None) -> None:
        """See `TargetSession`; all requests are in flight at once."""
        wanted = dict.fromkeys(folder for path in paths for folder in parents(check_remote(path)))
        missing = [folder for folder in wanted if folder not in self._folders]
        modes = {folder: mode_of(folder) for folder in missing} if mode_of is not None else {}
        first = {folder: mode_for_umask(mode) if shared else mode for folder, (mode, shared) in modes.items()}
        requests = [wire.mkdir_request(self._calls.full(folder), first.get(folder)) for folder in missing]
        replies = self._wire.calls(requests)
        looks = self._wire.calls([self._calls.lstat(folder) for folder in missing])
        changes: list[tuple[bytes, int]] = []
        for folder, reply, look in zip(missing, replies, looks, strict=True):
            found = self._folder_found(folder, reply, look)
            if modes:
                mode, shared = modes[folder]
                changed = new_mode(found, mode, only_less=shared or reply.status != wire.OK)
                changes += [] if changed is None else [(folder, changed)]
        self._change_modes(changes, warn=all(reply.status == wire.OK for reply in replies))
        self._folders.update(missing)
        self._channels.made_folders_in(
            parent(folder) for folder, reply in zip(missing, replies, strict=True) if reply.status == wire.OK
        )

    def _folder_found(self, folder: bytes, made: wire.Reply, look: wire.Reply) -> RemoteStat:
        if look.status == wire.NO_SUCH_FILE:
            self._calls.check(made, "make folder", folder)
        self._calls.check(look, "look at", folder)
        check_folder(folder, look.state)
        return look.state

    def set_modes(
        self, wanted: Sequence[tuple[bytes, int]], *, only_less: bool = False
    ) -> list[TargetError | None]:
        """See `TargetSession`; all requests are in flight at once, and links are left alone."""
        looks = self._wire.calls([self._calls.lstat(path) for path, _ in wanted])
        results, changes = [], []
        for (path, mode), look in zip(wanted, looks, strict=True):
            results.append(self._calls.problem(look, "look at", path))
            if results[-1] is None:
                found = look.state
                changed = new_mode(found, mode, only_less=only_less)
                changes += [] if changed is None else [(path, changed)]
        self._change_modes(changes, warn=not only_less)
        return results

    def _change_modes(self, changes: Sequence[tuple[bytes, int]], *, warn: bool) -> None:
        """`warn` when the server refuses, except for a shared folder, which may be another user's."""
        replies = self._wire.calls(
            [wire.setstat(wire.SETSTAT, self._calls.full(path), mode=m) for path, m in changes]
        )
        for reply in replies:
            if warn and reply.status not in {wire.OK, wire.NO_SUCH_FILE}:
                self._calls.warn_of_modes(reply)

    def forget_folders(self) -> None:
        """Drop the cache of existing folders."""
        self._folders.clear()

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        """See `TargetSession`."""
        opened = self._calls.ask(wire.open_request(self._calls.full(path), wire.READ_FLAG), "open", path)
        size = self._wire.read_bytes
        spans = [(at, min(size, offset + count - at)) for at in range(offset, offset + count, size)]
        replies = self._wire.calls([wire.read_request(opened.handle, at, length) for at, length in spans])
        self._wire.call(wire.request(wire.CLOSE, opened.handle))
        found = bytearray()
        for (at, length), reply in zip(spans, replies, strict=True):
            if reply.status == wire.EOF:
                break
            self._calls.check(reply, "read", path)
            data = reply.handle  # DATA has the layout of HANDLE
            found += data[:length]
            if len(data) < length:
                rest = offset + count - at - len(data)
                return bytes(found) + (self.read(path, at + len(data), rest) if data else b"")
        return bytes(found)

    def truncate(self, path: bytes, size: int) -> None:
        """See `TargetSession`."""
        self._calls.ask(wire.resize(wire.SETSTAT, self._calls.full(path), size), "cut", path)

    def rename(self, old: bytes, new: bytes) -> None:
        """See `TargetSession`."""
        self._calls.rename(old, new)

    def remove(self, path: bytes) -> None:
        """See `TargetSession`."""
        self._calls.remove(path)

    def remove_folder(self, path: bytes) -> None:
        """See `TargetSession`."""
        reply = self._wire.call(wire.request(wire.RMDIR, self._calls.full(path)))
        self._folders.clear()
        if reply.status != wire.NO_SUCH_FILE:
            self._calls.check(reply, "remove folder", path)

    def free_bytes(self) -> int | None:
        """See `TargetSession`."""
        return self._calls.answer_free(self._calls.ask_free())

    def close(self) -> None:
        """See `TargetSession`."""
        for end in (self._wire, self._transport):
            with suppress(OSError, EOFError):  # the link may be gone already
                end.close()

    @property
    def append_limit_bytes(self) -> int:
        """32 KiB, which every server writes as one; less on a slow link, since each write is awaited."""
        return min(wire.SAFE_WRITE_BYTES, self._wire.chunk_bytes())

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """See `TargetSession`."""
        return SmallFileBatch(self._calls, self._channels, files).put()

    def upload(self, job: Upload) -> RemoteStat:
        """See `TargetSession`."""
        look = self._wire.call(self._calls.lstat(job.path))
        problem = self._calls.conflict(look, job.path, job.expect)
        if problem is not None:
            raise problem
        begun, job = job.start, continued(job, self)
        if begun and not job.start:
            self.remove(job.temp)
        return LargeFile(self._calls, self._channels, job).put()

    def append(self, path: bytes, offset: int, pieces: Iterable[bytes], expect: RemoteStat) -> RemoteStat:
        """See `TargetSession`.

        On a full disk nothing is begun: half a row would stay there until it is truncated.
        """
        whole = list(pieces)
        asked = self._calls.ask_free()
        opened = self._wire.call(wire.open_request(self._calls.full(path), wire.WRITE_FLAG))
        free = self._calls.answer_free(asked)
        self._calls.check(opened, "open", path)
        handle = opened.handle
        try:
            check_room(path, free, sum(len(piece) for piece in whole))
            return self._append(path, handle, offset, whole, expect)
        finally:
            self._wire.submit(wire.request(wire.CLOSE, handle))
            with suppress(LinkError):  # if the connection is gone, so is the handle
                self._wire.drain()

    def _append(
        self, path: bytes, handle: bytes, offset: int, pieces: list[bytes], expect: RemoteStat
    ) -> RemoteStat:
        found = self._handle_stat(handle, path)
        end = offset + sum(len(piece) for piece in pieces)
        check_append(path, found, offset, end, expect)
        at = offset
        limit = self._wire.write_bytes
        fitting = [piece[start : start + limit] for piece in pieces for start in range(0, len(piece), limit)]
        for piece in fitting:
            request = wire.write_request(handle, at, len(piece))
            reply = self._wire.wait(self._wire.submit(request, piece))
            if reply.status != wire.OK:
                self._wire.call(wire.resize(wire.FSETSTAT, handle, at))  # a torn piece must not stay
                self._calls.check(reply, "append to", path)
            at += len(piece)
        return self._handle_stat(handle, path)

    def _handle_stat(self, handle: bytes, path: bytes) -> RemoteStat:
        return self._calls.ask(wire.request(wire.FSTAT, handle), "look at", path).state

    def _check_root(self, *, make: bool) -> None:
        try:
            found = self._wire.call(wire.request(wire.STAT, self._calls.root))
            if found.status == wire.NO_SUCH_FILE and make:
                self._make_root()
                return
            if found.status == wire.NO_SUCH_FILE:
                what = f"the remote root {self._calls.root.decode('utf-8', 'replace')} does not exist"
                raise NoRootError("look at", b"", what, "mount its disk, or correct remote_data_root")
            self._calls.check(found, "look at", b"")
            if found.state.kind != "folder":
                what = "the remote root is not a folder"
                raise BlockedError("look at", b"", what, "correct remote_data_root")
        except DeniedError as error:
            hint = "correct remote_data_root, or its permissions"
            raise BlockedError("look at", b"", error.why, hint) from error

    def _make_root(self) -> None:
        parts = self._calls.root.split(b"/")
        for count in range(1, len(parts) + 1):
            folder = b"/".join(parts[:count])
            reply = self._wire.call(wire.mkdir_request(folder)) if folder else None
        if reply is not None and reply.status not in {wire.OK, wire.FAILURE}:
            what = f"{self._calls.root.decode('utf-8', 'replace')}: {reply.text}"
            hint = "make the remote_data_root on the master and give it to this user"
            raise BlockedError("make folder", b"", what, hint)
