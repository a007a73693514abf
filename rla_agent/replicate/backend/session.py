"""Interface of a session at a replication target.

Paths are bytes, relative to the target's root, with `/` between components; `check_remote` refuses a path
that would leave the root, so no target ever sees `..`, an absolute path or a NUL.

Rules (the conformance suite in `tests/conformance/test_targets.py` runs over every target):

1. *Atomic*: `put_many` and `upload` write under the temp name and rename it over the final one only after
   every write was confirmed and the temp file has the full size. A failure before that leaves the final name
   unchanged. In `put_many` each file succeeds or fails alone.
2. *Idempotent*: each operation may be repeated after any failure, also one whose outcome is
   unknown. `make_folders` of what is there, `remove` of what is not there: fine. `upload` continues
   at `start` in the temp file of an earlier attempt. `append` at the same offset with the same
   bytes leaves the same file.
3. *Nothing is overwritten unseen*: `put_many`, `upload` and `append` check the final name first. Its
   state must equal `expect` (None: nothing there), else they raise `ConflictError` and change nothing.
4. *Appends are prefixes*: `append` writes its pieces one after the other, each confirmed before the
   next; after any interruption the file ends with a complete piece (FTP: may end within one, see `ftp`).
5. *Deadlines*: no call waits longer than its timeout for a silent peer.
6. *Modes*: `put_many` and `upload` give a file its permission bits before the rename and write the temp
   file no more open than that; `make_folders` and `set_modes` do so for folders. Setuid, setgid and sticky
   bits are never copied; those of the master's folders stay. Where a server refuses, a warning is logged
   once, and files keep the modes that they are created with. (FTP: by SITE CHMOD, else the server's own.)
7. Only errors of `errors` are raised, each with operation, path and a hint for the operator.
   After `LinkError` the session is broken: close it and open a new one.
8. *Durability is reported*: where the target can (`syncs`), `put_many` and `upload` sync the content before
   the rename, and the new name before they return (`RemoteStat.synced`). Appends are not synced one by one:
   `sync` does it for many files at a time. Unsynced bytes are lost when the master loses power; `probe`
   checks many files in few round trips.

Implementations: `sftp` has all requests in flight at once, `folder` and `ftp` take one file at a time
(`one_by_one`), `bucket` has objects. Defaults for most of them are in `TargetSession` itself.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from rla_agent.replicate.backend.errors import (
    LinkError,
    MissingError,
    TargetError,
)
from rla_agent.replicate.backend.remote_stat import Probe, RemoteStat, StatWithParts
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.upload import Upload

ModeOf: TypeAlias = "Callable[[bytes], tuple[int, bool]]"


class TargetSession(Protocol):
    """One connection to a target, used by one thread at a time."""

    @property
    def written_bytes(self) -> int:
        """Payload bytes handed to the target in this session, repeats counted."""

    @property
    def append_limit_bytes(self) -> int:
        """Largest piece that `append` writes as one."""

    @property
    def syncs(self) -> bool:
        """Whether the target can sync files."""
        return False

    @property
    def moves_folders(self) -> bool:
        """Whether `rename` gives a folder its new name at once, with all that is in it."""
        return True

    @property
    def alive(self) -> bool:
        """False once the connection is known to be gone."""
        return True

    def sync(self, paths: Sequence[bytes]) -> list[bool | None]:
        """Sync files, and their names in their folders, on the master; whether each was synced.

        None: its disk gave an error. What is read from there then may be in the master's memory only.
        """
        return [False] * len(paths)

    def probe(self, wanted: Sequence[Probe]) -> list[StatWithParts | TargetError]:
        """Stat files and read some of their bytes; one result for each."""
        results: list[StatWithParts | TargetError] = []
        for one in wanted:
            try:
                state = self.stat(one.path)
                spans = one.spans if state is not None and state.kind == "file" else ()
                parts = tuple(self.read(one.path, at, count) for at, count in spans)
                results.append(StatWithParts(state, parts))
            except LinkError:
                raise
            except TargetError as error:
                results.append(error)
        return results

    @property
    def defers(self) -> bool:
        """Whether appends wait for the end of `together`, and are discarded if that raises."""
        return False

    def together(self) -> AbstractContextManager[None]:
        """Scope whose appends may share one request for several files, at its end."""
        return nullcontext()

    @abstractmethod
    def stat(self, path: bytes) -> RemoteStat | None:
        """State of `path`, links not followed; None when nothing is there."""

    @abstractmethod
    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """Entries of a folder, unordered, without `.` and `..`; MissingError when it is not there."""

    @abstractmethod
    def make_folders(self, paths: Sequence[bytes], mode_of: ModeOf | None = None) -> None:
        """Create folders and their parents below the root; those that are there already are fine.

        `mode_of` gives the permission bits of each, and whether it is shared by several runs. A new folder
        gets the bits; from an existing one, and from a new one that is shared, bits are only removed, as in
        `set_modes`. None: the server's default.
        """

    @abstractmethod
    def set_modes(
        self, wanted: Sequence[tuple[bytes, int]], *, only_less: bool = False
    ) -> list[TargetError | None]:
        """Give files and folders permission bits; one result for each.

        `only_less`: only remove surplus bits of group and others. A folder's group stays able to write where
        it may enter, and is left alone where the folder is setgid, because nodes that log in as different
        users share a master that way.
        """

    @abstractmethod
    def forget_folders(self) -> None:
        """Drop cached states of folders and files, so that they are checked before the next use."""

    @abstractmethod
    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """Put small files; one result for each: its new state, a TargetError or SourceChangedError."""

    def put_own(self, file: SmallFile) -> RemoteStat:
        """Put a small file that nobody else writes, whatever has its names; `expect` is ignored."""
        self.remove(file.temp)
        (result,) = self.put_many([replace(file, expect=self.stat(file.path))])
        if not isinstance(result, RemoteStat):
            raise result
        return result

    @abstractmethod
    def upload(self, job: Upload) -> RemoteStat:
        """Put one large file."""

    @abstractmethod
    def append(self, path: bytes, offset: int, pieces: Iterable[bytes], expect: RemoteStat) -> RemoteStat:
        """Write `pieces` from `offset` on.

        The file must have `expect`'s size, or reach past `offset`
        no further than these pieces do (an earlier try whose outcome was unknown).
        """

    @abstractmethod
    def read(self, path: bytes, offset: int, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""

    @property
    def has_versions(self) -> bool:
        """Whether bytes of `read_version` are surely of one version, without a stat after it."""
        return False

    @property
    def readers(self) -> int:
        """How many threads may call `stat`, `listing`, `read` and `read_version` at a time."""
        return 1

    @property
    def tells_modes(self) -> bool:
        """Whether `RemoteStat.mode` is ever known."""
        return True

    def left_out(self) -> Sequence[str]:
        """Keys on the target that name no file, as seen in its lists so far."""
        return ()

    def read_version(self, path: bytes, state: RemoteStat, offset: int, count: int) -> bytes:
        """`read` of the version that `stat` or `listing` returned.

        Raises:
            TransientError: `has_versions`, and it has been replaced.
        """
        del state
        return self.read(path, offset, count)

    @abstractmethod
    def truncate(self, path: bytes, size: int) -> None:
        """Cut a file to `size` bytes."""

    @abstractmethod
    def rename(self, old: bytes, new: bytes) -> None:
        """Give a file, or a folder with all that is in it, another name.

        A file of that name is replaced; a folder, unless it is empty, never is: an error.
        """

    @abstractmethod
    def remove(self, path: bytes) -> None:
        """Delete a file; none there is fine."""

    @abstractmethod
    def remove_folder(self, path: bytes) -> None:
        """Delete an empty folder; none there is fine."""

    def free_bytes(self) -> int | None:
        """Free space under the root; None when the target cannot tell."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Drop the connection without waiting."""


def listing_or_empty(session: TargetSession, path: bytes) -> list[tuple[bytes, RemoteStat]]:
    """`TargetSession.listing`; empty where there is no such folder."""
    try:
        return session.listing(path)
    except MissingError:
        return []


def read_json(session: TargetSession, path: bytes, most: int) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Content of a JSON file on the target, of any shape; None without a readable one."""
    try:
        return json.loads(session.read(path, 0, most))
    except (MissingError, ValueError, RecursionError):
        return None
