"""Which checkpoints of one name may go, by the stamps in their files. For agent and client."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_client.checkpoint_job import STAMP_MAX_BYTES, STAMP_RECORD, Retention, Stamp, badness
from rla_client.errors import RemoteProtocolError

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class Saved:
    """One finished checkpoint file of ours."""

    file: str
    stamp: Stamp


def superseded(saved: Sequence[Saved], keep: Retention) -> list[Saved]:
    """The files that `keep` does not hold, oldest first.

    Age is the order of the saves and not the time-step: after a resume at an earlier step the
    newest file may have a lower number than the ones before it.

    Args:
        saved: files of one name and one run, in any order.
        keep: the rules; without `max_to_keep` nothing goes.
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
    """Delete what `keep` does not hold; call it once the newest file is durable.

    Returns:
        File names that were removed. Files without a stamp, or of another run, never are.
    """
    if keep.max_to_keep is None:
        return []
    removed = []
    for entry in superseded([saved for saved in list_saved(folder, name) if saved.stamp.run == run], keep):
        with suppress(FileNotFoundError):
            (folder / entry.file).unlink()
            removed.append(entry.file)
    return removed


def list_saved(folder: Path, name: str) -> list[Saved]:
    """Files in a checkpoint folder that came of saves of this name."""
    saved = []
    for entry in sorted(os.listdir(folder)):
        if entry.startswith(f"{name}_") and entry.endswith(".pt"):
            stamp = read_stamp(folder / entry)
            if stamp is not None and stamp.name == name:
                saved.append(Saved(entry, stamp))
    return saved


def read_stamp(path: Path) -> Stamp | None:
    """The stamp of a checkpoint file; None when there is no such file or it has none."""
    try:
        with open(os.open(path, READ_FLAGS), "rb") as file, zipfile.ZipFile(file) as archive:
            for info in reversed(archive.infolist()):
                if info.filename.split("/", 1)[-1] == STAMP_RECORD and info.file_size <= STAMP_MAX_BYTES:
                    return Stamp.decode(archive.read(info))
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError, RemoteProtocolError):
        return None
    return None
