"""Frames that no client writes: valid ones with a value changed, their checksum made right again.

Most garbage is stopped by the checksum. What is worth a test is behind it: a peer of this user whose
frames are whole and whose contents are not what a client writes.
"""

# ruff: noqa: PLR0911
from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import msgpack

from rla_client.contract.errors import UnknownVersionError
from rla_client.contract.spool.protocol import FrameKind, encode_frame, frame_at

SHARE_BROKEN = 0.2  # of bytes flipped without a new checksum
HOSTILE = (
    "..", "/etc/passwd", "a/../../b", "\0", "\n", "x" * 4096, "\u202e", "s3:x", "=cmd", "-rf", "", ".", "a/b",
    "con", "log", "csv", "progress.csv", "tb", "run.json", "../run.json", "/", "//", "a//b", "\udcff",
)  # fmt: skip
VALID: tuple[tuple[int, Any], ...] = (
    (FrameKind.ROW, [7, 1.5, {"seq": 7, "loss": 0.25, "note": "text"}]),
    (FrameKind.ROW, [7, 1.5, {"seq": 7}, {"seq": ["csv"], "loss": ["tensorboard"]}]),
    (FrameKind.TEXT, [3, "a line\n"]),
    (FrameKind.EVENT, [b"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x01"]),
    (FrameKind.FILE, ["log", "note.txt", b"content"]),
    (FrameKind.MARK, ["lost", {"rows": 3, "others": 0, "time": 1.5}]),
    (FrameKind.MARK, ["replicate_now", {}]),
    (FrameKind.MARK, ["exit", {"code": 1, "signal": None}]),
    (FrameKind.JOB, ["figure", {"blob": "b1", "name": "fig", "format": "png", "step": 3}]),
    (FrameKind.JOB, ["video", {"blob": "b1", "name": "fig", "fps": 20, "shape": [3, 4, 4, 3]}]),
    (FrameKind.JOB, ["code", {"blob": "b1"}]),
    (FrameKind.JOB, ["snapshot", {"kind": "checkpoint", "names": ["itr_1"], "blob": "b1"}]),
    (FrameKind.JOB, ["checkpoint", {
        "name": "model", "number": 3, "shm": "rla-x", "blob": None, "final_name": "model-3.pt", "keep": 5,
        "skeleton": b"\x80\x04N.", "storages": [["float", "cpu", 0, 16]],
    }]),
    (FrameKind.OPEN, {"run": "other", "epoch": 9, "root": "/", "folders": {"log": ".."}, "lost": 4}),
)  # fmt: skip


def frames(chance: random.Random, count: int) -> Iterator[bytes]:
    """`count` mutated frames; none says that the run is closed."""
    for _ in range(count):
        kind, value = chance.choice(VALID)
        if chance.random() < 0.05:
            kind = chance.choice([0, 1, 2, 3, 4, 5, 7, 8, 9, 200])
        payload = packed(mutated(value, chance))
        if chance.random() < 0.1:
            payload = flipped(payload, chance)
        frame = encode_frame(kind, payload)
        if chance.random() < SHARE_BROKEN:
            broken = flipped(frame, chance)
            frame = frame if of_a_later_version(broken) else broken  # such a stream waits for a newer agent
        yield frame


def of_a_later_version(frame: bytes) -> bool:
    """Whether two changed bytes, one of them the version's, outwitted the checksum of a tiny frame."""
    try:
        frame_at(frame, 0)
    except UnknownVersionError:
        return True
    return False


def flipped(data: bytes, chance: random.Random) -> bytes:
    """One to three bytes changed."""
    broken = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        broken[chance.randrange(len(broken))] = chance.randrange(256)
    return bytes(broken)


def mutated(value: Any, chance: random.Random) -> Any:
    """The same shape with one part replaced, removed, doubled, or nothing but a strange value."""
    if chance.random() < 0.15 or not isinstance(value, (list, dict)) or not value:
        return strange(chance)
    if isinstance(value, list):
        index = chance.randrange(len(value))
        how = chance.random()
        if how < 0.1:
            return value[:index] + value[index + 1 :]
        if how < 0.2:
            return [*value, strange(chance)]
        return [*value[:index], mutated(value[index], chance), *value[index + 1 :]]
    key = chance.choice(list(value))
    how = chance.random()
    if how < 0.1:
        return {name: part for name, part in value.items() if name != key}
    if how < 0.3:
        return {**value, hashable(strange(chance)): strange(chance)}
    return {**value, key: mutated(value[key], chance)}


def hashable(value: Any) -> Any:
    return value if not isinstance(value, (list, dict)) else str(value)[:100]


def strange(chance: random.Random) -> Any:
    """Anything that msgpack can carry."""
    pick = chance.randrange(14)
    if pick < 5:
        return chance.choice(HOSTILE)
    if pick == 5:
        return chance.choice([0, -1, 1, 1 << 31, 1 << 62, -(1 << 63), (1 << 64) - 1])
    if pick == 6:
        return chance.choice([float("nan"), float("inf"), -float("inf"), 1e308, -0.0])
    if pick == 7:
        return chance.choice([None, True, False])
    if pick == 8:
        return chance.randbytes(chance.randrange(40))
    if pick == 9:
        return nested(chance.choice([3, 200, 490, 600, 1000]))
    if pick == 10:
        return {strange_key(chance): chance.random() for _ in range(chance.randrange(5))}
    if pick == 11:
        return [chance.choice(HOSTILE) for _ in range(chance.randrange(4))]
    if pick == 12:
        return msgpack.ExtType(chance.randrange(128), chance.choice([b"", b"12", b"9" * 400, b"x"]))
    return struct.pack("<d", chance.random()).hex()


def strange_key(chance: random.Random) -> Any:
    return chance.choice([*HOSTILE, 1, 1.5, None, b"bytes", True])


class Raw:
    """Bytes that are msgpack already: nested deeper than the packer goes."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def nested(depth: int) -> Raw:
    """A list in a list in a list …"""
    return Raw(b"\x91" * depth + b"\x01")


def packed(value: Any) -> bytes:
    """msgpack of a value that may hold Raw parts."""
    if isinstance(value, Raw):
        return value.data
    if isinstance(value, list):
        begun: bytes = msgpack.Packer().pack_array_header(len(value))
        return begun + b"".join(map(packed, value))
    if isinstance(value, dict):
        begun = msgpack.Packer().pack_map_header(len(value))
        return begun + b"".join(packed(key) + packed(part) for key, part in value.items())
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return (bytes([0xA0 | len(raw)]) if len(raw) < 32 else b"\xdb" + len(raw).to_bytes(4, "big")) + raw
    data: bytes = msgpack.packb(value)
    return data
