"""What the targets share that know one file at a time: a folder, FTP. `sftp` has all in flight at once.

A subclass moves content (`upload`, `append`), makes one folder (`_make_folder`) and says how a small file
gets there (`_put`); the rules of `target` on batches, folders and foreign files are here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rla_agent.replicate.backend.target import (
    ConflictError,
    DeniedError,
    LinkError,
    ModeOf,
    RemoteStat,
    SmallFile,
    SourceChangedError,
    TargetError,
    Upload,
    check_remote,
    parents,
    same,
)

APPEND_BYTES = 32 << 10  # as over SFTP, so that a reader sees the same steps


class OneByOne(ABC):
    """The part of a `target.Session` that needs no more than the other part."""

    @property
    def append_limit_bytes(self) -> int:
        """See `Session`."""
        return APPEND_BYTES

    @abstractmethod
    def stat(self, path: bytes) -> RemoteStat | None:
        """See `Session`."""

    @abstractmethod
    def upload(self, job: Upload) -> RemoteStat:
        """See `Session`."""

    @abstractmethod
    def _make_folder(self, folder: bytes, mode: int | None) -> bool:
        """Make one folder, whose parent is there; False when something of that name is there already."""

    @abstractmethod
    def set_modes(
        self, wanted: Sequence[tuple[bytes, int]], *, only_less: bool = False
    ) -> list[TargetError | None]:
        """See `Session`."""

    def make_folders(self, paths: Sequence[bytes], mode_of: ModeOf | None = None) -> None:
        """See `Session`."""
        for folder in dict.fromkeys(folder for path in paths for folder in parents(check_remote(path))):
            mode, shared = (None, False) if mode_of is None else mode_of(folder)
            made = self._make_folder(folder, mode)
            if mode is not None:
                self.set_modes([(folder, mode)], only_less=not made or (shared and mode & 0o055 == 0o055))  # noqa: PLR2004
            if made:
                continue
            found = self.stat(folder)
            if found is not None and found.kind != "folder":
                what = f"a {found.kind} of that name is in the way"
                raise DeniedError("make folder", folder, what, "rename it on the master")

    def forget_folders(self) -> None:  # noqa: B027 - nothing is remembered, in no subclass
        """See `Session`."""

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """See `Session`."""
        results: list[RemoteStat | Exception] = []
        for file in files:
            try:
                results.append(self._put(file))
            except LinkError:
                raise
            except (TargetError, SourceChangedError) as error:
                results.append(error)
        return results

    def _put(self, file: SmallFile) -> RemoteStat:
        return self.upload(
            Upload(
                file.path,
                file.temp,
                file.mtime_s,
                file.expect,
                file.unchanged,
                lambda at, count: file.data[at : at + count],
                len(file.data),
                0,
                lambda _: None,
                file.mode,
            )
        )

    def extend(
        self, path: bytes, temp: bytes, offset: int, data: bytes, expect: RemoteStat
    ) -> RemoteStat | None:
        """See `Session`; not here."""
        del path, temp, offset, data, expect
        return None

    def _expect(self, path: bytes, expect: RemoteStat | None) -> None:
        """Raise ConflictError when there is something else under a name than was left there."""
        found = self.stat(path)
        if found is not None and not same(found, expect):
            raise ConflictError("send", path, found)


def check_append(path: bytes, found: RemoteStat, offset: int, end: int, expect: RemoteStat) -> None:
    """Raise ConflictError unless the file is as it was left, or as one of our tries may have left it."""
    unknown_try = offset < found.size <= end
    if not unknown_try and (found.size != offset or not same(found, expect)):
        raise ConflictError("append to", path, found)
