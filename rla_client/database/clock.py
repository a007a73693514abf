"""Wall clock of readers."""

from __future__ import annotations

import time


def clock() -> float:
    """Unix seconds; the one place where the readers of a database look at the clock."""
    return time.time()
