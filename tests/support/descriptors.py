"""Which descriptors of this process lead to a place: threads of earlier tests may still close others."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_below(*places: str | Path) -> list[str]:
    """What descriptors of this process have open there; a place is a path, or how a link of /proc begins."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{name}")
            if link.startswith(tuple(map(str, places))):
                found.append(link)
    return found
