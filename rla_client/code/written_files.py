"""Notes of files that `rla` wrote into a project.

Their names do not differ from those of pictures that a program needs. So each file is noted as a line of
`<data_root>/.rla/written.jsonl`::

    {"path": "/home/me/project/plot.png", "size": 18372, "mtime_ns": 1764000000000000000}

and left out of code backups until it is edited or replaced. The notes hold for this machine only. A lost note
means that a superfluous file is backed up.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.process.descriptors import open_high

if TYPE_CHECKING:
    from collections.abc import Iterable


if TYPE_CHECKING:
    Written = dict[str, tuple[int, int]]
NOTES_FILE = ".rla/written.jsonl"  # below a data root
_APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MAX_NOTES = 1000  # the newest are kept; a project has some tens
MAX_NOTES_BYTES = 1 << 20  # of the file, beyond which notes of changed or removed files are dropped


def note_written(data_root: Path, path: Path) -> None:
    """Note a file that has just been written; nothing happens in a read-only database."""
    below, name = os.path.split(NOTES_FILE)
    with suppress(OSError), held_folder(data_root, below, create=True) as folder:
        found = os.stat(path)
        note = {"path": os.path.realpath(path), "size": found.st_size, "mtime_ns": found.st_mtime_ns}
        notes = folder / name
        with open(open_high(notes, _APPEND_FLAGS, 0o644), "ab") as file:
            file.write(json.dumps(note).encode() + b"\n")
            size = file.tell()
        if size > MAX_NOTES_BYTES:
            kept = [entry for entry in read_written([data_root]).items() if is_written(*entry)][-MAX_NOTES:]
            lines = [{"path": name, "size": size, "mtime_ns": mtime} for name, (size, mtime) in kept]
            write_atomic(notes, "".join(json.dumps(line) + "\n" for line in lines).encode(), durable=False)


def read_written(data_roots: Iterable[Path]) -> Written:
    """Real path → (bytes, mtime in ns) of the files noted in databases; damaged lines are skipped."""
    found: Written = {}
    for root in data_roots:
        try:
            with open_plain(root / NOTES_FILE) as file:
                content = file.read(2 * MAX_NOTES_BYTES)
        except (OSError, BrokenFileError):
            continue
        for line in content.splitlines():
            with suppress(ValueError, KeyError, TypeError):
                note = json.loads(line)
                found[str(note["path"])] = (int(note["size"]), int(note["mtime_ns"]))
    return found


def is_written(path: str, noted: tuple[int, int]) -> bool:
    """Whether a file is unchanged since it was noted."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == noted
