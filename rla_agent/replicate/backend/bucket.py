"""Target in an object store's bucket (S3, GCS, Azure).

The layout of files is in `bucket_keys`. An object appears completely or not at all, so there are no temp
names and no renames, and permissions are the bucket's (`mode` is None). Instead:

- *Whole files* are one PUT, a large one a multipart upload whose parts the library retries. A new name is
  made only if nothing has it (If-None-Match), an old one replaced only if it is unchanged (If-Match); where
  the server supports neither, it is checked before, as over SFTP. Each version has an id in its metadata, so
  a PUT whose answer was lost is recognized. The metadata also have the file's time and its size: an object
  that a careless server made of half a body counts as missing.
- *Appends* are parts. All appends to the files of a run within one `together` are one PUT, since a bucket
  charges for requests. The master's file is checked when a session first appends to it and every `LOOK_S`
  then: a part overwrites nothing, and is orphaned once somebody has replaced the file. As parts add up they
  are merged into longer ones; the short ones are deleted some hundred at a time.
- *Compaction*: the sender sends an ended run's files completely; their parts are deleted after that. Orphaned
  parts after an interruption go with the folder.
- *Reading* assembles a file as of the last `stat` or `listing`; a merge or replacement since then is noticed,
  and its state is read again. `read_version` needs no check before or after it, so listing and reading take
  two requests a file: one for its time, one for its content. Several threads may read. Objects under keys
  that the library cannot name are skipped and reported.
- *Folders* exist while something is in them. One that was seen counts as existing for `LOOK_S`.

A broken upload begins anew, as the library cannot continue one of another connection; it handles outages
shorter than `RETRY_S` itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from rla_agent.replicate.backend.append_check import check_append
from rla_agent.replicate.backend.bucket_keys import (
    MAX_KEY_BYTES,
    PARTS,
    File,
    StoredSpan,
    attributes_of,
    chain,
    home_of,
    is_torn,
    key_of,
    name_of,
    new_id,
    version_of,
)
from rla_agent.replicate.backend.bucket_login import open_store
from rla_agent.replicate.backend.bucket_parts import BucketParts, Entry
from rla_agent.replicate.backend.bucket_store import WHOLE_BYTES, Bucket, RefusedError
from rla_agent.replicate.backend.errors import (
    ConflictError,
    DeniedError,
    LinkError,
    MissingError,
    SourceChangedError,
    TargetError,
    TransientError,
)
from rla_agent.replicate.backend.remote_paths import TEMP_PREFIX, check_remote, parents
from rla_agent.replicate.backend.remote_stat import RemoteStat, same
from rla_agent.replicate.backend.session import ModeOf, TargetSession
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.backend.upload import Upload

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode

    from rla_client.config.schema import RemoteSetting

LOOK_S: Final = 300.0
JUST_S: Final = 1.0  # age at which a state is read again before the file is replaced
READ_S: Final = 10.0  # age at which a state is read again before the file is read
AT_ONCE: Final = 16  # requests of a session at a time
DEAD_PARTS: Final = 200  # deleted at a time; a list has room for 1,000
MAX_HELD: Final = 10_000  # files that a session remembers
MAX_TRIES: Final = 4  # attempts to read a file that changes meanwhile
_In = TypeVar("_In")
_Out = TypeVar("_Out")
_Head: TypeAlias = "tuple[ObjectMeta, str, int]"  # an object, the id of its version, the file's time


def open_bucket(remote: RemoteSetting) -> BucketSession:
    """Open the bucket of a REMOTE_SETTING.

    Raises:
        BlockedError: the library is not installed, no bucket is named, or it is not there.
        LoginError: there are no credentials, or they are refused.
        LinkError: the store cannot be reached now.
    """
    return BucketSession(open_store(remote), remote.remote_data_root.strip("/"))


class BucketSession(TargetSession):
    """A `session.Session` on a bucket, below a prefix."""

    append_limit_bytes: Final = 8 << 20  # a part is there completely or not at all
    defers: Final = True
    moves_folders: Final = False  # it copies one object after the other
    has_versions: Final = True
    tells_modes: Final = False

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        """Check that the bucket is there. `prefix`: of all keys, without `/` at its ends."""
        self._bucket = bucket
        self._prefix = prefix
        self._files: dict[bytes, File] = {}
        self._parts = BucketParts(bucket, prefix, self._files)
        self._folders: dict[bytes, float] = {}  # folders → until when they count as existing
        self._made: set[bytes] = set()
        self._heads: dict[tuple[str, str | None, float], tuple[str, int]] = {}
        self._bundle: list[Entry] | None = None  # appends that are sent together,
        self._bundle_mtime_s = 0  # and their mtime
        self._conditions = True  # the server knows If-None-Match
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bucket")
        bucket.some(prefix, b"")

    @property
    def written_bytes(self) -> int:
        """See `TargetSession`."""
        return self._bucket.written_bytes

    @property
    def readers(self) -> int:
        """See `TargetSession`."""
        return AT_ONCE

    def left_out(self) -> Sequence[str]:
        """See `TargetSession`."""
        return [*self._bucket.left_out]

    def stat(self, path: bytes) -> RemoteStat | None:
        """See `TargetSession`."""
        if path == b"":
            return RemoteStat(0, 0, "folder")
        check_remote(path)
        if self._never_made(path):
            return None
        if time.monotonic() < self._folders.get(path, 0.0):
            return RemoteStat(0, 0, "folder")
        found = self._look(path)
        if found is not None:
            return found.state
        return RemoteStat(0, 0, "folder") if self._is_folder(path) else None

    def _never_made(self, path: bytes) -> bool:
        """Whether this is a temp name of a whole file: here it has none."""
        return path.rpartition(b"/")[2].startswith(TEMP_PREFIX) and path not in self._files

    def _is_folder(self, path: bytes) -> bool:
        there = self._bucket.some(self._key(path), path)
        if there:
            self._folders[path] = time.monotonic() + LOOK_S
        return there

    def _look(self, path: bytes) -> File | None:
        """The current state of a file.

        Parts are listed first: if the file is replaced meanwhile, the listed ones are orphaned, and the
        result is the complete new version.
        """
        parts = self._parts.below(home_of(path))
        found = self._head(self._key(path), path)
        if found is None:
            self._files.pop(path, None)
            return None
        return self._hold(path, found, parts)

    def _hold(self, path: bytes, found: _Head, parts: dict[str, list[StoredSpan]]) -> File:
        meta, version, mtime_s = found
        ours = parts.get(version, [])
        used = chain(meta["size"], ours)
        spare = [part for part in ours if part not in used]
        held = File(version, meta["e_tag"], meta["size"], mtime_s, used, spare, time.monotonic())
        old = self._files.get(path)
        if old is not None and old.id == held.id and old.state == held.state:
            held.tail = old.tail
        if len(self._files) >= MAX_HELD:
            self._files.clear()
        self._files[path] = held
        return held

    def _head(self, key: str, path: bytes) -> _Head | None:
        found = self._bucket.head(key, path)
        return None if found is None or is_torn(*found) else (found[0], *version_of(*found))

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        """See `TargetSession`. Times are in the objects' metadata, so each new object costs a request."""
        found = self._bucket.folder(self._key(path), path)
        folders = [prefix for prefix in found["common_prefixes"] if prefix.rpartition("/")[2] != PARTS]
        has_parts = len(folders) < len(found["common_prefixes"])
        if not found["common_prefixes"] and not found["objects"] and path and path not in self._made:
            raise MissingError("list", path, "not there")
        below = path + b"/" if path else b""
        entries = [
            (name, RemoteStat(0, 0, "folder"))
            for folder in folders
            if (name := self._name_or_left_out(folder)) is not None
        ]
        home = home_of(below + b"x")
        parts = self._parts.below(home) if home != path or has_parts else {}
        named = [
            (name, meta)
            for meta in found["objects"]
            if (name := self._name_or_left_out(meta["path"])) is not None
        ]
        heads = self._each(lambda one: self._known_head(one[1], below + one[0]), named)
        for (name, _), head in zip(named, heads, strict=True):
            if head is not None:
                entries.append((name, self._hold(below + name, head, parts).state))
        return entries

    def _name_or_left_out(self, key: str) -> bytes | None:
        name = name_of(key.rpartition("/")[2])
        if name is None:  # not ours: a backslash, or an invalid escape
            self._bucket.leave_out(key)
        return name

    def _known_head(self, meta: ObjectMeta, path: bytes) -> _Head | None:
        """`_head` of a listed object, from memory where the object is unchanged."""
        changed = meta["last_modified"].timestamp()
        mark = (meta["path"], meta["e_tag"], changed)
        known = self._heads.get(mark)
        if known is not None:
            return meta, *known
        found = self._head(meta["path"], path)
        if found is not None and time.time() - changed > READ_S:  # older than any object that may still come
            if len(self._heads) >= MAX_HELD:
                self._heads.clear()
            self._heads[mark] = found[1:]
        return found

    def heeds_conditions(self) -> bool:
        """Whether the store itself prevents that two writers replace each other's files; a test object."""
        return self._bucket.heeds_conditions(self._key(TEMP_PREFIX + new_id().encode()), b"")

    def make_folders(self, paths: Sequence[bytes], mode_of: ModeOf | None = None) -> None:
        """See `TargetSession`. Makes nothing; a file in the way is noticed by a write below it."""
        del mode_of
        for folder in dict.fromkeys(folder for path in paths for folder in parents(check_remote(path))):
            self._key(folder)
            self._made.add(folder)

    def forget_folders(self) -> None:
        """See `TargetSession`."""
        self._folders.clear()
        self._made.clear()
        self._files.clear()

    def set_modes(
        self, wanted: Sequence[tuple[bytes, int]], *, only_less: bool = False
    ) -> list[TargetError | None]:
        """See `TargetSession`: who may read is for the bucket's policy."""
        del only_less
        return [None] * len(wanted)

    def remove_folder(self, path: bytes) -> None:
        """See `TargetSession`. What is left of parts goes."""
        self._folders.pop(path, None)
        self._made.discard(path)
        metas = self._bucket.all(self._key(path), path)
        rest = self._parts.key_below(path) + "/"
        if not all(meta["path"].startswith(rest) for meta in metas):
            raise DeniedError("remove folder", path, "it is not empty", "")
        self._bucket.delete([meta["path"] for meta in metas], path)

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        """See `TargetSession`."""
        results = self._each(self._put_small, files)
        broken = [result for result in results if isinstance(result, LinkError)]
        if broken and len(broken) == len(results):
            raise broken[0]
        return [
            TransientError(result.operation, b"", result.why, result.hint) if result in broken else result
            for result in results
        ]

    def put_own(self, file: SmallFile) -> RemoteStat:
        """See `TargetSession`: one request."""
        version = new_id()
        attributes = attributes_of(version, file.mtime_s, len(file.data))
        etag = self._bucket.put(self._key(file.path), file.path, file.data, attributes, None)
        return self._replaced(file.path, version, etag, len(file.data), file.mtime_s, None)

    def _put_small(self, file: SmallFile) -> RemoteStat | Exception:
        try:
            folder = file.path.rpartition(b"/")[0]
            if folder and folder not in self._made and not self._is_folder(folder):
                raise MissingError("create", file.path, "the folder is not there")
            return self._put_whole(file, file.data)
        except (TargetError, SourceChangedError) as error:
            return error

    def upload(self, job: Upload) -> RemoteStat:
        """See `TargetSession`. Begins at offset 0, whatever an earlier attempt has sent."""
        if job.size <= WHOLE_BYTES:
            return self._put_whole(job, b"".join(job.pieces(WHOLE_BYTES)))
        held = self._expected(job.path, job.expect)
        key, version = self._key(job.path), new_id()
        attributes = attributes_of(version, job.mtime_s, job.size)
        etag = self._bucket.put_pieces(key, job.path, job.checked_pieces(WHOLE_BYTES), attributes)
        there = self._head(key, job.path)
        if there is None or there[0]["size"] != job.size:
            raise TransientError("send", job.path, "the bucket does not hold what was sent")
        return self._replaced(job.path, version, etag, job.size, job.mtime_s, held)

    def _put_whole(self, file: SmallFile | Upload, data: bytes) -> RemoteStat:
        """PUT a file, on condition that the name is as expected; repeated after an unknown outcome."""
        path, mtime_s = file.path, file.mtime_s
        held = self._expected(path, file.expect) if file.expect is not None or not self._conditions else None
        if not file.unchanged():
            raise SourceChangedError(path)
        version = new_id()
        attributes = attributes_of(version, mtime_s, len(data))
        mode: PutMode = "create" if held is None else {"e_tag": held.etag}
        try:
            condition = mode if self._conditions else None
            etag = self._bucket.put(self._key(path), path, data, attributes, condition)
        except RefusedError as error:
            self._conditions = error.changed  # without support for conditions, the next attempt has none
            if not error.changed:
                raise
            there = self._look(path)
            if there is not None and there.id != version:
                raise ConflictError("send", path, there.state) from error
            torn = self._torn(path) if there is None else None
            if there is not None:
                etag = there.etag
            elif torn is None:
                raise
            else:
                etag = self._bucket.put(self._key(path), path, data, attributes, torn)
        return self._replaced(path, version, etag, len(data), mtime_s, held)

    def _torn(self, path: bytes) -> PutMode | None:
        """Condition for replacing an object that a careless server made of half a PUT."""
        found = self._bucket.head(self._key(path), path)
        return {"e_tag": found[0]["e_tag"]} if found is not None and is_torn(*found) else None

    def _expected(self, path: bytes, expect: RemoteStat | None) -> File | None:
        held = self._files.get(path)
        if held is None or time.monotonic() - held.looked > JUST_S or not same(held.state, expect):
            held = self._look(path)
        if held is not None and not same(held.state, expect):
            raise ConflictError("send", path, held.state)
        return held

    def _replaced(
        self, path: bytes, version: str, etag: str | None, size: int, mtime_s: int, old: File | None
    ) -> RemoteStat:
        """Note a new version of a name, which orphans the old one's parts."""
        new = File(version, etag, size, mtime_s, [], [], time.monotonic())
        self._files[path] = new
        if old is not None and (old.parts or old.spare):
            self._parts.bury(old.id)
            if not self._parts.clear_away([*old.parts, *old.spare]):
                self._parts.sweep(home_of(path))
        return new.state

    @contextmanager
    def together(self) -> Iterator[None]:
        """See `TargetSession`: appends within are sent at the end, in one object for each run."""
        self._bundle, self._bundle_mtime_s = [], int(time.time())
        try:
            yield
            self._flush()
        finally:
            for path, *_ in self._bundle:
                self._files.pop(path, None)  # not there, or unknown
            self._bundle = None

    def append(self, path: bytes, offset: int, pieces: Iterable[bytes], expect: RemoteStat) -> RemoteStat:
        """See `TargetSession`."""
        data = b"".join(pieces)
        held = self._files.get(path)
        if held is None or time.monotonic() - held.looked > LOOK_S or not same(held.state, expect):
            held = self._look_to_append(path, offset, offset + len(data), expect)
        with self.together() if self._bundle is None else nullcontext():
            return self._add(path, held, offset, data)

    def _look_to_append(self, path: bytes, offset: int, end: int, expect: RemoteStat) -> File:
        held = self._look(path)
        if held is None:
            raise MissingError("append to", path, "not there")
        check_append(path, held.state, offset, end, expect)
        self._parts.clear_away(held.spare)
        held.spare = []
        return held

    def _add(self, path: bytes, held: File, offset: int, data: bytes) -> RemoteStat:
        bundle = self._bundle
        assert bundle is not None
        end = offset + len(data)
        if held.state.size != offset:
            held.tail = b""
        part, count = held.next_part(offset, end, self._bundle_mtime_s)
        try:
            before = self._bytes_of(path, held, part.offset, offset) if part.offset < offset else b""
        except MissingError as error:  # not the file: a part that somebody has deleted
            self._files.pop(path, None)
            raise TransientError("append to", path, error.why) from error
        names = sum(len(entry[2].entry) + 1 for entry in bundle) + len(part.entry) + 20
        home = self._parts.key_below(home_of(path))
        waiting = sum(len(entry[3]) for entry in bundle)
        full = waiting + len(before) + len(data) > WHOLE_BYTES or len(home) + names > MAX_KEY_BYTES
        if bundle and (full or any(entry[0] == path for entry in bundle)):
            self._flush()
        bundle.append((path, held, part, before + data, count))
        return RemoteStat(end, self._bundle_mtime_s)

    def _flush(self) -> None:
        bundle = self._bundle
        assert bundle is not None
        homes: dict[str, list[Entry]] = {}
        for entry in bundle:
            homes.setdefault(self._parts.key_below(home_of(entry[0])), []).append(entry)
        keys = self._each(lambda one: self._parts.put(*one, self._bundle_mtime_s), homes.items())
        for key, entries in zip(keys, homes.values(), strict=True):
            at = 0
            for path, held, part, data, count in entries:
                held.grow(replace(part, key=key, at=at), data, count)
                at += len(data)
                self._files[path] = held
                if len(held.spare) >= DEAD_PARTS:
                    self._parts.clear_away(held.spare)
                    held.spare = []
        bundle.clear()

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        """See `TargetSession`."""
        check_remote(path)
        held = self._files.get(path)
        if held is not None and time.monotonic() - held.looked > READ_S:
            held = None
        for _ in range(MAX_TRIES):
            held = held or self._look(path)
            if held is None:
                raise MissingError("read", path, "not there")
            try:
                return self._bytes_of(path, held, offset, min(offset + count, held.state.size))
            except (RefusedError, MissingError):
                held = None
        raise TransientError("read", path, "it keeps changing on the master")

    def read_version(self, path: bytes, state: RemoteStat, offset: int, count: int) -> bytes:
        """See `TargetSession`: one request, unless parts of it were merged meanwhile."""
        held = state.version
        if not isinstance(held, File):
            return self.read(path, offset, count)
        for _ in range(MAX_TRIES):
            try:
                return self._bytes_of(path, held, offset, min(offset + count, state.size))
            except (RefusedError, MissingError):
                known = self._look(path)
                if known is None or known.id != held.id or known.state.size < state.size:
                    break
                held = known
        raise TransientError("read", path, "the file changed on the master meanwhile", "run it again")

    def _bytes_of(self, path: bytes, held: File, begin: int, end: int) -> bytes:
        """Bytes of a file of this state.

        Raises:
            RefusedError, MissingError: it has changed since.
        """
        late = held.from_tail(begin, end)
        if late is not None:
            return late
        ranges = held.ranges(self._key(path), begin, end)
        if len(ranges) == 1:  # nearly always; needs no other thread
            return self._bucket.range(ranges[0][0], path, *ranges[0][1:])
        return b"".join(self._each(lambda one: self._bucket.range(one[0], path, *one[1:]), ranges))

    def truncate(self, path: bytes, size: int) -> None:
        """See `TargetSession`: written anew."""
        held = self._look(path)
        if held is None:
            raise MissingError("cut", path, "not there")
        data = self._bytes_of(path, held, 0, min(size, held.state.size))
        self._put_whole(SmallFile(path, b"", data, int(time.time()), held.state, lambda: True), data)

    def rename(self, old: bytes, new: bytes) -> None:
        """See `TargetSession`. Copies, then deletes; of a folder all that is in it, one after the other."""
        held = self._look(old)
        if held is not None:
            self._rename_file(old, new, held)
            return
        below = self._key(old) + "/"
        metas = self._bucket.all(self._key(old), old)
        if not metas:
            raise MissingError("rename", new, "not there")
        if len(home_of(old + b"/x")) < len(old):  # its parts lie above
            for name, _ in self.listing(old):
                with suppress(MissingError):
                    self.rename(old + b"/" + name, new + b"/" + name)
            return
        goal = self._key(new) + "/"

        def copy(meta: ObjectMeta) -> None:
            with suppress(MissingError):  # by an earlier attempt
                self._bucket.copy(meta["path"], goal + meta["path"].removeprefix(below), meta["size"], new)

        self._each(copy, metas)
        self._bucket.delete([meta["path"] for meta in metas], old)
        self.forget_folders()

    def _rename_file(self, old: bytes, new: bytes, held: File) -> None:
        if held.parts:
            size = held.state.size
            pieces = (
                self._bytes_of(old, held, at, min(size, at + WHOLE_BYTES))
                for at in range(0, size, WHOLE_BYTES)
            )
            attributes = attributes_of(new_id(), held.state.mtime_s, size)
            self._bucket.put_pieces(self._key(new), new, pieces, attributes)
        else:
            self._bucket.copy(self._key(old), self._key(new), held.whole, new)
        self._files.pop(new, None)
        self.remove(old)

    def remove(self, path: bytes) -> None:
        """See `TargetSession`."""
        if self._never_made(check_remote(path)):
            return
        held = self._look(path)
        if held is not None:
            self._bucket.delete([self._key(path)], path)
            self._parts.bury(held.id)
            self._parts.clear_away([*held.parts, *held.spare])
        self._files.pop(path, None)
        self._folders.clear()

    def _each(self, do: Callable[[_In], _Out], things: Iterable[_In]) -> list[_Out]:
        """Results of `do` for each thing, several at a time.

        Raises:
            LinkError: the session was closed meanwhile, by another thread.
        """
        try:
            return list(self._pool.map(do, things))
        except (RuntimeError, CancelledError) as error:
            raise LinkError("send", b"", "stopping") from error

    def close(self) -> None:
        """See `TargetSession`."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _key(self, path: bytes) -> str:
        return key_of(path, self._prefix)
