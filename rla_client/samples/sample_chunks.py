"""Chunks of samples for the stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from rla_client.contract.errors import ArgumentError
from rla_client.contract.spool.protocol import pack
from rla_client.samples.cells import clean_row, plain_row
from rla_client.samples.sample_limits import Limits, SampleLimits
from rla_client.samples.sample_rows import rows_of
from rla_client.stream.values import text_of, to_plain

CHUNK_BYTES = 4 << 20  # of a record: a quarter of what the agent takes, half of a segment
MAX_NAME_CHARS = 100
MAX_TOLD = 32  # columns of tokens: their names may carry numbers
_NAME_TO_COME = "samples/train/1000-picture-100.png"  # about as long as names are


class Pictures(Protocol):
    """Makes files of the pictures and other media among the samples of a call."""

    def is_one(self, value: object) -> bool:
        """Whether a value is one of them."""

    def refer(self, key: str, value: object) -> dict[str, Any] | None:
        """See `cells.plain_row`."""


class Chunk(NamedTuple):
    """Payload of a record with the number of rows in it."""

    payload: bytes
    rows: int


class SampleChunks:
    """Samples that one process logs of one run; counts those that the limits drop.

    Args:
        limits: of the configuration.

    Attributes:
        picture_numbers: of the pictures to come, each of which has its own file.
    """

    def __init__(self, limits: Limits) -> None:
        self.picture_numbers = itertools.count(1)
        self._told: set[str] = set()
        self._limits, self._cell_max_chars = SampleLimits(limits), limits.cell_max_chars

    def chunks(  # noqa: PLR0913 - what a call says
        self,
        samples: object,
        *,
        name: str,
        step: float,
        timestamp: float,
        group: object,
        withheld: set[str] | None,
        pictures: Pictures | None = None,
    ) -> Iterator[Chunk]:
        """The records of one call.

        Args:
            samples: see `sample_rows.rows_of`.
            name: that they are logged under.
            step: time-step.
            timestamp: Unix seconds.
            group: name of a column, one value per row, or None.
            withheld: see `cells.plain_row`.
            pictures: saves the pictures of the rows that stay.

        Raises:
            ArgumentError: the samples or groups have an unknown form.
        """
        given = _grouped(rows_of(samples), group)
        rows = [given[number] for number in self._limits.candidates(given, self._cell_max_chars, step)]
        plain_of = partial(plain_row, max_chars=self._cell_max_chars, withheld=withheld)
        found: set[int] = set()  # rows with pictures, which are saved once it is known that they stay
        plain = [
            plain_of(row, refer=None if pictures is None else partial(_name_to_come, pictures, found, number))
            for number, row in enumerate(rows)
        ]
        packed = [_packed(row) for row in plain]
        kept = self._limits.kept(plain, packed, step)
        if pictures is not None:
            for number in sorted(found.intersection(kept)):
                packed[number] = _packed(plain_of(rows[number], refer=pictures.refer))
        left_out = len(given) - len(kept)
        if len(kept) < len(packed):
            packed = [packed[number] for number in kept]
        shown = text_of(name)[:MAX_NAME_CHARS]
        if left_out and not packed:
            yield Chunk(pack([shown, step, timestamp, left_out, []]), 0)
        for part in _parts(packed):
            yield Chunk(pack([shown, step, timestamp, left_out, part]), len(part))
            left_out = 0

    def untold(self, withheld: Iterable[str]) -> list[str]:
        """Names of columns that were left out and not given by an earlier call; MAX_TOLD in all."""
        new = sorted(set(withheld) - self._told)[: MAX_TOLD - len(self._told)]
        self._told.update(new)
        return new


def _name_to_come(
    pictures: Pictures, found: set[int], number: int, _key: str, value: object
) -> dict[str, Any] | None:
    if not pictures.is_one(value):
        return None
    found.add(number)
    return {"image": _NAME_TO_COME}


def _grouped(rows: list[Mapping[Any, Any]], group: object) -> list[Mapping[Any, Any]]:
    """Rows with their `group`, from a column or from one value per row."""
    if group is None:
        return rows
    if isinstance(group, str):
        return [{**row, "group": _name(row[group])} if group in row else row for row in rows]
    found = to_plain(group)
    values = found if isinstance(found, list) else [found] * len(rows)
    if len(values) != len(rows):
        raise ArgumentError(f"group has {len(values)} values for {len(rows)} samples")
    return [{**row, "group": _name(value)} for row, value in zip(rows, values, strict=True)]


def _name(value: object) -> str:
    return value if isinstance(value, str) else text_of(to_plain(value))


def _packed(row: dict[str, Any]) -> bytes:
    try:
        return pack(row)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        return pack(clean_row(row))


def _parts(packed: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Rows in parts of at most CHUNK_BYTES, or one larger row."""
    part: list[bytes] = []
    size = 0
    for row in packed:
        if part and size + len(row) > CHUNK_BYTES:
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row)
    if part:
        yield part
