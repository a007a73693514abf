"""Target in a local or mounted folder.

The same rules as over SFTP. Temp files are fsynced before their rename, and their folder after it. A missing
root is `NoRootError`, never created, and one that becomes another folder breaks the session: an unmounted NFS
share must not be filled underneath its mount point.
"""

from __future__ import annotations

import errno
import os
import stat as stat_bits
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from rla_agent.replicate.backend.append_check import check_append
from rla_agent.replicate.backend.continued_upload import continued
from rla_agent.replicate.backend.errors import (
    DeniedError,
    FullError,
    LinkError,
    MissingError,
    NoRootError,
    SourceChangedError,
    TargetError,
    TransientError,
)
from rla_agent.replicate.backend.master_room import check_room
from rla_agent.replicate.backend.one_by_one import OneByOne
from rla_agent.replicate.backend.remote_modes import new_mode, warn_of_modes
from rla_agent.replicate.backend.remote_paths import check_remote, parent
from rla_agent.replicate.backend.remote_stat import Kind, RemoteStat, same
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.upload import SYNC_BYTES, Upload

_CHUNK: Final = 1 << 20
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_DENIED: Final = {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP}
_LOST: Final = {errno.EIO, errno.ENOSPC, errno.EDQUOT}  # errors of a sync whose bytes did not reach the disk
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT}


