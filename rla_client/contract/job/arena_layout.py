"""The layout of an arena, a file of shared memory.

An arena is `/dev/shm/rla-arena-<uid>-<spool key>-<stream key>-<nonce>`, which the client keeps mapped and
uses again and again, because a warm copy is as fast as memory::

    offset  size  field
    0       32    ARENA_HEADER: magic, version, slots, slot_bytes, length of the stream folder
    64      n     the stream's folder in UTF-8, so that a sweeper knows whose it was
    3072    16*n  SLOT_HEADER of each slot: state, number
    4096    …     the slots, slot_bytes each (a multiple of 4096)

The client writes BUSY and the job's number, the bytes, then the frame that names the slot; the agent writes
FREE once the file is durable. A slot with another number has the bytes of another job.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.text.number_parsing import INT64

ALIGNMENT = 64  # what torch aligns its records to, so that a loaded map is usable as it is
PAGE = 4096
ARENA_FOLDER = "/dev/shm"
ARENA_PREFIX = "rla-arena-"
ARENA_MAGIC = b"RLAARENA"
ARENA_VERSION = 1
ARENA_HEADER = struct.Struct("<8sIIQQ")
ARENA_OWNER_OFFSET = 64
ARENA_OWNER_MAX = 3072 - ARENA_OWNER_OFFSET
SLOT_HEADERS_OFFSET = 3072
SLOT_HEADER = struct.Struct("<QQ")
ARENA_DATA_OFFSET = PAGE
MAX_SLOTS = 8
SLOT_FREE = 0
SLOT_BUSY = 1
_ARENA_NAME = re.compile(rf"^{ARENA_PREFIX}(\d{{1,10}})-([0-9a-f]{{12}})-([0-9a-f]{{16}})-([0-9a-f]{{8}})$")


@dataclass(frozen=True, slots=True)
class ArenaName:
    """The parts of an arena's file name."""

    uid: int
    spool_key: str
    stream_key: str
    nonce: str

    @classmethod
    def parse(cls, text: str) -> ArenaName | None:
        """Read a file name; None when it is not one of ours."""
        match = _ARENA_NAME.match(text)
        if match is None:
            return None
        return cls(int(match[1]), match[2], match[3], match[4])

    @property
    def text(self) -> str:
        """The file name, without folder."""
        return f"{ARENA_PREFIX}{self.uid}-{self.spool_key}-{self.stream_key}-{self.nonce}"


def spool_key(spool: Path) -> str:
    """Twelve hex digits that stand for a spool folder in arena names."""
    return hashlib.sha256(str(spool).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def stream_key(stream: str) -> str:
    """Sixteen hex digits that stand for a stream's folder name in arena names."""
    return hashlib.sha256(stream.encode("utf-8", "surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SlotRef:
    """Reference to the bytes of job `number` in a slot of an arena.

    Raises:
        RemoteProtocolError: this cannot be a slot.
    """

    arena: str
    slot: int
    number: int

    def __post_init__(self) -> None:
        if not isinstance(self.arena, str) or ArenaName.parse(self.arena) is None:
            raise RemoteProtocolError(f"{self.arena!r:.100} is not the name of an arena")
        if type(self.slot) is not int or not 0 <= self.slot < MAX_SLOTS:
            raise RemoteProtocolError(f"an arena has no slot {self.slot!r:.50}")
        if type(self.number) is not int or not 0 <= self.number < INT64:
            raise RemoteProtocolError(f"no job has the number {self.number!r:.50}")


def align(offset: int, to: int = ALIGNMENT) -> int:
    """The next multiple of `to` at or after `offset`."""
    return -(-offset // to) * to


def slot_header_offset(slot: int) -> int:
    """Offset of a slot's header in the arena."""
    return SLOT_HEADERS_OFFSET + slot * SLOT_HEADER.size
