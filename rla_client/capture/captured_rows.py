"""Merged rows of a captured run.

If two libraries report a number for the same tag and step, it is kept once if both are equal as float32, the
type in their files. Otherwise the tag of the later one is prefixed with its source.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from rla_client.contract.layout import PRINTED
from rla_client.run.record.scalar_rows import ScalarRows

if TYPE_CHECKING:
    from rla_client.run.record.excluded_sinks import Row
    from rla_client.run.record.run_logger import Logger

_FLOAT = struct.Struct("<f")
_NO_STEP: Any = object()
WANDB = "wandb"  # the only source that adds several values at once


class CapturedRows(ScalarRows):
    """Makes rows of values from several libraries."""

    def __init__(self, current: Logger) -> None:
        super().__init__(current)
        self._lock = current.lock
        self._seen_step: float = _NO_STEP
        self._seen: dict[str, tuple[str, Any]] = {}  # of this step: tag → source and value

    def add_from(self, source: str, tag: str, value: Any, step: float, wall_time: float) -> None:  # noqa: ANN401 - plain data
        """Add a library's value to the row of its step."""
        with self._lock:
            if (  # the usual case: another value of the pending row, all of whose tags are in `_seen`
                step == self._step == self._seen_step
                and tag not in self._seen
                and self._values
                and not self._exclude
            ):
                self._seen[tag] = source, value
                self._values[tag] = value
                self._wall_time = wall_time
                return
            named = self._named(source, tag, value, step)
            if named is not None:
                self.add(named, value, step, wall_time, ())

    def add_all(
        self, values: Row, step: float, wall_time: float, exclude: tuple[str, ...], *, complete: bool = False
    ) -> set[str]:
        """See `ScalarRows.add_all`; the values are wandb's."""
        kept = {}
        with self._lock:
            for tag, value in values.items():
                named = self._named(WANDB, tag, value, step)
                if named is not None:
                    kept[named] = value
            if not kept:
                return set()
            return super().add_all(kept, step, wall_time, exclude, complete=complete)

    def _named(self, source: str, tag: str, value: Any, step: float) -> str | None:  # noqa: ANN401 - plain data
        """The tag under which a value is kept; None if the row has this value already."""
        if step != self._seen_step:
            self._seen = {}
            self._seen_step = step
        known = self._seen.get(tag)
        if known is not None and known[0] != source:
            if _same(known[1], value):
                return None
            tag = f"{source}/{tag}"
        self._seen[tag] = source, value
        return tag


def captured_rows(current: Logger) -> CapturedRows | None:
    """The rows of a run, created if needed; None if the run has no output of rows."""
    rows = current.scalar_rows
    if isinstance(rows, CapturedRows):
        return rows
    if not current.sinks - PRINTED - {"log", "tensorboard"}:
        return None
    if rows is not None:
        rows.write()
    found = current.scalar_rows = CapturedRows(current)
    return found


def _same(first: Any, second: Any) -> bool:  # noqa: ANN401 - plain data
    try:
        return _FLOAT.pack(first) == _FLOAT.pack(second)
    except (struct.error, OverflowError, TypeError):
        return bool(first == second)
