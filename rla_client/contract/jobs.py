"""Jobs, as client and agent agree on them: media, code, checkpoints, snapshots of a training.

*Shared memory*. An arena is a file `/dev/shm/rla-arena-<uid>-<spool key>-<stream key>-<nonce>` that the
client keeps mapped and uses again and again, because a warm copy is as fast as memory::

    offset  size  field
    0       32    ARENA_HEADER: magic, version, slots, slot_bytes, length of the stream folder
    64      n     the stream's folder in UTF-8, so that a sweeper knows whose it was
    3072    16*n  SLOT_HEADER of each slot: state, number
    4096    …     the slots, slot_bytes each (a multiple of 4096)

The client writes BUSY and the job's number, then the bytes, then the frame that names the slot; the agent
writes FREE once the file is durable. A slot whose number is another one than the job's holds somebody
else's bytes and is never written under this name.

*Media and code*. The bytes of a figure, image or video lie in a blob or a slot. One blob holds the code of
a run::

    offset  size  field
    0       8     magic     BLOB_MAGIC
    8       …     contents, one after the other
    …       n     index     msgpack: [[relative path, bytes], …] in the order of the contents
    end-12  4     n         little endian
    end-8   8     magic     BLOB_MAGIC

*Checkpoints*. One travels as one JOB frame and its bytes: the skeleton (the pickle that becomes `data.pkl`),
then the storages in the order of their keys, each at the next multiple of `ALIGNMENT`. The bytes lie in
a slot, or in a *blob*: a file in the stream's blob folder, which ends with the job's token. If the job names
no sizes, the blob is a finished `.pt` (earlier clients wrote those).

Either way the final file carries a stamp (`STAMP_RECORD`, JSON inside the zip) that names the job
it came from. So a replay sees that its work is done, and retention counts only our own files.

*Snapshots*. A file is one pickle, and behind it, where `pickle.load` does not look, a footer: a JSON
object, its length in bytes (4, little endian) and the magic `rlaS`. The footer says what has to be known
without unpickling: `itr`, `rows`, and `token` and `order` of the save. The later of two saves of
one name is the one with the higher order; nobody replaces it by an earlier one.

The job names a slot or a blob that holds the file byte by byte, laid out as a checkpoint's. So the agent
copies, and never unpickles.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeGuard

from rla_client.contract.errors import ArgumentError, RemoteProtocolError, UnsafeNameError
from rla_client.contract.layout import CHECKPOINT, LOG, component_problem
from rla_client.contract.parsing import INT64

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

JOB_CODE = "code"
BLOB_MAGIC = b"RLACODE1"
BLOB_TAIL = struct.Struct("<I8s")
MAX_FILE_BYTES = 8 << 20  # a source file is never this large; data and weights are
MAX_TOTAL_BYTES = 100 << 20  # of one run
MAX_FILES = 20_000  # the walk of a tree this size takes about a second
MAX_INDEX_BYTES = 16 << 20
JOB_FIGURE = "figure"
JOB_IMAGE = "image"
JOB_VIDEO = "video"
FORMATS = {
    JOB_FIGURE: frozenset({
        "png", "pdf", "svg", "svgz", "jpg", "jpeg", "tif", "tiff", "webp", "gif", "eps", "ps", "pgf", "raw",
        "rgba",
    }),
    JOB_IMAGE: frozenset({"png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "gif"}),
    JOB_VIDEO: frozenset({"mp4", "gif"}),
}  # fmt: skip
MAX_FPS = 1000.0
# what is larger would hold up what is drawn behind it, or the machine's memory; said where it is recorded
MAX_SIDE = 16384  # pixels of an image or frame
MAX_FRAMES = 1_000_000
MAX_RAW_BYTES = 4 << 30  # of an image or video before it is encoded
MAX_FIGURE_PIXELS = 100_000_000  # some seconds of drawing
VECTOR_FORMATS = frozenset({"pdf", "svg", "svgz", "eps", "ps", "pgf"})  # their pixels cost nothing
CHECKPOINT_KIND = "checkpoint"
CHECKPOINT_VERSION = 1
MAX_STORAGES = 500_000  # half of what a frame's decoder lets through
MAX_SKELETON_BYTES = 1 << 31  # torch reads the record in one piece
MAX_METRICS = 64
MAX_TEXT = 4096
STAMP_RECORD = ".data/rla.json"
STAMP_MAX_BYTES = 1 << 16
_TOKEN = re.compile(r"[0-9a-f]{16}")

SNAPSHOT_KIND = "snapshot"
SNAPSHOT_VERSION = 1
MAX_NAMES = 2  # gap_and_last writes itr_N.pkl and params.pkl
FOOTER = struct.Struct("<I4s")
FOOTER_MAGIC = b"rlaS"
FOOTER_MAX_BYTES = 1 << 20  # numbers and short texts only; anything longer is not a footer of ours
_NAME = re.compile(r"params\.pkl|itr_[0-9]{1,19}\.pkl")

Mode = Literal["min", "max"]


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
    """Names the bytes of job `number` in a slot of an arena.

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
    """Where a slot's header lies in the arena."""
    return SLOT_HEADERS_OFFSET + slot * SLOT_HEADER.size


