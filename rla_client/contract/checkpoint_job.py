"""What client and agent agree on about checkpoints: the job, what its slot holds, names. Pure.

A checkpoint travels as one JOB frame and its bytes: the skeleton (the pickle that becomes `data.pkl`),
then the storages in the order of their keys, each at the next multiple of `ALIGNMENT`. The bytes lie in
one of two places:

*arena*: a slot of shared memory (contract/arena.py).

*blob*: a file in the stream's blob folder, which ends with the job's token. If the job names no sizes,
the blob is a finished `.pt` (earlier clients wrote those).

Either way the final file carries a stamp (`STAMP_RECORD`, JSON inside the zip) that names the job
it came from. So a replay sees that its work is done, and retention counts only our own files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from rla_client.contract.arena import ALIGNMENT, SlotRef, align
from rla_client.contract.bounded import INT64
from rla_client.contract.errors import ArgumentError, RemoteProtocolError, UnsafeNameError
from rla_client.contract.layout import component_problem

JOB_KIND = "checkpoint"
JOB_VERSION = 1

MAX_STORAGES = 500_000  # half of what a frame's decoder lets through
MAX_SKELETON_BYTES = 1 << 31  # torch reads the record in one piece
MAX_METRICS = 64
MAX_TEXT = 4096
STAMP_RECORD = ".data/rla.json"
STAMP_MAX_BYTES = 1 << 16

_TOKEN = re.compile(r"^[0-9a-f]{16}$")

Mode = Literal["min", "max"]


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
        fields = {
            "format": JOB_VERSION,
            "token": self.token,
            "order": self.order,
            "run": self.run,
            "name": self.name,
            "time_step": self.time_step,
            "metrics": {key: repr(value) for key, value in self.metrics.items()},
        }
        return json.dumps(fields, sort_keys=True).encode("ascii")

    @classmethod
    def decode(cls, data: bytes) -> Stamp:
        """Read it back.

        Raises:
            RemoteProtocolError: these bytes are no stamp.
        """
        try:
            fields = json.loads(data)
            metrics = {str(key): float(value) for key, value in fields["metrics"].items()}
            return cls(
                token=_token(fields["token"]),
                order=_whole(fields["order"], "order"),
                run=_text(fields["run"], "run"),
                name=_text(fields["name"], "name"),
                time_step=_whole(fields["time_step"], "time_step"),
                metrics=metrics,
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RemoteProtocolError(f"not the stamp of a checkpoint: {error}") from error


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
        stamp, keep = self.stamp, self.retention
        fields: dict[str, Any] = {
            "v": JOB_VERSION,
            "token": stamp.token,
            "order": stamp.order,
            "run": stamp.run,
            "name": stamp.name,
            "time_step": stamp.time_step,
            "metrics": dict(stamp.metrics),
            "byteorder": self.byteorder,
            "max_to_keep": keep.max_to_keep,
            "keep_every": keep.keep_every,
            "keep_best": None if keep.keep_best is None else list(keep.keep_best),
        }
        source = self.source
        if isinstance(source, ArenaSource):
            fields |= {"arena": source.arena, "slot": source.slot, "number": source.number}
        else:
            fields |= {"blob": source.blob, "size": source.size}
        if isinstance(source, ArenaSource | RawBlobSource):
            fields |= {"skeleton_bytes": source.skeleton_bytes, "sizes": list(source.sizes)}
        return fields

    @classmethod
    def decode(cls, fields: object) -> CheckpointJob:
        """Check and read what a frame holds.

        Raises:
            RemoteProtocolError: not what `encode` makes, or a name that is not a file name.
        """
        if not isinstance(fields, dict) or fields.get("v") != JOB_VERSION:
            raise RemoteProtocolError("not a checkpoint job of this version")
        name = _text(fields.get("name"), "name")
        time_step = _whole(fields.get("time_step"), "time_step")
        try:
            final_name(name, time_step)
        except UnsafeNameError as error:
            raise RemoteProtocolError(str(error)) from error
        stamp = Stamp(
            token=_token(fields.get("token")),
            order=_whole(fields.get("order"), "order"),
            run=_text(fields.get("run"), "run"),
            name=name,
            time_step=time_step,
            metrics=_metrics(fields.get("metrics")),
        )
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


def _source(fields: dict[str, Any]) -> ArenaSource | BlobSource:
    if "blob" not in fields:
        return ArenaSource(
            _text(fields.get("arena"), "arena"),
            _count(fields.get("slot"), "slot"),
            _count(fields.get("number"), "number"),
            *_layout(fields),
        )
    blob = _text(fields["blob"], "blob")
    problem = component_problem(blob)
    if problem is not None or blob.startswith("."):
        raise RemoteProtocolError(f"blob {blob!r} is not a file name: {problem}")
    size = _count(fields.get("size"), "size")
    return RawBlobSource(blob, size, *_layout(fields)) if "sizes" in fields else BlobSource(blob, size)


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
    if not isinstance(value, str) or _TOKEN.match(value) is None:
        raise RemoteProtocolError("token is not 16 hex digits")
    return value
