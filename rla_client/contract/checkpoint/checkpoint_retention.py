"""Retention rules of checkpoints.

The stamps in the files of one name decide which may be deleted. Before that, a line of `.rla-dropped` beside
the file records its name and modification time, so that the replicator can distinguish it from a file that
the user removed (`replicate_retention: mirror`). `.rla-dropped` is never sent to the master.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgpack

from rla_client.contract.checkpoint.sending_hold import is_held
from rla_client.contract.checkpoint.stamp import Stamp, read_stamp
from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, write_atomic
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.item.prune_notes import read_note
from rla_client.contract.layout import DROPPED_NOTE, MAX_STATE_BYTES, RESUME_FOLDER, arrays_name

Mode = Literal["min", "max"]


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention rules of one name's checkpoints.

    Attributes:
        max_to_keep: so many of the newest; None keeps all.
        keep_every: in addition, those whose time-step is a multiple of this.
        keep_best: in addition, the `k` with the best value: (metric, "min" or "max", k).
    """

    max_to_keep: int | None = None
    keep_every: int | None = None
    keep_best: tuple[str, Mode, int] | None = None


def badness(mode: Mode, value: float) -> float:
    """Sort key of a metric: smaller is better, NaN is worst."""
    if math.isnan(value):
        return math.inf
    return value if mode == "min" else -value


MAX_DROPPED_BYTES: Final = 1 << 20  # some 15,000 files of one item; then the older half is forgotten


@dataclass(frozen=True, slots=True)
class Saved:
    """One finished checkpoint file of ours."""

    file: str
    stamp: Stamp


def superseded(saved: Sequence[Saved], keep: Retention) -> list[Saved]:
    """The files that `keep` does not protect, oldest first.

    Age is the order of the saves and not the time-step: after a resume at an earlier step the
    newest file may have a lower number than the ones before it.

    Args:
        saved: files of one name and one run, in any order.
        keep: the rules; without `max_to_keep` nothing is superseded.
    """
    if keep.max_to_keep is None:
        return []
    by_age = sorted(saved, key=lambda entry: entry.stamp.order)
    kept = {entry.file for entry in by_age[-keep.max_to_keep :]}
    if keep.keep_every is not None:
        kept |= {entry.file for entry in by_age if entry.stamp.time_step % keep.keep_every == 0}
    if keep.keep_best is not None:
        metric, mode, count = keep.keep_best
        rated = [entry for entry in by_age if metric in entry.stamp.metrics]
        rated.sort(key=lambda entry: (badness(mode, entry.stamp.metrics[metric]), -entry.stamp.order))
        kept |= {entry.file for entry in rated[:count]}
    return [entry for entry in by_age if entry.file not in kept]


def remove_superseded(folder: Path, name: str, run: str, keep: Retention) -> list[str]:
    """Delete the files that `keep` does not protect; call it once the newest file is durable.

    Returns:
        File names that were removed. Files without a stamp, or of another run, never are.
    """
    if keep.max_to_keep is None:
        return []
    removed = []
    gone = superseded([saved for saved in list_saved(folder, name) if saved.stamp.run == run], keep)
    note_dropped(folder, [entry.file for entry in gone])
    for entry in gone:
        if is_held(folder / entry.file):
            continue  # the holder removes it
        with suppress(FileNotFoundError):
            (folder / entry.file).unlink()
            removed.append(entry.file)
        remove_beside(folder, Path(entry.file).stem, entry.stamp)
    return removed


def remove_dropped(folder: Path, file: str) -> None:
    """Remove a dropped file after its hold has ended."""
    stamp = read_stamp(folder / file)
    with suppress(OSError):
        if stamp is not None and is_dropped(folder, file) and not is_held(folder / file):
            (folder / file).unlink()
            remove_beside(folder, Path(file).stem, stamp)


def remove_beside(folder: Path, stem: str, stamp: Stamp) -> None:
    """Remove the files of one save in `.resume` of a checkpoint folder."""
    with suppress(OSError), held_folder(folder, RESUME_FOLDER) as below:
        _remove_state(below, stem, stamp)


def _remove_state(below: Path, stem: str, stamp: Stamp) -> None:
    """Remove a state, unless it is of a later save of that time-step, which may be writing it just now."""
    (below / f"{stem}.marks.json").unlink(missing_ok=True)  # written by the job that wrote the checkpoint
    (below / arrays_name(stem, stamp.order)).unlink(missing_ok=True)
    state, taken = below / f"{stem}.state", below / f"{TEMP_PREFIX}{stamp.token}.state"
    if _saved_as(state) not in {stamp.order, None}:
        return
    with suppress(FileNotFoundError):
        state.replace(taken)  # checked again where nobody can replace it
        order = _saved_as(taken)
        if order not in {stamp.order, None} and not state.exists():
            taken.replace(state)
            return
        taken.unlink()


def _saved_as(state: Path) -> int | None:
    """The order of a state's save; None: it is no state."""
    try:
        content = msgpack.unpackb(read_small(state, 2 * MAX_STATE_BYTES), strict_map_key=False)
    except (OSError, ValueError, msgpack.UnpackException, BrokenFileError):
        return None
    order = content.get("order") if isinstance(content, dict) else None
    return order if isinstance(order, int) else None


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


def list_saved(folder: Path, name: str) -> list[Saved]:
    """Saved files of this name in a checkpoint folder."""
    saved = []
    for entry in sorted(os.listdir(folder)):
        if entry.startswith(f"{name}_") and entry.endswith(".pt"):
            stamp = read_stamp(folder / entry)
            if stamp is not None and stamp.name == name:
                saved.append(Saved(entry, stamp))
    return saved
