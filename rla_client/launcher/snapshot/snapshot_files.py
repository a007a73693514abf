"""Snapshot files of a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rla_client.contract.errors import (
    ArgumentError,
    NotAFileError,
)
from rla_client.contract.job.snapshot_footer import saved_order
from rla_client.launcher.snapshot.snapshot_modes import LAST_FILE

_NUMBERED = re.compile(r"itr_(\d+)\.pkl")


def find_snapshot(folder: str | os.PathLike[str], itr: int | str = "last") -> Path:
    """Path of the snapshot `itr` in `folder`; numbers are compared as numbers.

    `last` is params.pkl or the highest itr_N.pkl, whichever was saved later according to their footers.

    Raises:
        ArgumentError, FileNotFoundError, NotAFileError: as in `Snapshotter.load`.
    """
    base = Path(folder)
    numbered = _numbered(base)
    if itr == "last":
        path = _last(base, numbered)
    elif itr == "first":
        path = base / f"itr_{min(numbered)}.pkl" if numbered else base / LAST_FILE
    elif not isinstance(itr, bool) and str(itr).isdecimal():
        path = base / f"itr_{int(itr)}.pkl"
    else:
        raise ArgumentError(f"itr is a number, 'last' or 'first'; got {itr!r}")
    if not path.exists():
        known = ", ".join(f"itr_{number}" for number in sorted(numbered)) or "none numbered"
        raise FileNotFoundError(f"no snapshot {path} (there: {known})")
    if not path.is_file():
        raise NotAFileError(f"{path} is not a file")
    return path


def _numbered(folder: Path) -> list[int]:
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder} to load snapshots from")
    return [int(match[1]) for match in map(_NUMBERED.fullmatch, os.listdir(folder)) if match]


def _last(folder: Path, numbered: list[int]) -> Path:
    last = folder / LAST_FILE
    if not numbered:
        return last
    newest = folder / f"itr_{max(numbered)}.pkl"
    if not last.is_file():
        return newest
    orders = saved_order(last)[1], saved_order(newest)[1]
    if min(orders) < 0:  # a file without our footer has only its modification time
        orders = last.stat().st_mtime_ns, newest.stat().st_mtime_ns
    return last if orders[0] >= orders[1] else newest
