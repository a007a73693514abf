"""Decoded records of a stream. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Position(NamedTuple):
    """A place in a stream: segment number (from 1) and byte offset. Ordered."""

    number: int
    offset: int


class Row(NamedTuple):
    """A row. It is never changed: every sink, and the alerts, get the client's record."""

    step: int | float
    timestamp: float
    values: Mapping[str, Any]
    excluded: dict[str, list[str]] | None


class Text(NamedTuple):
    """A piece of text for some of the text files; `targets` are TextTarget bits."""

    targets: int
    text: str


class Event(NamedTuple):
    """A serialised TensorBoard Event from the client's SummaryWriter."""

    data: bytes


class ItemFile(NamedTuple):
    """A small whole file of the item."""

    kind: str
    path: str
    content: bytes


class Close(NamedTuple):
    """The writer's closing record."""

    state: str
    reason: str
    timestamp: float


class Mark(NamedTuple):
    """A fact about the run, for the registry or a sink."""

    name: str
    data: Any


class JobRequest(NamedTuple):
    """A job that the stream requests."""

    kind: str
    fields: dict[str, Any]


class Samples(NamedTuple):
    """Samples of one call, or a part of them.

    Attributes:
        name: that they were logged under.
        step: time-step.
        timestamp: Unix seconds.
        left_out: rows of the call that the limits left out.
        rows: plain data by key. Nobody changes them.
    """

    name: str
    step: int | float
    timestamp: float
    left_out: int
    rows: list[dict[str, Any]]


class OpeningFrame(NamedTuple):
    """The opening frame of a segment."""

    fields: dict[str, Any]


RecordContent = Row | Text | Event | ItemFile | Close | Mark | JobRequest | Samples | OpeningFrame


class Record(NamedTuple):
    """One frame, decoded, and the offset of the byte after it."""

    end: int
    content: RecordContent


@dataclass(slots=True)
class Batch:
    """Records of some bytes of one segment.

    Attributes:
        number: segment.
        start: offset of the first byte.
        end: offset up to which bytes are consumed.
        records: in order.
        damaged: consumed bytes that held no valid record.
        only_rows: all records are known to be rows.
    """

    number: int
    start: int
    end: int
    records: list[Record]
    damaged: int = 0
    only_rows: bool = False


def cut_at_jobs(batch: Batch, kind: str) -> list[Batch]:
    """Pieces of a batch that each end at a job of this kind or at the batch's end."""
    if batch.only_rows:
        return [batch]
    ends = [
        index + 1
        for index, record in enumerate(batch.records)
        if type(record.content) is JobRequest and record.content.kind == kind
    ]
    if not ends or ends == [len(batch.records)]:
        return [batch]
    pieces: list[Batch] = []
    begin, start = 0, batch.start
    for stop in [*ends, len(batch.records)]:
        records = batch.records[begin:stop]
        end = batch.end if stop == len(batch.records) else records[-1].end
        if records or end > start:
            pieces.append(Batch(batch.number, start, end, records))
        begin, start = stop, end
    pieces[-1].damaged = batch.damaged
    return pieces


def clipped_batch(batch: Batch, end: int) -> Batch:
    """The part of a batch up to an offset that ends a record."""
    records = [record for record in batch.records if record.end <= end]
    return Batch(batch.number, batch.start, end, records, 0, batch.only_rows)
