"""Size of an item on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rla_client.database.tree.items import Item


def item_bytes(item: Item) -> tuple[int, int]:
    """Allocated bytes and number of files of an item; a file that vanishes in the meantime counts 0 bytes."""
    sizes = [size for path in item.paths for size in _sizes(path)]
    return sum(sizes), len(sizes)


def _sizes(path: str) -> Iterator[int]:
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, _, names in os.walk(path):
            for name in names:
                yield _size(os.path.join(folder, name))
    else:
        yield _size(path)


def _size(path: str) -> int:
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    blocks: int = getattr(found, "st_blocks", 0)
    return blocks * 512 or found.st_size