class FolderSession(OneByOne):
    """A `session.Session` on a folder of this machine."""

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(root)
        self._new_names: set[bytes] = set()  # unsynced folders in which folders were made
        try:
            self._found = os.stat(os.path.join(self._root, b"."))
        except OSError as error:
            why = f"{root} is not a folder that can be used: {error.strerror}"
            raise NoRootError("look at", b"", why, "mount it, or correct remote_data_root") from error

    @property
    def syncs(self) -> bool:
        """See `TargetSession`."""
        return True

    def sync(self, paths: Sequence[bytes]) -> list[bool | None]:
        """See `TargetSession`."""
        synced = {name: self._sync_one(name) for name in {*paths, *map(parent, paths)}}
        return [synced[path] and bool(synced[parent(path)]) for path in paths]

    def _sync_one(self, name: bytes) -> bool | None:
        """Whether a file or folder is on the disk; None where that gave an error."""
        try:
            descriptor = os.open(self._full(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.fsync(descriptor)
        except OSError as error:
            return None if error.errno in _LOST else False
        finally:
            os.close(descriptor)
        return True

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """See `TargetSession`; their folders are synced once."""
        results = super().put_many(files)
        folders = {
            parent(file.path)
            for file, found in zip(files, results, strict=True)
            if isinstance(found, RemoteStat) and file.durable
        }
        synced = self._sync_folders(folders)
        return [
            replace(found, synced=found.synced and parent(file.path) in synced)
            if isinstance(found, RemoteStat)
            else found
            for file, found in zip(files, results, strict=True)
        ]

    def _sync_folders(self, folders: set[bytes]) -> set[bytes]:
        """Sync folders with new names in them, and those in which folders were made; all that now are."""
        synced = {name for name in {*folders, *self._new_names} if self._sync_one(name)} if folders else set()
        made = self._new_names <= synced
        self._new_names -= synced
        return synced if made else set()

    def stat(self, path: bytes) -> RemoteStat | None:
        """See `TargetSession`."""
        with self._converted("look at", path):
            try:
                return _state(os.lstat(self._full(path)))
            except FileNotFoundError:
                return None

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `TargetSession`."""
        found = []
        with self._converted("list", path), os.scandir(self._full(path)) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    found.append((entry.name, _state(entry.stat(follow_symlinks=False))))
        return found

    def _make_folder(self, folder: bytes, mode: int | None) -> bool:
        with self._converted("make folder", folder):
            try:
                os.mkdir(self._full(folder), 0o755 if mode is None else mode)  # our umask is 0
            except FileExistsError:
                return False
        self._new_names.add(parent(folder))
        return True

    def set_modes(
        self, wanted: Sequence[tuple[bytes, int]], *, only_less: bool = False
    ) -> list[TargetError | None]:
        """See `TargetSession`."""
        results: list[TargetError | None] = []
        for path, mode in wanted:
            try:
                with self._converted("look at", path):
                    self._set_mode(path, mode, only_less=only_less)
            except TargetError as error:
                results.append(error)
            else:
                results.append(None)
        return results

    def _set_mode(self, path: bytes, mode: int, *, only_less: bool) -> None:
        changed = new_mode(_state(os.lstat(self._full(path))), mode, only_less=only_less)
        if changed is not None:
            self._permit(self._full(path), changed)

    def _permit(self, file: bytes | int, mode: int) -> None:
        try:
            os.chmod(file, mode)
        except OSError as error:
            warn_of_modes(os.fsdecode(self._root), error.strerror or str(error))

    def _put(self, file: SmallFile) -> RemoteStat:
        return self._link(file) or self._place(file.as_upload(), durable=file.durable)

    def _link(self, file: SmallFile) -> RemoteStat | None:
        """Link a file to its twin; None where that is impossible."""
        if file.twin is None:
            return None
        self._expect(file.path, file.expect)
        temp = self._full(file.temp)
        try:
            os.link(self._full(file.twin.path), temp, follow_symlinks=False)
        except OSError:  # no links supported, too many of them, or the twin is gone
            return None
        with self._converted("send", file.path):
            found = _state(os.lstat(temp))
            if not same(found, file.twin.left) or found.mode != file.mode:
                os.unlink(temp)
                return None
            if not file.unchanged():
                os.unlink(temp)
                raise SourceChangedError(file.path)
            os.replace(temp, self._full(file.path))
        return found

    def upload(self, job: Upload) -> RemoteStat:
        """See `TargetSession`."""
        found = self._place(job)
        return replace(found, synced=parent(job.path) in self._sync_folders({parent(job.path)}))

    def _place(self, job: Upload, *, durable: bool = True) -> RemoteStat:
        """Write, sync and rename: the content is on the disk, the name perhaps not yet."""
        self._expect(job.path, job.expect)
        temp = self._full(job.temp)
        begun, job = job.start, continued(job, self)
        if begun and not job.start:
            self.remove(job.temp)
        with self._converted("send", job.path):
            descriptor = os.open(temp, _NEW if job.start == 0 else _OLD, job.mode | 0o600)
            try:
                if job.start:  # a partial file may have wider permissions than that
                    self._permit(descriptor, job.mode | 0o600)
                self._send_body(job, descriptor)
                if os.fstat(descriptor).st_size != job.size or not job.unchanged():
                    os.unlink(temp)
                    raise SourceChangedError(job.path)
                self._permit(descriptor, job.mode)
                os.utime(descriptor, (job.mtime_s, job.mtime_s))
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temp, self._full(job.path))
        return RemoteStat(job.size, job.mtime_s, synced=durable)

    def _send_body(self, job: Upload, descriptor: int) -> None:
        at = synced = job.start
        while at < job.size:
            data = job.read(at, min(_CHUNK, job.size - at))
            if not data:
                return
            sent = os.pwrite(descriptor, data, at)
            self.written_bytes += sent
            at += sent
            job.progress(at)
            if at - synced >= SYNC_BYTES:
                os.fdatasync(descriptor)
                synced = at
                job.synced(at)

    def append(self, path: bytes, offset: int, pieces: Iterable[bytes], expect: RemoteStat) -> RemoteStat:
        """See `TargetSession`."""
        whole = list(pieces)
        with self._converted("append to", path):
            descriptor = os.open(self._full(path), _OLD)
            try:
                end = offset + sum(len(piece) for piece in whole)
                check_append(path, _state(os.fstat(descriptor)), offset, end, expect)
                check_room(path, self.free_bytes(), end - offset)
                self._append(descriptor, offset, whole)
                return replace(_state(os.fstat(descriptor)), synced=True)
            finally:
                os.close(descriptor)

    def _append(self, descriptor: int, offset: int, pieces: list[bytes]) -> None:
        at = offset
        for piece in pieces:
            try:
                sent = os.pwrite(descriptor, piece, at)
            except OSError:
                os.ftruncate(descriptor, at)
                raise
            self.written_bytes += sent
            if sent < len(piece):
                os.ftruncate(descriptor, at)  # a partial piece must not stay
                raise OSError(errno.ENOSPC, "short write")
            at += len(piece)
        os.fdatasync(descriptor)

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        """See `TargetSession`."""
        with self._converted("read", path), open(self._full(path), "rb") as file:
            file.seek(offset)
            return file.read(count)

    def truncate(self, path: bytes, size: int) -> None:
        """See `TargetSession`."""
        with self._converted("cut", path):
            os.truncate(self._full(path), size)

    def rename(self, old: bytes, new: bytes) -> None:
        """See `TargetSession`."""
        with self._converted("rename", new):
            os.replace(self._full(old), self._full(new))

    def remove(self, path: bytes) -> None:
        """See `TargetSession`."""
        with self._converted("remove", path), suppress(FileNotFoundError):
            os.unlink(self._full(path))

    def remove_folder(self, path: bytes) -> None:
        """See `TargetSession`."""
        with self._converted("remove folder", path), suppress(FileNotFoundError):
            os.rmdir(self._full(path))

    def free_bytes(self) -> int | None:
        """See `TargetSession`."""
        with self._converted("look at", b""):
            found = os.statvfs(self._root)
        return found.f_bavail * found.f_frsize

    def close(self) -> None:
        """See `TargetSession`."""

    def _full(self, path: bytes) -> bytes:
        try:
            if not os.path.samestat(os.stat(self._root), self._found):
                raise LinkError("look at", b"", "it is another folder by now: mounted, or unmounted")
        except OSError as error:
            raise LinkError("look at", b"", error.strerror or str(error)) from error
        return os.path.join(self._root, check_remote(path)) if path else self._root

    @contextmanager
    def _converted(self, operation: str, path: bytes) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise MissingError(operation, path, "not there") from error
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno in _NO_SPACE:
                raise FullError(operation, path, why, "free space on the master") from error
            if error.errno == errno.EROFS:  # of all files; or of another disk that is mounted below
                kind = FullError if _is_readonly(self._root) else DeniedError
                raise kind(operation, path, why, "mount it for writing on the master") from error
            if error.errno in _DENIED:
                raise DeniedError(operation, path, why, "give the folder to this user") from error
            raise TransientError(operation, path, why) from error


def _is_readonly(root: bytes) -> bool:
    """Whether the disk of a folder is mounted read-only."""
    with suppress(OSError):
        return bool(os.statvfs(root).f_flag & os.ST_RDONLY)
    return True


def _state(found: os.stat_result) -> RemoteStat:
    kind: Kind = "other"
    if stat_bits.S_ISREG(found.st_mode):
        kind = "file"
    elif stat_bits.S_ISDIR(found.st_mode):
        kind = "folder"
    elif stat_bits.S_ISLNK(found.st_mode):
        kind = "link"
    return RemoteStat(found.st_size, int(found.st_mtime), kind, stat_bits.S_IMODE(found.st_mode))
