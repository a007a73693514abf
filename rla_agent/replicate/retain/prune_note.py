"""Whether a file that is gone here was pruned: then the master's is the only copy."""

from __future__ import annotations

import os

from rla_client.contract.retention import note_path


def is_pruned(root: bytes, path: bytes) -> bool:
    """Whether `path` (below the data root) is not here and there is a note of it.

    A note that cannot be read, or whose presence cannot be told, counts: deleting on the master hangs on it.
    """
    if os.path.lexists(os.path.join(root, path)):
        return False
    folder, _, name = path.rpartition(b"/")
    try:
        os.lstat(note_path(os.fsdecode(os.path.join(root, folder)), os.fsdecode(name)))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
