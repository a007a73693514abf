r"""Layout of files in a bucket. Pure.

*Keys.* A file's key is the prefix and its path, except for bytes that keys or their tools cannot carry: those
that are not UTF-8 or not printable, `!` and `\` become `!XX` (hexadecimal), so every name can be decoded. A
bucket has no folders: there is a folder where a key begins with its name.

*Parts.* An object cannot be appended to. Appends to the files of a run are objects of their own, in
`.rla-parts/` of the run's folder (of a file outside of runs: of its folder), one object for the appends to
several files at a time. The name describes the content, so that a list of the folder is the index:

    <id>-<offset>-<length>-<level>[+<id>-<offset>-<length>-<level> …].<mtime>      all hexadecimal

The entries' bytes follow each other in the object; one whose size is not the sum of their lengths counts as
missing. `id` is that of the file's first object (in its metadata): a file that is replaced gets an object
with another id, which orphans the old one's parts. A file is its first object and, from its end on, at each
point the part that reaches furthest (`chain`); so a part that was sent twice, or was merged with others into
a longer one (`level` + 1), counts once. Id, time and size of a file are in its object's metadata, too.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.errors import DeniedError
from rla_agent.replicate.backend.remote_paths import check_remote, parent
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_client.contract.run_index import RunIndex

if TYPE_CHECKING:
    from obstore import Attributes, ObjectMeta

PARTS: Final = ".rla-parts"
MAX_KEY_BYTES: Final = 1024  # of S3, GCS and Azure
RADIX: Final = 16  # so many parts of a level become one of the next
TOP_LEVEL: Final = 4  # 65,536 appends
_PARTS_ESCAPED: Final = "!2Erla-parts"  # replaces a user's file of this name
_ENTRY: Final = re.compile(r"([0-9a-f]{20})-([0-9a-f]{1,16})-([0-9a-f]{1,8})-([0-9a-f])")
MERGED_BYTES: Final = 8 << 20  # the longest part that is made by merging
TAIL_BYTES: Final = 256 << 10  # of a file's last appends, kept for a merge without reading them back
ID: Final = "rlaid"  # letters alone, which every store accepts in metadata
_MTIME: Final = "rlamtime"
_SIZE: Final = "rlasize"
_INDEX_PARTS: Final = 4  # YYYY, MM, DD, name


def key_of(path: bytes, prefix: str = "") -> str:
    """The key of a relative path.

    Raises:
        DeniedError: the name would leave the root, or is too long.
    """
    check_remote(path)
    text = "/".join(_escaped(part) for part in path.split(b"/")) if path else ""
    key = f"{prefix}/{text}" if prefix and text else prefix or text
    if len(key.encode()) > MAX_KEY_BYTES:
        raise DeniedError("name", path, f"a key has at most {MAX_KEY_BYTES} bytes", "rename the file")
    return key


def _escaped(part: bytes) -> str:
    text = part.decode("utf-8", "surrogateescape")
    if text == PARTS:
        return _PARTS_ESCAPED
    return "".join(
        char if char.isprintable() and char not in "!\\" and not "\ud800" <= char <= "\udfff" else _hex(char)
        for char in text
    )


def _hex(char: str) -> str:
    return "".join(f"!{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))


def name_of(part: str) -> bytes | None:
    """Name of a key's component; None for one that our keys cannot have."""
    raw = part.encode("utf-8", "surrogatepass")
    name = re.sub(rb"!([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), raw)
    return name if name and b"/" not in name and b"\0" not in name and _escaped(name) == part else None


def home_of(path: bytes) -> bytes:
    """The folder whose `.rla-parts` has a file's appends: its run's, else its own."""
    parts = path.split(b"/")
    for end in range(_INDEX_PARTS, len(parts)):
        text = b"/".join(parts[end - _INDEX_PARTS : end]).decode("utf-8", "surrogateescape")
        if RunIndex.parse(text) is not None:
            return b"/".join(parts[:end])
    return parent(path)


def new_id() -> str:
    """A new, unique id of a file's version."""
    return f"{time.time_ns():016x}{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class StoredSpan:
    """Bytes `offset` to `end` of a file, which lie in the object `key` from `at` on."""

    key: str
    id: str
    offset: int
    end: int
    level: int
    at: int
    mtime_s: int

    @property
    def entry(self) -> str:
        """Its entry in the object's name."""
        return f"{self.id}-{self.offset:x}-{self.end - self.offset:x}-{self.level:x}"


def part_name(parts: Sequence[StoredSpan], mtime_s: int) -> str:
    """Name of an object with these parts."""
    return "+".join(part.entry for part in parts) + f".{mtime_s:x}"


def parts_in(key: str, size: int) -> list[StoredSpan]:
    """The parts in an object of `.rla-parts/`; none where it is incomplete or not ours."""
    entries, dot, mtime = key.rpartition("/")[2].partition(".")
    if not dot or not re.fullmatch("[0-9a-f]{1,16}", mtime):
        return []
    found = []
    at = 0
    for text in entries.split("+"):
        match = _ENTRY.fullmatch(text)
        if match is None:
            return []
        offset, length, level = (int(match[group], 16) for group in (2, 3, 4))
        found.append(StoredSpan(key, match[1], offset, offset + length, level, at, int(mtime, 16)))
        at += length
    return found if at == size else []


def chain(size: int, parts: Iterable[StoredSpan]) -> list[StoredSpan]:
    """The parts of a file behind its first object of `size` bytes, in order."""
    waiting = sorted(parts, key=lambda part: (part.offset, part.end))
    found: list[StoredSpan] = []
    end, number = size, 0
    best: StoredSpan | None = None
    while True:
        while number < len(waiting) and waiting[number].offset <= end:
            if best is None or waiting[number].end > best.end:
                best = waiting[number]
            number += 1
        if best is None or best.end <= end:
            return found
        found.append(best)
        end = best.end


def merged(parts: Sequence[StoredSpan], longest: int) -> int:
    """Number of the last parts that a new one should replace, so that a file never has many.

    As in counting: the last `RADIX` - 1 parts of a level and the new one make one of the next level. Parts of
    more than `longest` bytes are not merged.
    """
    count = 0
    for level in range(TOP_LEVEL):
        run = 0
        while run < len(parts) - count and parts[-1 - count - run].level == level:
            run += 1
        if run < RADIX - 1 or parts[-1].end - parts[-count - run].offset > longest:
            return count
        count += run
    return count


def replaces(parts: Sequence[StoredSpan]) -> int:
    """Level of a part that replaces these; 0 for none."""
    return min(TOP_LEVEL, 1 + max(part.level for part in parts)) if parts else 0


def entries_in(key: str) -> list[str]:
    """The entries in the name of an object of `.rla-parts/`; each begins with the id of a version."""
    return key.rpartition("/")[2].partition(".")[0].split("+")


@dataclass
class File:
    """State of a file at its last check. `spare`: parts that longer ones have replaced."""

    id: str
    etag: str | None
    whole: int
    whole_mtime_s: int
    parts: list[StoredSpan]
    spare: list[StoredSpan]
    looked: float
    tail: bytes = b""  # the last bytes that were appended in this session

    @property
    def state(self) -> RemoteStat:
        """Its state as `TargetSession.stat` returns it."""
        if not self.parts:
            return RemoteStat(self.whole, self.whole_mtime_s, version=self)
        return RemoteStat(self.parts[-1].end, self.parts[-1].mtime_s, version=self)

    def next_part(self, offset: int, end: int, mtime_s: int) -> tuple[StoredSpan, int]:
        """The part for appended bytes, with the number of the last ones that it replaces."""
        count = merged(self.parts, MERGED_BYTES)
        replaced = self.parts[len(self.parts) - count :]
        begin = replaced[0].offset if replaced else offset
        return StoredSpan("", self.id, begin, end, replaces(replaced), 0, mtime_s), count

    def grow(self, part: StoredSpan, data: bytes, count: int) -> None:
        """Replace the last `count` parts with a new one of the bytes `data`."""
        replaced = self.parts[len(self.parts) - count :]
        self.spare += replaced
        self.parts[len(self.parts) - count :] = [part]
        self.tail = (data if replaced else self.tail + data)[-TAIL_BYTES:]

    def from_tail(self, begin: int, end: int) -> bytes | None:
        """Recently appended bytes; None where older ones are among them."""
        start = begin - (self.state.size - len(self.tail))
        if not self.tail or start < 0 or end > self.state.size:
            return None
        return self.tail[start : start + end - begin]

    def ranges(self, key: str, begin: int, end: int) -> list[tuple[str, int, int, str | None]]:
        """Ranges of its bytes: object, from, to, and etag where it may be replaced. `key`: of the file."""
        found: list[tuple[str, int, int, str | None]] = []
        if begin < min(end, self.whole):
            found.append((key, begin, min(end, self.whole), self.etag))
        at = max(begin, self.whole)
        for part in self.parts:
            if part.offset <= at < min(part.end, end):
                upto = min(part.end, end)
                found.append((part.key, part.at + at - part.offset, part.at + upto - part.offset, None))
                at = upto
        return found


def attributes_of(version: str, mtime_s: int, size: int) -> Attributes:
    """The metadata of a file's object."""
    return {ID: version, _MTIME: str(mtime_s), _SIZE: str(size)}


def is_torn(meta: ObjectMeta, attributes: Attributes) -> bool:
    """Whether an object is shorter than the sent bytes, so that it counts as missing."""
    return attributes.get(_SIZE, str(meta["size"])) != str(meta["size"])


def version_of(meta: ObjectMeta, attributes: Attributes) -> tuple[str, int]:
    """Id and time of a file's object; for a foreign one, values that identify it."""
    changed = int(meta["last_modified"].timestamp())
    mtime = attributes.get(_MTIME, "")
    version = attributes.get(ID) or f"{meta['e_tag']} {changed}"
    return version, int(mtime) if re.fullmatch(r"-?\d{1,12}", mtime) else changed
