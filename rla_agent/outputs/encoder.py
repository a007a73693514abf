"""What every append-only sink does: records in, bytes out. Pure.

An encoder's bytes are a function of the records alone (wall time from the record, never from a
clock), so that a replay writes the same bytes and an open reader stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rla_agent.model.ingest import Record


class Encoder(Protocol):
    """Encodes records for one output.

    Attributes:
        rows: rows encoded so far, over the whole output.
        takes_rows: whether rows leave anything in the output.
    """

    rows: int
    takes_rows: bool

    def head(self) -> bytes:
        """Bytes that open a fresh output."""
        ...

    def encode(self, records: Sequence[Record]) -> tuple[bytes, int]:
        """Bytes of the first `n` records, and `n`.

        `n < len(records)` says that the output must be rewritten before it can take the next
        record (a CSV whose columns grow).
        """
        ...

    def state(self) -> dict[str, Any]:
        """Plain data from which `restore` makes an encoder that goes on at this point."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        ...
