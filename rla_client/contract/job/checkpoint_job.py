"""The job that makes one checkpoint file of bytes in memory or in a blob."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.checkpoint.stamp import CHECKPOINT_VERSION, Stamp
from rla_client.contract.errors import ArgumentError, RemoteProtocolError, UnsafeNameError
from rla_client.contract.job.job_fields import positive_field, text_field
from rla_client.contract.job.job_source import (
    ArenaSource,
    BlobSource,
    RawBlobSource,
    read_source,
    source_fields,
)
from rla_client.contract.safe_names import component_problem
from rla_client.contract.text.number_parsing import INT64

CHECKPOINT_KIND = "checkpoint"
MAX_METRICS = 64


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
        fields |= source_fields(source)
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
        return cls(stamp, read_source(fields), _retention(fields), byteorder)


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


def _retention(fields: dict[str, Any]) -> Retention:
    best = fields.get("keep_best")
    if best is not None:
        try:
            metric, mode, count = best
        except (TypeError, ValueError) as error:
            raise RemoteProtocolError("keep_best is not [metric, mode, k]") from error
        if mode not in {"min", "max"}:
            raise RemoteProtocolError("keep_best is neither by min nor by max")
        best = (text_field(metric, "metric"), mode, positive_field(count, "keep_best"))
    most, every = fields.get("max_to_keep"), fields.get("keep_every")
    return Retention(
        max_to_keep=None if most is None else positive_field(most, "max_to_keep"),
        keep_every=None if every is None else positive_field(every, "keep_every"),
        keep_best=best,
    )


def _metrics(value: object) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > MAX_METRICS:
        raise RemoteProtocolError("metrics is not a small map")
    found: dict[str, float] = {}
    for key, number in value.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise RemoteProtocolError(f"metric {key!r} is not a number")
        found[text_field(key, "metric")] = float(number)
    return found
