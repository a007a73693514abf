"""The folder target: a master that is mounted here (NFS), or a disk; tests use it too.

The same rules as over SFTP. Temp files are fsynced before their rename. A root that is not there is
`BlockedError`, never created: an unmounted NFS share must not be filled underneath its mount point.
"""

from __future__ import annotations

import errno
import os
import stat as stat_bits
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from rla_agent.replicate.target import (
    BlockedError,
    ConflictError,
    DeniedError,
    FullError,
    Kind,
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

_CHUNK: Final = 1 << 20
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_DENIED: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP}
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


class FolderSession:
    """A `target.Session` on a folder of this machine."""

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(root)
        self.written_bytes = 0
        if not os.path.isdir(self._root):
            raise BlockedError(
                "look at", b"", f"{root} is no folder", "mount it, or correct remote_data_root"
            )

    @property
    def append_limit_bytes(self) -> int:
        """As over SFTP."""
        return 32 << 10

    def stat(self, path: bytes) -> RemoteStat | None:
        """See `Session`."""
        with _converted("look at", path):
            try:
                return _state(os.lstat(self._full(path)))
            except FileNotFoundError:
                return None

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `Session`."""
        with _converted("list", path), os.scandir(self._full(path)) as entries:
            return [(entry.name, _state(entry.stat(follow_symlinks=False))) for entry in entries]

    def make_folders(self, paths: Sequence[bytes]) -> None:
        """See `Session`."""
        for folder in dict.fromkeys(folder for path in paths for folder in parents(check_remote(path))):
            with _converted("make folder", folder):
                try:
                    os.mkdir(self._full(folder))
                except FileExistsError:
                    self._check_folder(folder)

    def _check_folder(self, folder: bytes) -> None:
        found = self.stat(folder)
        if found is not None and found.kind != "folder":
            what = f"a {found.kind} of that name is in the way"
            raise DeniedError("make folder", folder, what, "rename it on the master")

    def forget_folders(self) -> None:
        """See `Session`."""

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """See `Session`."""
        results: list[RemoteStat | Exception] = []
        for file in files:
            try:
                results.append(self._put(file))
            except (TargetError, SourceChangedError) as error:
                results.append(error)
        return results

    def _put(self, file: SmallFile) -> RemoteStat:
        self._expect(file.path, file.expect)
        job = Upload(
            file.path,
            file.temp,
            file.mtime_s,
            file.expect,
            file.unchanged,
            lambda at, count: file.data[at : at + count],
            len(file.data),
            0,
            lambda _: None,
        )
        return self.upload(job)

    def upload(self, job: Upload) -> RemoteStat:
        """See `Session`."""
        self._expect(job.path, job.expect)
        temp = self._full(job.temp)
        with _converted("send", job.path):
            descriptor = os.open(temp, _NEW if job.start == 0 else _OLD, 0o644)
            try:
                self._send_body(job, descriptor)
                if os.fstat(descriptor).st_size != job.size or not job.unchanged():
                    os.unlink(temp)
                    raise SourceChangedError(os.fsdecode(job.path))
                os.utime(descriptor, (job.mtime_s, job.mtime_s))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temp, self._full(job.path))
        return RemoteStat(job.size, job.mtime_s)

    def _send_body(self, job: Upload, descriptor: int) -> None:
        at = job.start
        while at < job.size:
            data = job.read(at, min(_CHUNK, job.size - at))
            if not data:
                return
            sent = os.pwrite(descriptor, data, at)
            self.written_bytes += sent
            at += sent
            job.progress(at)

    def append(self, path: bytes, offset: int, pieces: Iterable[bytes], expect: RemoteStat) -> RemoteStat:
        """See `Session`."""
        whole = list(pieces)
        with _converted("append to", path):
            descriptor = os.open(self._full(path), _OLD)
            try:
                found = _state(os.fstat(descriptor))
                end = offset + sum(len(piece) for piece in whole)
                unknown_try = offset < found.size <= end
                if not unknown_try and (found.size != offset or not same(found, expect)):
                    raise ConflictError("append to", path, found)
                self._append(descriptor, offset, whole)
                return _state(os.fstat(descriptor))
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
                os.ftruncate(descriptor, at)  # a torn piece must not stay
                raise OSError(errno.ENOSPC, "short write")
            at += len(piece)
        os.fdatasync(descriptor)

    def extend(
        self, path: bytes, temp: bytes, offset: int, data: bytes, expect: RemoteStat
    ) -> RemoteStat | None:
        """Not here: `append` costs no round trips."""
        del path, temp, offset, data, expect
        return None

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        """See `Session`."""
        with _converted("read", path), open(self._full(path), "rb") as file:
            file.seek(offset)
            return file.read(count)

    def truncate(self, path: bytes, size: int) -> None:
        """See `Session`."""
        with _converted("cut", path):
            os.truncate(self._full(path), size)

    def rename(self, old: bytes, new: bytes) -> None:
        """See `Session`."""
        with _converted("rename", new):
            os.replace(self._full(old), self._full(new))

    def remove(self, path: bytes) -> None:
        """See `Session`."""
        with _converted("remove", path), suppress(FileNotFoundError):
            os.unlink(self._full(path))

    def remove_folder(self, path: bytes) -> None:
        """See `Session`."""
        with _converted("remove folder", path), suppress(FileNotFoundError):
            os.rmdir(self._full(path))

    def free_bytes(self) -> int | None:
        """See `Session`."""
        with _converted("look at", b""):
            found = os.statvfs(self._root)
        return found.f_bavail * found.f_frsize

    def link(self, old: bytes, new: bytes) -> bool:
        """See `Session`."""
        try:
            os.link(self._full(old), self._full(new), follow_symlinks=False)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """See `Session`."""

    def _full(self, path: bytes) -> bytes:
        return os.path.join(self._root, check_remote(path)) if path else self._root

    def _expect(self, path: bytes, expect: RemoteStat | None) -> None:
        found = self.stat(path)
        if found is not None and not same(found, expect):
            raise ConflictError("send", path, found)


@contextmanager
def _converted(operation: str, path: bytes) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise MissingError(operation, path, "not there") from error
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in _FULL:
            raise FullError(operation, path, why, "free space on the master") from error
        if error.errno in _DENIED:
            raise DeniedError(operation, path, why, "give the folder to this user") from error
        raise TransientError(operation, path, why) from error


def _state(found: os.stat_result) -> RemoteStat:
    kind: Kind = "other"
    if stat_bits.S_ISREG(found.st_mode):
        kind = "file"
    elif stat_bits.S_ISDIR(found.st_mode):
        kind = "folder"
    elif stat_bits.S_ISLNK(found.st_mode):
        kind = "link"
    return RemoteStat(found.st_size, int(found.st_mtime), kind)
