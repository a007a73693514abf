"""Whether a file that is gone here was pruned: then the master's is the only copy."""

from __future__ import annotations

import os

from rla_client.pruned import read_note


def is_pruned(root: bytes, path: bytes) -> bool:
    """Whether `path` (below the data root) is not here and a note says that it is on the master."""
    folder, _, name = path.rpartition(b"/")
    return read_note(os.fsdecode(os.path.join(root, folder)), os.fsdecode(name)) is not None
