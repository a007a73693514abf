"""Session at a replication target, the same for SFTP, FTP, a bucket or a mounted folder.

Paths are bytes, relative to the target's root, `/` between components; `check_remote` refuses what
would leave the root, so no target ever sees `..`, an absolute path or a NUL.

Rules (the conformance suite in `tests/conformance/test_targets.py` runs over every target):

1. *Whole or not at all*: `put_many` and `upload` write under the temp name and rename it over the
   final one only after every write was confirmed and the temp file has the full size. Whatever
   fails before leaves the final name as it was. `put_many` judges each file alone.
2. *Idempotent*: each operation may be repeated after any failure, also one whose outcome is
   unknown. `make_folders` of what is there, `remove` of what is not there: fine. `upload` continues
   at `start` in the temp file that an earlier try left. `append` at the same offset with the same
   bytes leaves the same file.
3. *Nothing is overwritten unseen*: `put_many`, `upload` and `append` look at the final name first.
   It must be as `expect` says (None: nothing there), else `ConflictError` and nothing was changed.
4. *Appends are prefixes*: `append` writes its pieces one after the other, each confirmed before the
   next; after any cut the file ends with a whole piece (FTP: may end within one, see `ftp`).
5. *Deadlines*: no call waits longer than its timeout for a silent peer.
6. *Modes*: `put_many` and `upload` give a file its permission bits before the rename and write the temp
   file no more open than that; `make_folders` and `set_modes` do so for folders. Setuid, setgid and sticky
   never travel; those that the master's folders have stay. A server that refuses is warned of once, and
   the modes that files are created with must do. (FTP: by SITE CHMOD, else the server's own.)
7. Errors are those of `errors` and nothing else, each with operation, path and what the operator can do.
   After `LinkError` the session is broken: close it and open a new one.
8. *Synced or not, and it says so*: where the target can (`syncs`), `put_many` and `upload` have the
   content on the master's disk before the rename, and the new name before they return (`RemoteStat.synced`).
   Appends are not synced one by one: `sync` does it for many files at a time. What is not synced is gone
   when the master loses its power just then; `probe` looks at much in few round trips.

Implementations: `sftp` has all in flight at once, `folder` and `ftp` take one file at a time
(`one_by_one`), `bucket` has objects. What most of them do alike is in `TargetSession` itself.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

from rla_agent.replicate.backend.errors import (
    ConflictError,
    LinkError,
    MissingError,
    SourceChangedError,
    TargetError,
)
from rla_agent.replicate.backend.remote_stat import StatWithParts, Probe, RemoteStat, Twin, same

COMPARED_BYTES: Final = 1 << 20  # of what an earlier try left, before its end
SYNC_BYTES: Final = 32 << 20  # of a large file are synced while the next ones go
ModeOf: TypeAlias = "Callable[[bytes], tuple[int, bool]]"


@dataclass(frozen=True, slots=True)
class SmallFile:
    """One file of a batch, its content in memory.

    Attributes:
        path: final name.
        temp: temp name in the same folder, never used before.
        data: content.
        mtime_s: modification time to give it.
        expect: what lies under the final name now; None: nothing.
        unchanged: says, just before the rename, whether `data` still is the file.
        twin: may be hard-linked instead of writing `data`, if it is as it was left; the file then has
            the twin's time. For files that nobody writes in place. One of other permissions is not linked.
        mode: permission bits to give it.
        durable: False for what need not survive a power cut there.
    """

    path: bytes
    temp: bytes
    data: bytes
    mtime_s: int
    expect: RemoteStat | None
    unchanged: Callable[[], bool]
    twin: Twin | None = None
    mode: int = 0o600
    durable: bool = True

    def as_upload(self) -> Upload:
        """For a target that takes one file at a time."""
        return Upload(
            self.path,
            self.temp,
            self.mtime_s,
            self.expect,
            self.unchanged,
            lambda at, count: self.data[at : at + count],
            len(self.data),
            0,
            lambda _: None,
            self.mode,
        )


@dataclass(frozen=True, slots=True)
class Upload:
    """One large file.

    Attributes:
        path, temp, mtime_s, expect, unchanged, mode: as in `SmallFile`.
        read: `read(offset, count)` gives bytes of the source, `count` of them unless it shrank.
        size: bytes to send.
        start: bytes that an earlier try left confirmed in `temp`; 0 for a new temp file.
        progress: called with the confirmed bytes now and then; may wait (rate limit) or raise.
        sure: of `start`, those that were synced.
        synced: called with the bytes that were synced, now and then.
    """

    path: bytes
    temp: bytes
    mtime_s: int
    expect: RemoteStat | None
    unchanged: Callable[[], bool]
    read: Callable[[int, int], bytes]
    size: int
    start: int
    progress: Callable[[int], None]
    mode: int = 0o600
    sure: int = 0
    synced: Callable[[int], None] = lambda _: None

    def continued(self, session: TargetSession) -> Upload:
        """The same, beginning where the temp file still holds what was left there.

        A server that lost its power has what was not synced in part or not at all. So all of that is
        compared, as far as it is worth reading, and what is behind is sent again; of one that cannot sync
        the end, which was written last.
        """
        if not self.start:
            return self
        start = min(self.start, self.sure + SYNC_BYTES) if session.syncs else self.start
        at = self.sure if session.syncs else max(self.sure, start - COMPARED_BYTES)
        try:
            found = session.stat(self.temp)
            there = session.read(self.temp, at, start - at)
        except MissingError:
            found = None
        if found is not None and found.size >= start and there == self.read(at, start - at):
            return replace(self, start=start)
        if found is not None and self.sure <= found.size:
            return replace(self, start=self.sure)
        return replace(self, start=0)

    def pieces(self, piece_bytes: int) -> Iterator[bytes]:
        """All of the source, from its beginning.

        Raises:
            SourceChangedError: it is shorter now.
        """
        at = 0
        while at < self.size:
            data = self.read(at, min(piece_bytes, self.size - at))
            if not data:
                raise SourceChangedError(self.path)
            at += len(data)
            self.progress(at)
            yield data

    def checked_pieces(self, piece_bytes: int) -> Iterator[bytes]:
        """`pieces`, the last of which comes only once it is sure that the source is what was sent."""
        last: bytes | None = None
        for piece in self.pieces(piece_bytes):
            if last is not None:
                yield last
            last = piece
        if not self.unchanged():
            raise SourceChangedError(self.path)
        if last is not None:
            yield last


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
        """Whether the target can be asked to have files on its disk, as `sync` does."""
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
        """Have files, and their names in their folders, on the master's disk; whether each is.

        None: its disk gave an error. What a look finds there then may be in the master's memory only.
        """
        return [False] * len(paths)

    def probe(self, wanted: Sequence[Probe]) -> list[StatWithParts | TargetError]:
        """Look at files and read some of their bytes; one result for each."""
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
        """Whether appends wait for the end of `together`, and are not there if that raises."""
        return False

    def together(self) -> AbstractContextManager[None]:
        """What is appended within may go with one request for several files, at its end; or each at once."""
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
        gets the bits; one that is there, and a new one that is shared, only loses as in `set_modes`. None:
        as the server does it.
        """

    @abstractmethod
    def set_modes(
        self, wanted: Sequence[tuple[bytes, int]], *, only_less: bool = False
    ) -> list[TargetError | None]:
        """Give files and folders permission bits; one result for each.

        `only_less`: only take from others than the owner what they have more than that. A folder's group
        stays able to write where it may enter, and is left alone where the folder is setgid: nodes that
        log in as different users share a master so.
        """

    @abstractmethod
    def forget_folders(self) -> None:
        """Look again, before the next use, whether folders and files are there and as they were left."""

    @abstractmethod
    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """Put small files; one result for each: its new state, a TargetError or SourceChangedError."""

    def put_own(self, file: SmallFile) -> RemoteStat:
        """Put a small file that nobody else writes, whatever is under its names; `expect` does not count."""
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
        """Whether what `read_version` gives is surely of one version, without a look at the file after it."""
        return False

    @property
    def readers(self) -> int:
        """How many threads may call `stat`, `listing`, `read` and `read_version` at a time."""
        return 1

    @property
    def tells_modes(self) -> bool:
        """Whether `RemoteStat.mode` is ever told."""
        return True

    def left_out(self) -> Sequence[str]:
        """Names on the target that are no file's, as seen in its lists so far."""
        return ()

    def read_version(self, path: bytes, state: RemoteStat, offset: int, count: int) -> bytes:
        """`read` of a file as `stat` or `listing` has told of it.

        Raises:
            TransientError: `has_versions`, and it is another one by now.
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
    """Content of a JSON file on the target, of whatever shape; None where there is none that can be read."""
    try:
        return json.loads(session.read(path, 0, most))
    except (MissingError, ValueError, RecursionError):
        return None


def check_append(path: bytes, found: RemoteStat, offset: int, end: int, expect: RemoteStat) -> None:
    """Raise ConflictError unless the file is as it was left, or as one of our tries may have left it."""
    unknown_try = offset < found.size <= end
    if not unknown_try and (found.size != offset or not same(found, expect)):
        raise ConflictError("append to", path, found)