@dataclass(frozen=True, slots=True)
class Retention:
    """Which checkpoints of one name stay.

    Attributes:
        max_to_keep: so many of the newest; None keeps all.
        keep_every: besides, those whose time-step is a multiple of this.
        keep_best: besides, the `k` with the best value: (metric, "min" or "max", k).
    """

    max_to_keep: int | None = None
    keep_every: int | None = None
    keep_best: tuple[str, Mode, int] | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a finished file says about itself.

    Attributes:
        token: names the job.
        order: nanoseconds since 1970 at the call; the later of two saves is the newer one.
        run: the run that saved it. Files of other runs (copied by a fork) are left alone.
    """

    token: str
    order: int
    run: str
    name: str
    time_step: int
    metrics: Mapping[str, float]

    def encode(self) -> bytes:
        """JSON, as it stands in the file."""
        metrics = {key: repr(value) for key, value in self.metrics.items()}
        fields = {"format": CHECKPOINT_VERSION, **self.to_fields(), "metrics": metrics}
        return json.dumps(fields, sort_keys=True).encode("ascii")

    def to_fields(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def decode(cls, data: bytes) -> Stamp:
        """Read it back.

        Raises:
            RemoteProtocolError: these bytes are no stamp.
        """
        try:
            fields = json.loads(data)
            metrics = {str(key): float(value) for key, value in fields["metrics"].items()}
            return cls.from_fields(fields, metrics)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RemoteProtocolError(f"not the stamp of a checkpoint: {error}") from error

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], metrics: Mapping[str, float]) -> Stamp:
        """Check all but the metrics.

        Raises:
            RemoteProtocolError: something is missing, or not what `to_fields` makes.
        """
        return cls(
            token=_token(fields.get("token")),
            order=_whole(fields.get("order"), "order"),
            run=_text(fields.get("run"), "run"),
            name=_text(fields.get("name"), "name"),
            time_step=_whole(fields.get("time_step"), "time_step"),
            metrics=metrics,
        )


@dataclass(frozen=True, slots=True)
class ArenaSource(SlotRef):
    """Bytes in a slot: `skeleton_bytes` of pickle, then storages of `sizes` bytes."""

    skeleton_bytes: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlobSource:
    """A file of `size` bytes in the stream's blob folder, which is the final file as it stands."""

    blob: str
    size: int


@dataclass(frozen=True, slots=True)
class RawBlobSource(BlobSource):
    """A blob that holds what a slot would (as in `ArenaSource`), then the job's token."""

    skeleton_bytes: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """One checkpoint on its way to the data root."""

    stamp: Stamp
    source: ArenaSource | BlobSource
    retention: Retention
    byteorder: Literal["little", "big"] = "little"

    @property
    def final_name(self) -> str:
        """File name below the item's checkpoint folder."""
        return final_name(self.stamp.name, self.stamp.time_step)

    def encode(self) -> dict[str, Any]:
        """Plain data for a JOB frame."""
        keep = self.retention
        fields: dict[str, Any] = {
            "v": CHECKPOINT_VERSION,
            **self.stamp.to_fields(),
            "byteorder": self.byteorder,
            "max_to_keep": keep.max_to_keep,
            "keep_every": keep.keep_every,
            "keep_best": None if keep.keep_best is None else list(keep.keep_best),
        }
        source = self.source
        fields |= _source_fields(source)
        if isinstance(source, ArenaSource | RawBlobSource):
            fields |= {"skeleton_bytes": source.skeleton_bytes, "sizes": list(source.sizes)}
        return fields

    @classmethod
    def decode(cls, fields: object) -> CheckpointJob:
        """Check and read what a frame holds.

        Raises:
            RemoteProtocolError: not what `encode` makes, or a name that is not a file name.
        """
        if not isinstance(fields, dict) or fields.get("v") != CHECKPOINT_VERSION:
            raise RemoteProtocolError("not a checkpoint job of this version")
        stamp = Stamp.from_fields(fields, _metrics(fields.get("metrics")))
        try:
            final_name(stamp.name, stamp.time_step)
        except UnsafeNameError as error:
            raise RemoteProtocolError(str(error)) from error
        byteorder = fields.get("byteorder")
        if byteorder not in {"little", "big"}:
            raise RemoteProtocolError("byteorder is neither little nor big")
        return cls(stamp, _source(fields), _retention(fields), byteorder)


