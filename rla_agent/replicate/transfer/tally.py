"""Tally of a transfer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Say = Callable[[str, int, int], None]


@dataclass
class Tally:
    """Counts of a transfer. `left_out`: keys on the master that name no file."""

    files: int = 0
    bytes: int = 0
    same: int = 0
    failed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
