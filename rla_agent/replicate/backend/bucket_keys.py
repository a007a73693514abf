r"""Names in a bucket: which key a file has, and where what was appended to it lies. Pure.

*Keys.* A file's key is the prefix and its path, as it is but for what a key or its tools cannot carry: bytes
that are not UTF-8, what does not print, `!` and `\` become `!XX` (hexadecimal), so every name can be read
back. A bucket has no folders: there is a folder where a key begins with its name.

*Parts.* An object cannot be appended to. What was appended to the files of a run lies in objects of its own,
in `.rla-parts/` of the run's folder (of a file outside of runs: of its folder), one object for all that
several files got at a time. The name tells what is in it, so that a list of the folder is the index:

    <id>-<offset>-<length>-<level>[+<id>-<offset>-<length>-<level> …].<mtime>      all hexadecimal

The entries' bytes follow each other in the object; one whose size is not the sum of their lengths is not
there. `id` is that of the object that the file began as (its metadata): when a file is replaced as a whole,
the new object has another id, and the old one's parts belong to nothing from that moment on. A file is its
first object and, from its end on, at each point the part that reaches furthest (`chain`); so a part that
was sent twice, or was merged with others into a longer one (`level` + 1), counts once.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rla_agent.replicate.backend.target import DeniedError, check_remote, parent
from rla_client.contract.layout import RunIndex

PARTS: Final = ".rla-parts"
MAX_KEY_BYTES: Final = 1024  # of S3, GCS and Azure
RADIX: Final = 16  # so many parts of a level become one of the next
TOP_LEVEL: Final = 4  # 65,536 appends
_PARTS_ESCAPED: Final = "!2Erla-parts"  # a file of the user's that has this name
_ENTRY: Final = re.compile(r"([0-9a-f]{20})-([0-9a-f]{1,16})-([0-9a-f]{1,8})-([0-9a-f])")
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
    """The name that a key's component stands for; None for one that none of our keys has."""
    raw = part.encode("utf-8", "surrogatepass")
    name = re.sub(rb"!([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), raw)
    return name if name and b"/" not in name and b"\0" not in name and _escaped(name) == part else None


def home_of(path: bytes) -> bytes:
    """The folder whose `.rla-parts` holds what was appended to a file: its run's, else its own."""
    parts = path.split(b"/")
    for end in range(_INDEX_PARTS, len(parts)):
        text = b"/".join(parts[end - _INDEX_PARTS : end]).decode("utf-8", "surrogateescape")
        if RunIndex.parse(text) is not None:
            return b"/".join(parts[:end])
    return parent(path)


def new_id() -> str:
    """Name of a version of a file, never given twice."""
    return f"{time.time_ns():016x}{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class Part:
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
        """It in the object's name."""
        return f"{self.id}-{self.offset:x}-{self.end - self.offset:x}-{self.level:x}"


def part_name(entries: Sequence[tuple[str, int, int, int]], mtime_s: int) -> str:
    """Name of an object with these parts: (id, offset, end, level) of each."""
    parts = [Part("", *entry, 0, mtime_s).entry for entry in entries]
    return "+".join(parts) + f".{mtime_s:x}"


def parts_in(key: str, size: int) -> list[Part]:
    """What an object of `.rla-parts/` holds; nothing where it is not whole or none of ours."""
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
        found.append(Part(key, match[1], offset, offset + length, level, at, int(mtime, 16)))
        at += length
    return found if at == size else []


def chain(size: int, parts: Iterable[Part]) -> list[Part]:
    """The parts that a file consists of behind its first object of `size` bytes, in their order."""
    waiting = sorted(parts, key=lambda part: (part.offset, part.end))
    found: list[Part] = []
    end, number = size, 0
    best: Part | None = None
    while True:
        while number < len(waiting) and waiting[number].offset <= end:
            if best is None or waiting[number].end > best.end:
                best = waiting[number]
            number += 1
        if best is None or best.end <= end:
            return found
        found.append(best)
        end = best.end


def merged(parts: Sequence[Part], longest: int) -> int:
    """How many of the last parts a new one should replace, so that a file never has many.

    As in a number that is counted up: the last `RADIX` - 1 of a level and the new one make one of the next.

    Args:
        parts: of the file, in order.
        longest: bytes that are not worth it any more.
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


def replaces(parts: Sequence[Part]) -> int:
    """Level of a part that takes the place of these; 0 for none."""
    return min(TOP_LEVEL, 1 + max(part.level for part in parts)) if parts else 0