def final_name(name: str, time_step: int) -> str:
    """`<name>_<time-step>.pt`.

    Raises:
        ArgumentError: the name is no text, or the time-step has more than 64 bits.
        UnsafeNameError: the name cannot be part of one file name.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"a checkpoint's name is text, got {type(name).__name__}")
    if not -INT64 <= time_step < INT64:
        raise ArgumentError("a checkpoint's time-step has at most 64 bits")
    whole = f"{name}_{time_step}.pt"
    problem = "it is empty" if not name else component_problem(whole)
    if problem is None and name.startswith("."):
        problem = "it begins with a dot"
    if problem is not None:
        raise UnsafeNameError(f"checkpoint name {name!r} cannot be used: {problem}")
    return whole


def storage_offsets(skeleton_bytes: int, sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each storage begins in its slot, and how many bytes the slot needs in all."""
    offsets = []
    at = align(skeleton_bytes)
    for size in sizes:
        offsets.append(at)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return offsets, at


def _source_fields(source: ArenaSource | BlobSource) -> dict[str, Any]:
    if isinstance(source, ArenaSource):
        return {"arena": source.arena, "slot": source.slot, "number": source.number}
    return {"blob": source.blob, "size": source.size}


def _source(fields: dict[str, Any]) -> ArenaSource | BlobSource:
    if "blob" not in fields:
        return _slot_source(fields, *_layout(fields))
    blob, size = _blob_name(fields), _count(fields.get("size"), "size")
    return RawBlobSource(blob, size, *_layout(fields)) if "sizes" in fields else BlobSource(blob, size)


def _slot_source(fields: dict[str, Any], skeleton_bytes: int, sizes: tuple[int, ...]) -> ArenaSource:
    arena, slot, number = (fields.get(name) for name in ("arena", "slot", "number"))
    return ArenaSource(arena, slot, number, skeleton_bytes, sizes)  # type: ignore[arg-type] # it checks them


def _blob_name(fields: dict[str, Any]) -> str:
    blob = _text(fields["blob"], "blob")
    problem = component_problem(blob)
    if problem is not None or blob.startswith("."):
        raise RemoteProtocolError(f"blob {blob!r} is not a file name: {problem}")
    return blob


def _layout(fields: dict[str, Any]) -> tuple[int, tuple[int, ...]]:
    """Bytes of the skeleton, and of each storage."""
    sizes = fields.get("sizes")
    if not isinstance(sizes, list) or len(sizes) > MAX_STORAGES:
        raise RemoteProtocolError("sizes is not a list of storage sizes")
    skeleton_bytes = _count(fields.get("skeleton_bytes"), "skeleton_bytes")
    if skeleton_bytes > MAX_SKELETON_BYTES:
        raise RemoteProtocolError("skeleton_bytes is out of range")
    return skeleton_bytes, tuple(_count(size, "size") for size in sizes)


def _retention(fields: dict[str, Any]) -> Retention:
    best = fields.get("keep_best")
    if best is not None:
        try:
            metric, mode, count = best
        except (TypeError, ValueError) as error:
            raise RemoteProtocolError("keep_best is not [metric, mode, k]") from error
        if mode not in {"min", "max"}:
            raise RemoteProtocolError("keep_best is neither by min nor by max")
        best = (_text(metric, "metric"), mode, _positive(count, "keep_best"))
    most, every = fields.get("max_to_keep"), fields.get("keep_every")
    return Retention(
        max_to_keep=None if most is None else _positive(most, "max_to_keep"),
        keep_every=None if every is None else _positive(every, "keep_every"),
        keep_best=best,
    )


def _metrics(value: object) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > MAX_METRICS:
        raise RemoteProtocolError("metrics is not a small map")
    found: dict[str, float] = {}
    for key, number in value.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise RemoteProtocolError(f"metric {key!r} is not a number")
        found[_text(key, "metric")] = float(number)
    return found


