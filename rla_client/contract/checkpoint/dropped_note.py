"""Note of the checkpoints that `max_to_keep` dropped.

Before such a file is deleted, a line of `.rla-dropped` beside it records its name and modification time, so
that the replicator can distinguish it from a file that the user removed (`replicate_retention: mirror`).
`.rla-dropped` is never sent to the master.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.item.prune_notes import read_note
from rla_client.contract.layout import DROPPED_NOTE

MAX_DROPPED_BYTES: Final = 1 << 20  # some 15,000 files of one item; then the older half is forgotten


def note_dropped(folder: Path, names: Iterable[str], last: str = "") -> None:
    """Note that `max_to_keep` is about to drop files of a checkpoint folder.

    Where the note cannot be written, or is lost in a power cut, their copies on the master stay.

    Args:
        folder: of the checkpoints.
        names: of the dropped files there.
        last: the names are folders, in each of which this file was written last, perhaps on the master alone.
    """
    lines = []
    for name in names:
        with suppress(OSError):
            lines.append(json.dumps([name, _written_ns(folder / name / last)]).encode() + b"\n")
    if not lines:
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with (
        suppress(OSError),
        open(os.open(folder / DROPPED_NOTE, flags, file_mode(folder)), "ab", buffering=0) as file,
    ):
        file.write(b"".join(lines))
        if file.tell() > MAX_DROPPED_BYTES:
            kept = read_small(folder / DROPPED_NOTE, 2 * MAX_DROPPED_BYTES).splitlines(keepends=True)
            write_atomic(folder / DROPPED_NOTE, b"".join(kept[len(kept) // 2 :]), mode=file_mode(folder))


def is_dropped(folder: Path, name: str, last: str = "") -> bool:
    """Whether `max_to_keep` dropped the present file of a name; arguments as of `note_dropped`."""
    try:
        return _written_ns(folder / name / last) <= dropped(folder).get(name, -1)
    except OSError:
        return False


def _written_ns(path: Path) -> int:
    """Modification time of a file that is here, or on the master alone."""
    note = read_note(path.parent, path.name)  # None where it is here
    return os.lstat(path).st_mtime_ns if note is None else note.mtime_ns


def dropped(folder: Path) -> dict[str, int]:
    """Name → modification time (ns) of the last file of this name that `max_to_keep` dropped here."""
    found = {}
    try:
        lines = read_small(folder / DROPPED_NOTE, 2 * MAX_DROPPED_BYTES).splitlines()
    except (OSError, BrokenFileError):
        return {}
    for line in lines:
        with suppress(ValueError, TypeError, RecursionError):  # a power cut may leave an incomplete line
            name, mtime_ns = json.loads(line)
            if isinstance(name, str) and isinstance(mtime_ns, int):
                found[name] = mtime_ns
    return found
