"""Base of targets that take one file at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from rla_agent.replicate.backend.errors import (
    ConflictError,
    DeniedError,
    LinkError,
    SourceChangedError,
    TargetError,
)
from rla_agent.replicate.backend.remote_paths import check_remote, parents
from rla_agent.replicate.backend.remote_stat import RemoteStat, same
from rla_agent.replicate.backend.session import ModeOf, TargetSession
from rla_agent.replicate.backend.small_file import SmallFile

APPEND_BYTES: Final = 32 << 10  # as over SFTP, so that a reader sees the same steps


def check_folder(path: bytes, found: RemoteStat | None) -> None:
    """Raise DeniedError where a folder's name belongs to something else."""
    if found is not None and found.kind != "folder":
        what = f"a {found.kind} of that name is in the way"
        raise DeniedError("make folder", path, what, "rename it on the master")


class OneByOne(TargetSession):
    """Batches, folders and foreign files, for a target that takes one file at a time.

    A subclass moves content (`upload`, `append`, `read`), makes one folder (`_make_folder`) and may define
    how a small file is sent (`_put`). Its required methods are abstract.
    """

    append_limit_bytes: Final = APPEND_BYTES
    written_bytes = 0

    @abstractmethod
    def _make_folder(self, folder: bytes, mode: int | None) -> bool:
        """Make one folder, whose parent is there; False when something of that name is there already."""

    def make_folders(self, paths: Sequence[bytes], mode_of: ModeOf | None = None) -> None:
        """See `TargetSession`."""
        for folder in dict.fromkeys(folder for path in paths for folder in parents(check_remote(path))):
            mode, shared = (None, False) if mode_of is None else mode_of(folder)
            made = self._make_folder(folder, mode)
            if mode is not None:
                self.set_modes([(folder, mode)], only_less=not made or (shared and mode & 0o055 == 0o055))  # noqa: PLR2004
            if not made:
                check_folder(folder, self.stat(folder))

    def forget_folders(self) -> None:
        """See `TargetSession`; nothing is remembered."""

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """See `TargetSession`."""
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
        return self.upload(file.as_upload())

    def _expect(self, path: bytes, expect: RemoteStat | None) -> None:
        """Raise ConflictError when a name's file is not as it was left."""
        found = self.stat(path)
        if found is not None and not same(found, expect):
            raise ConflictError("send", path, found)