def badness(mode: Mode, value: float) -> float:
    """Sort key of a metric: smaller is better, NaN is worst."""
    if math.isnan(value):
        return math.inf
    return value if mode == "min" else -value


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(value: object, what: str) -> int:
    if not _is_int(value) or not -INT64 <= value < INT64:
        raise RemoteProtocolError(f"{what} is not a 64-bit integer")
    return value


def _count(value: object, what: str) -> int:
    if not _is_int(value) or not 0 <= value < INT64:
        raise RemoteProtocolError(f"{what} is not a count")
    return value


def _positive(value: object, what: str) -> int:
    found = _count(value, what)
    if found < 1:
        raise RemoteProtocolError(f"{what} must be at least 1")
    return found


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise RemoteProtocolError(f"{what} is not a short text")
    return value


def _token(value: object) -> str:
    if not isinstance(value, str) or _TOKEN.fullmatch(value) is None:
        raise RemoteProtocolError("token is not 16 hex digits")
    return value


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """One snapshot on its way to its folder.

    Attributes:
        token: 16 hex digits that name the save.
        order: nanoseconds since 1970 at the save, strictly growing in one run.
        kind: which folder of the run: log, or the item's checkpoint.
        names: file names that get this content.
        source: where the content lies. A slot's `skeleton_bytes` is the size of the whole file.
    """

    token: str
    order: int
    kind: str
    names: tuple[str, ...]
    source: ArenaSource | BlobSource

    def encode(self) -> dict[str, Any]:
        """Plain data for a JOB frame."""
        source = self.source
        return {
            "v": SNAPSHOT_VERSION,
            "token": self.token,
            "order": self.order,
            "kind": self.kind,
            "names": list(self.names),
            **_source_fields(source),
            "size": source.skeleton_bytes if isinstance(source, ArenaSource) else source.size,
        }

    @classmethod
    def decode(cls, fields: object) -> SnapshotJob:
        """Check and read what a frame holds.

        Raises:
            RemoteProtocolError: not what `encode` makes, or a name that is not a snapshot's.
        """
        if not isinstance(fields, dict) or fields.get("v") != SNAPSHOT_VERSION:
            raise RemoteProtocolError("not a snapshot job of this version")
        token, kind, names = _token(fields.get("token")), fields.get("kind"), fields.get("names")
        if kind not in {LOG, CHECKPOINT}:
            raise RemoteProtocolError("snapshots go into the folders log and checkpoint only")
        if not isinstance(names, list) or not 1 <= len(names) <= MAX_NAMES:
            raise RemoteProtocolError("names is not a short list")
        if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
            raise RemoteProtocolError(f"{names!r} are not names of snapshots")
        order, size = _count(fields.get("order"), "order"), _count(fields.get("size"), "size")
        if "blob" in fields:
            return cls(token, order, kind, tuple(names), BlobSource(_blob_name(fields), size))
        return cls(token, order, kind, tuple(names), _slot_source(fields, size, ()))


def encode_footer(note: dict[str, Any]) -> bytes:
    """What stands behind the pickle; `note` is plain data."""
    text = json.dumps(note).encode()
    return text + FOOTER.pack(len(text), FOOTER_MAGIC)


def read_footer(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The note behind a snapshot's pickle, without loading the pickle; empty when it has none.

    Raises:
        OSError: the file cannot be read.
    """
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        return _footer(file)


def _footer(file: BinaryIO) -> dict[str, Any]:
    size = file.seek(0, os.SEEK_END)
    if size < FOOTER.size:
        return {}
    file.seek(size - FOOTER.size)
    length, magic = FOOTER.unpack(file.read())
    if magic != FOOTER_MAGIC or length > min(FOOTER_MAX_BYTES, size - FOOTER.size):
        return {}
    file.seek(size - FOOTER.size - length)
    try:
        note = json.loads(file.read(length))
    except (ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def saved_order(path: str | os.PathLike[str]) -> tuple[str, int]:
    """Token and order of the save that a file holds; ("", -1) where there is none of ours."""
    try:
        return _save_of(read_footer(path))
    except OSError:
        return "", -1


def is_older(content: bytes, path: str | os.PathLike[str]) -> bool:
    """Whether `content` is a snapshot, and the file that is there one of a later save."""
    order = _save_of(_footer(io.BytesIO(content)))[1]
    return 0 <= order < saved_order(path)[1]


def _save_of(note: dict[str, Any]) -> tuple[str, int]:
    token, order = note.get("token"), note.get("order")
    if not isinstance(token, str) or not isinstance(order, int):
        return "", -1
    return token, order
