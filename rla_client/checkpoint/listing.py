"""Listing of a run's checkpoints.

A file is `<name>_<time-step>.pt`; older databases have `<name>-<time-step>.pt`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rla_client.contract.checkpoint.checkpoint_age import oldest_first, save_time
from rla_client.contract.errors import NoCheckpointError
from rla_client.contract.item.prune_notes import noted_names


def list_checkpoints(
    folder: Path, name: str = "checkpoint", *, pruned: bool = False
) -> list[tuple[int, Path]]:
    """Checkpoints of one name, (time-step, path), in the order of their saves; [] without a folder.

    Where both spellings of one time-step exist, the newer spelling `name_N.pt` counts.

    Args:
        folder: the run's checkpoints.
        name: the series.
        pruned: also those that are on the master alone.
    """
    return _by_age(folder, _by_step(folder, name, pruned=pruned))


def _by_age(folder: Path, found: Mapping[int, Path]) -> list[tuple[int, Path]]:
    if len(found) < 2:  # noqa: PLR2004 - one is the newest whatever its stamp says
        return list(found.items())
    by_age = oldest_first(save_time(folder, path.name, step) for step, path in found.items())
    return [(one.time_step, found[one.time_step]) for one in by_age]


def _by_step(folder: Path, name: str, *, pruned: bool) -> dict[int, Path]:
    pattern = re.compile(rf"{re.escape(name)}([_-])(-?[0-9]{{1,19}})\.pt", re.DOTALL)
    found: dict[int, Path] = {}
    noted = noted_names(folder) if pruned else []
    try:
        entries = {entry.name for entry in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if pruned:  # before and after: a file may be pruned or fetched meanwhile
        entries.update(noted, noted_names(folder))
    for entry in sorted(entries):
        match = pattern.fullmatch(entry)
        if match is not None:
            step = int(match[2])
            if step not in found or match[1] == "_":
                found[step] = folder / entry
    return found


def find_checkpoint(
    folder: Path, name: str = "checkpoint", index: int | None = None, *, autostart: bool
) -> tuple[int, Path]:
    """The checkpoint of time-step `index`, or the one that was saved last; a pruned one is fetched.

    Args:
        folder: of the checkpoints.
        name: the series.
        index: a time-step.
        autostart: start an agent where one has to fetch it and none runs.

    Raises:
        NoCheckpointError: there is none; the message lists the existing ones.
        FetchError: it is on the master alone and cannot be fetched.
    """
    found = _by_step(folder, name, pruned=True)
    if index is None and found:
        index = _by_age(folder, found)[-1][0]
    if index is None or index not in found:
        there = ", ".join(map(str, sorted(found))) or "none"
        wanted = f"{name!r}" if index is None else f"{name!r} at time-step {index}"
        raise NoCheckpointError(f"no checkpoint {wanted} in {folder}; time-steps there: {there}")
    path = found[index]
    if not path.exists():
        from rla_client.stream.fetch import bring_back  # noqa: PLC0415 - rarely needed

        bring_back(path, autostart=autostart)
    return index, path
