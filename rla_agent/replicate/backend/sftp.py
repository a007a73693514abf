"""SFTP target: pipelined, every reply checked, renamed into place by `posix-rename@openssh.com`.

Small files go in batches, so a batch of 64 takes five round trips: look at the final names and open the temp
files; write, set time and permissions, sync, close; (source re-stat); rename; open the folders and sync them.
A large file goes in writes of up to 255 KiB, as many in flight as the wire's window allows; the confirmed
prefix is what a later try may start from. Appends are one write each, awaited. A small file that has a twin
on the server is linked to it by `hardlink@openssh.com`.

*Syncing* is `fsync@openssh.com`, on files before their rename and on folders (opened for reading) after it:
without it, a file that was acknowledged is empty or not there after a power cut. The files of a batch are
spread over several channels (`sftp_fsync`); a large file is synced piece by piece (`sftp_sync_behind`).

A server without fsync acknowledges what is in its memory (`syncs`). Without posix-rename the old file is
moved aside, the new one renamed, the old one removed; the name is missing for two round trips. Without
statvfs `free_bytes` is None, without hardlink files with a twin are written like others. A root that is not
there is `NoRootError`: a mistyped name must not fill a second database.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from rla_agent.replicate.backend import sftp_wire as wire
from rla_agent.replicate.backend.errors import (
    BlockedError,
    ConflictError,
    DeniedError,
    FullError,
    LinkError,
    MissingError,
    NoRootError,
    SourceChangedError,
    TargetError,
    TransientError,
    UnreadableError,
)
from rla_agent.replicate.backend.one_by_one import check_folder
from rla_agent.replicate.backend.remote_modes import mode_for_umask, new_mode, warn_of_modes
from rla_agent.replicate.backend.remote_paths import check_remote, parent, parents
from rla_agent.replicate.backend.remote_stat import Found, Probe, RemoteStat, same
from rla_agent.replicate.backend.sftp_fsync import OpenFile, SyncChannels, flush, sync_request
from rla_agent.replicate.backend.sftp_sync_behind import SyncBehind
from rla_agent.replicate.backend.target import (
    ROOM_BYTES,
    ModeOf,
    Session,
    SmallFile,
    Upload,
    check_append,
    check_room,
)

if TYPE_CHECKING:
    import paramiko

POSIX_RENAME: Final = b"posix-rename@openssh.com"
STATVFS: Final = b"statvfs@openssh.com"
_READ_ONLY: Final = 1  # SSH_FXE_STATVFS_ST_RDONLY
HARDLINK: Final = b"hardlink@openssh.com"
FILES_A_CHANNEL: Final = 4  # fewer to be written are not worth another channel
_SUFFIX_ASIDE: Final = b".old"
_FINISH: Final = "set the time and permissions of"
_NEW: Final = wire.WRITE_FLAG | wire.CREATE_FLAG | wire.EXCLUSIVE_FLAG
_SYNC: Final = "sync"
_Results: TypeAlias = "list[RemoteStat | Exception | None]"  # of a batch; None: none so far
_Left: TypeAlias = "dict[int, RemoteStat]"  # by the file's number, where it has not the time that was sent


def _write(over: wire.Wire, handle: bytes, offset: int, data: memoryview) -> list[int]:
    """Send all of it without waiting; the requests."""
    sent = []
    at = 0
    while at < len(data):
        piece = data[at : at + over.chunk_bytes()]
        sent.append(over.submit(wire.write_request(handle, offset + at, len(piece)), piece))
        at += len(piece)
    return sent


def _pieces(start: int, length: int, most: int) -> list[tuple[int, int]]:
    """Split a span of a file into (offset, count), each of at most `most` bytes."""
    return [(at, min(most, start + length - at)) for at in range(start, start + length, most)]


class SftpSession(Session):
    """A `target.Session` over one SFTP channel."""

    def __init__(
        self, link: wire.Wire, root: bytes, transport: paramiko.Transport, *, make_root: bool
    ) -> None:
        """`make_root`: make the root where it is not there."""
        self._wire = link
        self._transport = transport
        self._root = root.rstrip(b"/") or (b"/" if root.startswith(b"/") else b".")
        self._folders: set[bytes] = set()
        self.extensions = link.extensions
        self._posix_rename = POSIX_RENAME in link.extensions
        self._keeps_modes = True
        self._channels = SyncChannels(link, transport, self._full)
        self._check_root(make=make_root)

    @property
    def written_bytes(self) -> int:
        """See `Session`."""
        return self._wire.written_bytes

    @property
    def syncs(self) -> bool:
        """See `Session`."""
        return self._channels.works

    @property
    def alive(self) -> bool:
        """See `Session`."""
        return bool(self._transport.is_active())

    def sync(self, paths: Sequence[bytes]) -> list[bool | None]:
        """See `Session`; all requests are in flight at once."""
        if not self._channels.works or not paths:
            return [False] * len(paths)
        synced = self._channels.sync_names([*paths, *set(map(parent, paths))])
        return [synced[path] and bool(synced[parent(path)]) for path in paths]

    def probe(self, wanted: Sequence[Probe]) -> list[Found | TargetError]:
        """See `Session`; all requests are in flight at once."""
        call = self._wire.submit
        looks = [call(self._lstat(one.path)) for one in wanted]
        opens = [
            call(wire.open_request(self._full(one.path), wire.READ_FLAG)) if one.spans else 0
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
        """Ask for what is to be read, and close the file: for each span its requests and their lengths."""
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
    ) -> Found | TargetError:
        read = [[(self._wire.wait(request), count) for request, count in span] for span in asked]
        if look.status == wire.NO_SUCH_FILE:
            return Found(None)
        problem = self._problem(look, "look at", one.path)
        if problem is not None:
            return problem
        if opened is None or look.state.kind != "file":
            return Found(look.state)
        problem = self._problem(opened, "open", one.path)
        if problem is not None:
            return problem
        parts = []
        for span in read[:-1]:
            part = bytearray()
            for reply, count in span:
                if reply.status == wire.EOF:
                    break
                problem = self._problem(reply, "read", one.path)
                if problem is not None:
                    return problem
                part += reply.handle  # DATA has the layout of HANDLE
                if len(reply.handle) < count:
                    break
            parts.append(bytes(part))
        return Found(look.state, tuple(parts))

    def stat(self, path: bytes) -> RemoteStat | None:
        """See `Session`."""
        reply = self._wire.call(self._lstat(path))
        if reply.status == wire.NO_SUCH_FILE:
            return None
        self._check(reply, "look at", path)
        return reply.state

    def reaches(self, absolute: bytes) -> bool:
        """Whether the login can see an absolute path outside of the root, as without a chroot."""
        return self._wire.call(wire.request(wire.LSTAT, absolute)).kind == wire.ATTRS

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `Session`."""
        reply = self._ask(wire.request(wire.OPENDIR, self._full(path)), "list", path)
        handle = reply.handle
        found: list[tuple[bytes, RemoteStat]] = []
        while True:
            reply = self._wire.call(wire.request(wire.READDIR, handle))
            if reply.kind != wire.NAME:
                break
            found += wire.parse_names(reply.body)
        self._wire.call(wire.request(wire.CLOSE, handle))
        if reply.status != wire.EOF:
            self._check(reply, "list", path)
        return [(name, state) for name, state in found if name not in {b".", b".."}]

    def make_folders(self, paths: Sequence[bytes], mode_of: ModeOf | None = None) -> None:
        """See `Session`; all requests are in flight at once."""
        wanted = dict.fromkeys(folder for path in paths for folder in parents(check_remote(path)))
        missing = [folder for folder in wanted if folder not in self._folders]
        modes = {folder: mode_of(folder) for folder in missing} if mode_of is not None else {}
        first = {folder: mode_for_umask(mode) if shared else mode for folder, (mode, shared) in modes.items()}
        requests = [wire.mkdir_request(self._full(folder), first.get(folder)) for folder in missing]
        replies = self._wire.calls(requests)
        looks = self._wire.calls([self._lstat(folder) for folder in missing])
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
            self._check(made, "make folder", folder)
        self._check(look, "look at", folder)
        check_folder(folder, look.state)
        return look.state

    def set_modes(
        self, wanted: Sequence[tuple[bytes, int]], *, only_less: bool = False
    ) -> list[TargetError | None]:
        """See `Session`; all requests are in flight at once, and links are left alone."""
        looks = self._wire.calls([self._lstat(path) for path, _ in wanted])
        results, changes = [], []
        for (path, mode), look in zip(wanted, looks, strict=True):
            results.append(self._problem(look, "look at", path))
            if results[-1] is None:
                found = look.state
                changed = new_mode(found, mode, only_less=only_less)
                changes += [] if changed is None else [(path, changed)]
        self._change_modes(changes, warn=not only_less)
        return results

    def _change_modes(self, changes: Sequence[tuple[bytes, int]], *, warn: bool) -> None:
        """`warn` of a server that refuses: a shared folder may be another user's."""
        replies = self._wire.calls(
            [wire.setstat(wire.SETSTAT, self._full(path), mode=m) for path, m in changes]
        )
        for reply in replies:
            if warn and reply.status not in {wire.OK, wire.NO_SUCH_FILE}:
                self._warn_of_modes(reply)

    def _warn_of_modes(self, reply: wire.Reply) -> None:
        warn_of_modes(f"the master below {self._root.decode('utf-8', 'replace')}", reply.text or "Failure")

    def forget_folders(self) -> None:
        """Look again whether folders are there."""
        self._folders.clear()

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        """See `Session`."""
        opened = self._ask(wire.open_request(self._full(path), wire.READ_FLAG), "open", path)
        size = self._wire.read_bytes
        spans = [(at, min(size, offset + count - at)) for at in range(offset, offset + count, size)]
        replies = self._wire.calls([wire.read_request(opened.handle, at, length) for at, length in spans])
        self._wire.call(wire.request(wire.CLOSE, opened.handle))
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
        self._ask(wire.resize(wire.SETSTAT, self._full(path), size), "cut", path)

    def rename(self, old: bytes, new: bytes) -> None:
        """See `Session`."""
        reply = self._wire.call(self._rename_request(old, new))
        if reply.status == wire.OP_UNSUPPORTED:
            self._posix_rename = False
            reply = self._wire.call(self._rename_request(old, new))
        replaces = reply.status == wire.FAILURE and not self._posix_rename
        in_the_way = self.stat(new) if replaces else None
        if in_the_way is not None and in_the_way.kind != "folder":
            aside = old + _SUFFIX_ASIDE
            self._ask(wire.request(wire.RENAME, self._full(new), self._full(aside)), "rename", new)
            reply = self._wire.call(self._rename_request(old, new))
            self.remove(aside)
        self._check(reply, "rename", new)

    def remove(self, path: bytes) -> None:
        """See `Session`."""
        reply = self._wire.call(wire.request(wire.REMOVE, self._full(path)))
        if reply.status != wire.NO_SUCH_FILE:
            self._check(reply, "remove", path)

    def remove_folder(self, path: bytes) -> None:
        """See `Session`."""
        reply = self._wire.call(wire.request(wire.RMDIR, self._full(path)))
        self._folders.clear()
        if reply.status != wire.NO_SUCH_FILE:
            self._check(reply, "remove folder", path)

    def free_bytes(self) -> int | None:
        """See `Session`."""
        return self._answer_free(self._ask_free())

    def _ask_free(self) -> int | None:
        """Send the question that `_answer_free` waits for."""
        if STATVFS not in self.extensions:
            return None
        return self._wire.submit(wire.request(wire.EXTENDED, STATVFS, self._root))

    def _answer_free(self, request: int | None) -> int | None:
        return self._disk(request)[0]

    def _disk(self, request: int | None) -> tuple[int | None, bool]:
        """Free bytes, None where the server does not tell, and whether the disk is mounted read-only."""
        reply = None if request is None else self._wire.wait(request)
        if reply is None or reply.kind != wire.EXTENDED_REPLY or len(reply.body) < 88:  # noqa: PLR2004 - 11 uint64
            return None, False
        _, fragment, _, _, available, _, _, _, _, flags, _ = struct.unpack_from(">11Q", reply.body)
        return int(fragment * available), bool(flags & _READ_ONLY)

    def close(self) -> None:
        """See `Session`."""
        for end in (self._wire, self._transport):
            with suppress(OSError, EOFError):  # the link may be gone already
                end.close()

    @property
    def append_limit_bytes(self) -> int:
        """32 KiB is what every server writes as one; less where the link is slow, for each is awaited."""
        return min(wire.SAFE_WRITE_BYTES, self._wire.chunk_bytes())

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """See `Session`."""
        results: _Results = [None] * len(files)
        left = self._link_many(files)
        handles = self._open_many(files, results, left)
        synced = self._write_many(files, results, handles, left)
        for number, file in enumerate(files):
            if results[number] is None and not file.unchanged():
                results[number] = SourceChangedError(file.path)
        self._rename_many(files, results, left)
        self._name_many(files, results, synced)
        failed = [number for number in (*handles, *left) if isinstance(results[number], Exception)]
        temps = [self._full(files[number].temp) for number in failed]
        self._wire.calls([wire.request(wire.REMOVE, temp) for temp in temps])
        return [result or TransientError("send", b"", "no result") for result in results]

    def _link_many(self, files: Sequence[SmallFile]) -> _Left:
        """Make temp names links of their twins; those that are none of it are written."""
        wanted = [
            (number, file.temp, file.twin)
            for number, file in enumerate(files)
            if file.twin is not None and HARDLINK in self.extensions
        ]
        requests = []
        for _, temp, twin in wanted:
            requests.append(wire.request(wire.EXTENDED, HARDLINK, self._full(twin.path), self._full(temp)))
            requests.append(self._lstat(temp))
        replies = iter(self._wire.calls(requests))
        linked: _Left = {}
        for (number, temp, twin), made, look in zip(wanted, replies, replies, strict=True):
            if made.status != wire.OK or look.kind != wire.ATTRS:
                continue
            found = look.state
            if same(found, twin.left) and files[number].mode == (found.mode or 0) & 0o777:
                linked[number] = found
            else:
                self.remove(temp)
        return linked

    def _open_many(
        self, files: Sequence[SmallFile], results: _Results, linked: Container[int]
    ) -> dict[int, OpenFile]:
        wires = self._channels.spread(len(files) // FILES_A_CHANNEL)
        looks = [
            wires[number % len(wires)].submit(self._lstat(file.path)) for number, file in enumerate(files)
        ]
        opens = {
            number: wires[number % len(wires)].submit(
                wire.open_request(self._full(file.temp), _NEW, file.mode | 0o600)
            )
            for number, file in enumerate(files)
            if number not in linked
        }
        flush(wires)
        handles = {}
        for number, file in enumerate(files):
            over = wires[number % len(wires)]
            results[number] = self._conflict(over.wait(looks[number]), file.path, file.expect)
            if number not in opens:
                continue
            opened = over.wait(opens[number])
            results[number] = results[number] or self._problem(opened, "create", file.temp)
            if opened.kind == wire.HANDLE:
                handles[number] = OpenFile(over, opened.handle)
        return handles

    def _write_many(
        self, files: Sequence[SmallFile], results: _Results, handles: dict[int, OpenFile], left: _Left
    ) -> set[int]:
        """Write, sync and close; `left` gets the state of those whose time could not be set.

        All syncs come behind all writes, on each channel: what waits for the disk waits together.

        Returns:
            The files that were synced.
        """
        pending = self._ask_writes(files, results, handles)
        refused = {}
        synced: set[int] = set()
        for number, operation, request in pending:
            over = handles[number].wire
            reply = self._channels.await_sync(over, request) if operation == _SYNC else over.wait(request)
            if operation == _SYNC and reply.status in {wire.OK, wire.OP_UNSUPPORTED}:
                synced.update({number} if reply.status == wire.OK else ())
            elif operation == _FINISH and reply.status != wire.OK:
                refused[number] = reply
            elif results[number] is None:
                results[number] = self._problem(reply, operation, files[number].path)
        for number, reply in refused.items():
            if results[number] is None:
                found = self._settle_for(files[number], reply)
                if isinstance(found, RemoteStat):
                    left[number] = found
                else:
                    results[number] = found
        return synced

    def _ask_writes(
        self, files: Sequence[SmallFile], results: _Results, handles: dict[int, OpenFile]
    ) -> list[tuple[int, str, int]]:
        """The requests of `_write_many`: (number of the file, what is done, request)."""
        pending: list[tuple[int, str, int]] = []
        for number, (over, handle) in handles.items():
            data = memoryview(files[number].data) if results[number] is None else memoryview(b"")
            pending += [(number, "write", request) for request in _write(over, handle, 0, data)]
            pending.append((number, _FINISH, over.submit(self._finish(handle, files[number]))))
        for number, (over, handle) in handles.items() if self._channels.works else ():
            if files[number].durable and results[number] is None:
                pending.append((number, _SYNC, over.submit(sync_request(handle), syncs=True)))
        for number, (over, handle) in handles.items():
            pending.append((number, "close", over.submit(wire.request(wire.CLOSE, handle))))
        flush(dict.fromkeys(over for over, _ in handles.values()))
        return pending

    def _name_many(self, files: Sequence[SmallFile], results: _Results, synced: set[int]) -> None:
        """Sync the folders in which synced files have got their names, and tell of them in `results`."""
        named = {number: found for number in synced if isinstance(found := results[number], RemoteStat)}
        folders = self._channels.sync_folders({parent(files[number].path) for number in named})
        for number, found in named.items():
            results[number] = replace(found, synced=parent(files[number].path) in folders)

    def _finish(self, handle: bytes, file: SmallFile | Upload) -> bytes:
        mode = file.mode if self._keeps_modes else None
        return wire.setstat(wire.FSETSTAT, handle, mode=mode, mtime_s=file.mtime_s)

    def _settle_for(self, file: SmallFile | Upload, refused: wire.Reply) -> RemoteStat | TargetError:
        """Where the server sets no permissions, or no time either: the temp file as it was made."""
        time_alone = wire.setstat(wire.SETSTAT, self._full(file.temp), mtime_s=file.mtime_s)
        _, look = self._wire.calls([time_alone, self._lstat(file.temp)])
        problem = self._problem(look, "look at", file.temp)
        if problem is not None:
            return problem
        self._keeps_modes = False
        self._warn_of_modes(refused)
        return look.state

    def _rename_many(self, files: Sequence[SmallFile], results: _Results, left: _Left) -> None:
        ready = [number for number, result in enumerate(results) if result is None]
        done = {
            number: left.get(number) or RemoteStat(len(files[number].data), files[number].mtime_s)
            for number in ready
        }
        if not self._posix_rename:
            for number in ready:
                try:
                    self.rename(files[number].temp, files[number].path)
                    results[number] = done[number]
                except TargetError as error:
                    results[number] = error
            return
        requests = [self._rename_request(files[number].temp, files[number].path) for number in ready]
        for number, reply in zip(ready, self._wire.calls(requests), strict=True):
            results[number] = self._problem(reply, "rename", files[number].path) or done[number]

    def upload(self, job: Upload) -> RemoteStat:
        """See `Session`."""
        look = self._wire.call(self._lstat(job.path))
        problem = self._conflict(look, job.path, job.expect)
        if problem is not None:
            raise problem
        begun, job = job.start, job.continued(self)
        if begun and not job.start:
            self.remove(job.temp)
        flags = _NEW if job.start == 0 else wire.WRITE_FLAG
        request = wire.open_request(self._full(job.temp), flags, job.mode | 0o600)
        handle = self._ask(request, "create", job.temp).handle
        if job.start and self._keeps_modes:  # what was begun may be more open than that
            self._wire.call(wire.setstat(wire.FSETSTAT, handle, mode=job.mode | 0o600))
        behind = SyncBehind(self._channels, job, OpenFile(self._wire, handle), self._check)
        try:
            self._send_body(job, handle, behind)
            self._check_size(job, handle)
            finished, synced = self._finish_body(job, handle)
            behind.end()
        finally:
            behind.close()
        left = RemoteStat(job.size, job.mtime_s)
        if finished.status != wire.OK:
            settled = self._settle_for(job, finished)
            if isinstance(settled, TargetError):
                raise settled
            left = settled
        if not job.unchanged():
            self.remove(job.temp)
            raise SourceChangedError(job.path)
        self.rename(job.temp, job.path)
        return replace(left, synced=synced and self._named(job.path))

    def _named(self, path: bytes) -> bool:
        """Sync the folder in which a file has just got its name."""
        return parent(path) in self._channels.sync_folders({parent(path)})

    def _finish_body(self, job: Upload, handle: bytes) -> tuple[wire.Reply, bool]:
        """Set time and permissions, sync, close: the answer to the first, and whether it is synced."""
        finish = self._wire.submit(self._finish(handle, job))
        sync = self._wire.submit(sync_request(handle), syncs=True) if self._channels.works else None
        close = self._wire.submit(wire.request(wire.CLOSE, handle))
        finished = self._wire.wait(finish)
        synced = self._sync_answer(sync, job.path)
        self._check(self._wire.wait(close), "close", job.path)
        return finished, synced

    def _sync_answer(self, sync: int | None, path: bytes) -> bool:
        """Whether a file was synced; what failed to be is no file to be renamed."""
        if sync is None:
            return False
        reply = self._channels.await_sync(self._wire, sync)
        if reply.status == wire.OP_UNSUPPORTED:
            return False
        self._check(reply, _SYNC, path)
        return True

    def _send_body(self, job: Upload, handle: bytes, behind: SyncBehind) -> None:
        waiting: deque[tuple[int, int]] = deque()
        at = job.start
        while at < job.size:
            try:
                data = job.read(at, min(self._wire.chunk_bytes(), job.size - at))
            except UnreadableError:
                self._abandon(waiting, handle, job.temp)
                raise
            if not data:
                self._abandon(waiting, handle, job.temp)
                raise SourceChangedError(job.path)
            request = wire.write_request(handle, at, len(data))
            waiting.append((self._wire.submit(request, data), at + len(data)))
            at += len(data)
            while waiting and self._wire.answered(waiting[0][0]):
                self._confirm(job, waiting, behind)
        while waiting:
            self._confirm(job, waiting, behind)

    def _confirm(self, job: Upload, waiting: deque[tuple[int, int]], behind: SyncBehind) -> None:
        request, end = waiting.popleft()
        self._check(self._wire.wait(request), "write", job.path)
        job.progress(end)
        behind.confirmed(end)

    def _abandon(self, waiting: deque[tuple[int, int]], handle: bytes, temp: bytes) -> None:
        while waiting:
            self._wire.wait(waiting.popleft()[0])
        self._wire.call(wire.request(wire.CLOSE, handle))
        self.remove(temp)

    def _check_size(self, job: Upload, handle: bytes) -> None:
        size = self._ask(wire.request(wire.FSTAT, handle), "look at", job.temp).size
        if size != job.size:  # one that is not told is none
            self._wire.call(wire.request(wire.CLOSE, handle))
            self.remove(job.temp)
            raise TransientError("send", job.path, f"the master holds {size} bytes of {job.size}")

    def append(self, path: bytes, offset: int, pieces: Iterable[bytes], expect: RemoteStat) -> RemoteStat:
        """See `Session`.

        On a disk without room nothing is begun: half a row would be there until it is cut off again.
        """
        whole = list(pieces)
        asked = self._ask_free()
        opened = self._wire.call(wire.open_request(self._full(path), wire.WRITE_FLAG))
        free = self._answer_free(asked)
        self._check(opened, "open", path)
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
                self._check(reply, "append to", path)
            at += len(piece)
        return self._handle_stat(handle, path)

    def _handle_stat(self, handle: bytes, path: bytes) -> RemoteStat:
        return self._ask(wire.request(wire.FSTAT, handle), "look at", path).state

    def _check_root(self, *, make: bool) -> None:
        try:
            found = self._wire.call(wire.request(wire.STAT, self._root))
            if found.status == wire.NO_SUCH_FILE and make:
                self._make_root()
                return
            if found.status == wire.NO_SUCH_FILE:
                what = f"the remote root {self._root.decode('utf-8', 'replace')} does not exist"
                raise NoRootError("look at", b"", what, "mount its disk, or correct remote_data_root")
            self._check(found, "look at", b"")
            if found.state.kind != "folder":
                what = "the remote root is not a folder"
                raise BlockedError("look at", b"", what, "correct remote_data_root")
        except DeniedError as error:
            hint = "correct remote_data_root, or its permissions"
            raise BlockedError("look at", b"", error.why, hint) from error

    def _make_root(self) -> None:
        parts = self._root.split(b"/")
        for count in range(1, len(parts) + 1):
            folder = b"/".join(parts[:count])
            reply = self._wire.call(wire.mkdir_request(folder)) if folder else None
        if reply is not None and reply.status not in {wire.OK, wire.FAILURE}:
            what = f"{self._root.decode('utf-8', 'replace')}: {reply.text}"
            hint = "make the remote_data_root on the master and give it to this user"
            raise BlockedError("make folder", b"", what, hint)

    def _full(self, path: bytes) -> bytes:
        return self._root.rstrip(b"/") + b"/" + path if check_remote(path) else self._root

    def _lstat(self, path: bytes) -> bytes:
        return wire.request(wire.LSTAT, self._full(path))

    def _rename_request(self, old: bytes, new: bytes) -> bytes:
        if self._posix_rename:
            return wire.request(wire.EXTENDED, POSIX_RENAME, self._full(old), self._full(new))
        return wire.request(wire.RENAME, self._full(old), self._full(new))

    def _conflict(self, look: wire.Reply, path: bytes, expect: RemoteStat | None) -> TargetError | None:
        if look.status == wire.NO_SUCH_FILE:
            return None  # gone, or not there yet: nothing that could be overwritten
        problem = self._problem(look, "look at", path)
        if problem is not None:
            return problem
        found = look.state
        return None if same(found, expect) else ConflictError("send", path, found)

    def _problem(self, reply: wire.Reply, operation: str, path: bytes) -> TargetError | None:
        status = reply.status
        if status == wire.OK:
            return None
        if status == wire.NO_SUCH_FILE:
            return MissingError(operation, path, "not there")
        if status == wire.PERMISSION_DENIED:
            what = "permission denied on the master"
            return DeniedError(operation, path, what, "give the folder to this user")
        if status == wire.OP_UNSUPPORTED:
            return DeniedError(operation, path, "the server cannot do this", "see rla-agent doctor --master")
        return self._explain(reply, operation, path)

    def _explain(self, reply: wire.Reply, operation: str, path: bytes) -> TargetError:
        """sftp-server says "Failure" for whatever else went wrong; a full disk is the usual reason."""
        free, read_only = self._disk(self._ask_free())
        if read_only:
            why = "the master's disk is mounted read-only"
            return FullError(operation, path, why, "mount the master's disk for writing")
        if free is not None and free < ROOM_BYTES:
            return FullError(operation, path, "the master's disk is full", "free space on the master")
        hint = "a quota on the master, or a file where a folder should be?"
        return TransientError(operation, path, reply.text or "Failure", hint)

    def _check(self, reply: wire.Reply, operation: str, path: bytes) -> None:
        problem = self._problem(reply, operation, path)
        if problem is not None:
            raise problem

    def _ask(self, request: bytes, operation: str, path: bytes) -> wire.Reply:
        """The reply to a request that must go well."""
        reply = self._wire.call(request)
        self._check(reply, operation, path)
        return reply
