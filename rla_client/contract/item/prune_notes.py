"""Notes of files that exist only on the master.

For each file that `rla-agent prune` removed from this machine a note stays in the file's folder,
`<folder>/.rla-pruned/<name>.json`, with its path on the master, its size, SHA-256 and time. It is written
(durable) before the file is removed and deleted after the file is back, so at each moment there is the file
or a note. A note beside an existing file is ignored. Notes are never replicated. A copy of an item has copies
of its notes, whose `path` still leads to the right file.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, write_atomic
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PRUNED_FOLDER

NOTE_ENDING = ".json"
MAX_NAME_BYTES = 250  # of a file, so that its note's name is one too
MAX_NOTE_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class PrunedFile:
    """A file that is on the master alone.

    Attributes:
        path: below the data root here, and below the remote root there.
        size: bytes.
        sha256: of the content, in hex.
        mtime_ns: modification time, to be restored with the content.
        target: the master, `sftp://user@host:port/root`.
        pruned_at: Unix seconds.
        mode: permission bits; None: not noted.
        order: of the checkpoint's stamp; None: it has none.
    """

    path: str
    size: int
    sha256: str
    mtime_ns: int
    target: str
    pruned_at: float
    mode: int | None = None
    order: int | None = None

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.path.rpartition("/")[2]


def note_path(folder: str | os.PathLike[str], name: str) -> Path:
    """Path of the note of a file of `folder`."""
    return Path(folder, PRUNED_FOLDER, name + NOTE_ENDING)


def write_note(folder: str | os.PathLike[str], note: PrunedFile, *, durable: bool = True) -> None:
    """Make a note durable.

    Args:
        folder: of the file.
        note: of it.
        durable: False where a power cut may take it.

    Raises:
        OSError: it cannot be written; nothing is noted.
    """
    content = json.dumps({"format": 1, **asdict(note)}, indent=1).encode()
    with held_folder(folder, PRUNED_FOLDER, create=True) as notes:
        write_atomic(notes / (note.name + NOTE_ENDING), content, mode=file_mode(notes), durable=durable)


def drop_note(folder: str | os.PathLike[str], name: str) -> None:
    """Delete the note of a file that is back, or was not removed; a missing note is fine."""
    with suppress(FileNotFoundError, NotADirectoryError), held_folder(folder, PRUNED_FOLDER) as notes:
        (notes / (name + NOTE_ENDING)).unlink()
    with suppress(OSError):  # it has other notes
        Path(folder, PRUNED_FOLDER).rmdir()


def read_note(folder: str | os.PathLike[str], name: str) -> PrunedFile | None:
    """The note of a missing file; None when the file is here, or there is no note."""
    if os.path.lexists(os.path.join(folder, name)):
        return None
    try:
        path = note_path(folder, name)
        found = json.loads(read_small(path, MAX_NOTE_BYTES))
        note = PrunedFile(
            str(found["path"]),
            int(found["size"]),
            str(found["sha256"]),
            int(found["mtime_ns"]),
            str(found["target"]),
            float(found["pruned_at"]),
            None if found.get("mode") is None else int(found["mode"]) & 0o777,
            None if found.get("order") is None else int(found["order"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return note if note.name == name else None


def noted_names(folder: str | os.PathLike[str]) -> list[str]:
    """Names with a note in a folder, sorted; also of a file that is about to go or came back just now."""
    try:
        entries = sorted(os.listdir(Path(folder, PRUNED_FOLDER)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    names = [entry.removesuffix(NOTE_ENDING) for entry in entries if entry.endswith(NOTE_ENDING)]
    return [name for name in names if not name.startswith(TEMP_PREFIX)]


def pruned_files(folder: str | os.PathLike[str]) -> list[PrunedFile]:
    """Files of a folder that are on the master alone, by name; [] without any."""
    notes = [read_note(folder, name) for name in noted_names(folder)]
    return [note for note in notes if note is not None]


def pruned_below(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """(bytes, files) below a folder that are on the master alone."""
    size = count = 0
    for here, folders, _ in os.walk(folder):
        if PRUNED_FOLDER in folders:
            folders.remove(PRUNED_FOLDER)
            notes = pruned_files(here)
            size += sum(note.size for note in notes)
            count += len(notes)
    return size, count
