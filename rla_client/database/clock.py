"""Wall clock of readers."""

from __future__ import annotations

import time


def clock() -> float:
    """Unix seconds; the only clock that the readers of a database use."""
    return time.time()
