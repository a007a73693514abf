"""Part objects of a bucket, which store appends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from rla_agent.replicate.backend.bucket_keys import (
    ID,
    PARTS,
    File,
    StoredSpan,
    entries_in,
    key_of,
    part_name,
    parts_in,
)
from rla_agent.replicate.backend.bucket_store import Bucket
from rla_agent.replicate.backend.errors import TargetError

SWEPT_FILES: Final = 300  # of a run with more, orphaned parts stay until the folder goes
Entry: TypeAlias = "tuple[bytes, File, StoredSpan, bytes, int]"  # path, file, new part, its bytes, merged


class BucketParts:
    """Finds, writes and deletes parts below a prefix.

    Args:
        bucket: that they are in.
        prefix: of all keys, without `/` at its ends.
        files: the session's cache; read here, by several threads.
    """

    def __init__(self, bucket: Bucket, prefix: str, files: Mapping[bytes, File]) -> None:
        self._bucket, self._prefix, self._files = bucket, prefix, files
        self._dead: set[str] = set()  # ids of versions that were replaced

    def bury(self, version: str) -> None:
        """Note that a version was replaced, which orphans its parts."""
        self._dead.add(version)

    def below(self, home: bytes) -> dict[str, list[StoredSpan]]:
        """Parts of the files of a folder, by the version that they belong to."""
        found: dict[str, list[StoredSpan]] = {}
        for meta in self._bucket.all(self.key_below(home), home):
            for part in parts_in(meta["path"], meta["size"]):
                found.setdefault(part.id, []).append(part)
        return found

    def put(self, home: str, entries: list[Entry], mtime_s: int) -> str:
        """PUT a part object; returns its key."""
        key = f"{home}/{part_name([part for _, _, part, _, _ in entries], mtime_s)}"
        self._bucket.put(key, entries[0][0], b"".join(data for *_, data, _ in entries), None, None)
        return key

    def clear_away(self, parts: Sequence[StoredSpan]) -> bool:
        """Delete the objects of parts that nobody needs; False: some objects have parts that are needed."""
        gone = {part.entry for part in parts}
        gone |= {part.entry for held in list(self._files.values()) for part in held.spare}
        held = {part.key for part in parts}
        keys = [
            key
            for key in held
            if all(entry in gone or entry.partition("-")[0] in self._dead for entry in entries_in(key))
        ]
        with suppress(TargetError):  # orphaned: the next ones
            self._bucket.delete(keys, b"")
        return len(keys) == len(held)

    def sweep(self, home: bytes) -> None:
        """Delete orphaned parts of a run's files, whoever wrote them.

        The parts are listed first: a version in that list which no file has afterwards never comes back.
        """
        with suppress(TargetError):
            metas = self._bucket.all(key_of(home, self._prefix), home)
            below = self.key_below(home) + "/"
            files = [meta["path"] for meta in metas if not meta["path"].startswith(below)]
            if len(files) > SWEPT_FILES:
                return
            heads = [self._bucket.head(key, home) for key in files]  # called in the pool
            used = {head[1].get(ID) for head in heads if head is not None}
            keys = []
            for meta in metas:
                versions = {entry.partition("-")[0] for entry in entries_in(meta["path"])}
                if meta["path"].startswith(below) and not versions & used:
                    keys.append(meta["path"])
            self._bucket.delete(keys, home)

    def key_below(self, home: bytes) -> str:
        """The key below which the parts of a folder's files are."""
        return f"{key_of(home, self._prefix)}/{PARTS}".lstrip("/")
