"""Limits of samples (`SAMPLES`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rla_client.contract.sample_members import group_of
from rla_client.samples.cells import plain_row
from rla_client.samples.choice import SampleCandidate, choose

_CHOSEN_BY = ("prompt", "group", "reward")
KNOWN_STEPS = 16  # whose samples are counted: late ones of asynchronous rollouts come in between


class Limits(Protocol):
    """The section `SAMPLES` of the configuration."""

    @property
    def step_max_rows(self) -> int:
        """Samples of one time-step."""

    @property
    def step_max_bytes(self) -> int:
        """Bytes of the samples of one time-step."""

    @property
    def run_max_bytes(self) -> int:
        """Bytes of samples that a process adds to a run; 0: no limit."""

    @property
    def cell_max_chars(self) -> int:
        """Characters of one cell."""


@dataclass(slots=True)
class _Taken:
    """Rows and bytes that one time-step has used."""

    rows: int = 0
    bytes: int = 0


class SampleLimits:
    """Counts what one process logs of one run, and picks the samples that stay.

    Args:
        limits: of the configuration.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._steps: OrderedDict[float, _Taken] = OrderedDict()  # those that were logged last
        self._run_bytes = 0

    def candidates(self, rows: Sequence[Mapping[Any, Any]], max_chars: int, step: float) -> Sequence[int]:
        """Numbers of the rows that may stay, by their number alone: most of very many are never examined.

        Args:
            rows: of the user.
            max_chars: of a cell.
            step: time-step.
        """
        room = self._limits.step_max_rows - self._taken(step).rows
        if len(rows) <= room:
            return range(len(rows))
        if room <= 0:
            return ()
        looked_at = ({name: row[name] for name in _CHOSEN_BY if name in row} for row in rows)
        plain = (plain_row(row, max_chars, withheld=None) for row in looked_at)
        return choose([_candidate(row, 1) for row in plain], room, len(rows), f"{step}")

    def _taken(self, step: float) -> _Taken:
        taken = self._steps.setdefault(step, _Taken())
        self._steps.move_to_end(step)
        if len(self._steps) > KNOWN_STEPS:
            self._steps.popitem(last=False)
        return taken

    def kept(self, plain: Sequence[dict[str, Any]], packed: Sequence[bytes], step: float) -> list[int]:
        """Numbers of the candidates that stay."""
        limits = self._limits
        taken = self._taken(step)
        max_rows = limits.step_max_rows - taken.rows
        max_bytes = limits.step_max_bytes - taken.bytes
        if limits.run_max_bytes:
            max_bytes = min(max_bytes, limits.run_max_bytes - self._run_bytes)
        total = sum(map(len, packed))
        kept = list(range(len(packed)))
        if len(packed) > max_rows or total > max_bytes:
            candidates = [_candidate(row, len(data)) for row, data in zip(plain, packed, strict=True)]
            kept = choose(candidates, max_rows, max_bytes, f"{step}")
            total = sum(len(packed[number]) for number in kept)
        taken.rows += len(kept)
        taken.bytes += total
        self._run_bytes += total
        return kept


def _candidate(row: dict[str, Any], size: int) -> SampleCandidate:
    reward, group = row.get("reward"), row.get("group")
    if group is None:
        group = group_of(row.get("prompt", ""))
    return SampleCandidate(str(group), float(reward) if isinstance(reward, int | float) else None, size)
