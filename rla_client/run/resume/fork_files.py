"""Copies of an earlier run's files in the open run's item.

Checkpoints, results and the like are copied to their places. Logs are copied into a hidden folder, and the
opening frame of a new stream of the run asks the agent to put them into place, which it does after the last
record of the stream before (rla_agent/pipeline/recovery.py). So it does not matter whether or when an agent
runs. A kill leaves the run unchanged, or forked: visible files are complete, and the run's own files are not
replaced but moved to `before-fork/`.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import find_places
from rla_client.contract.filesystem.atomic_write import FORK_COPY_PREFIX, TEMP_PREFIX, claim_name, temp_path
from rla_client.contract.item.foreign_mark import is_foreign
from rla_client.contract.layout import (
    CHECKPOINT,
    FETCHED_MARK,
    FOREIGN_MARK,
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    PARTS_FOLDER,
    SAMPLES,
    TMP_DATA,
)
from rla_client.contract.sharded_checkpoint.copy import copy_sharded
from rla_client.contract.sharded_checkpoint.pruned import is_called_whole
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders
from rla_client.run.run import Run

BEFORE_FORK = "before-fork"
COPIED_AT_ONCE = (CHECKPOINT, OTHER_RESULTS, TMP_DATA, SAMPLES, HYPARAMETER)
PLACED_S = 5.0  # for a living agent to put the logs in their places
POLL_S = 0.02
SNAPSHOT_ENDING = ".pkl"  # a .pt bears the stamp of its run
NOT_FORKED = (
    "run.json",
    FETCHED_MARK,
    FOREIGN_MARK,
    "note.json",
    "environment.json",
    PARTS_FOLDER,
    "console*.txt",
    f"{HYPARAM_FILE_NAME}.*",
    f"{TEMP_PREFIX}*",
)


def copy_run_into(source: ItemFolders, item: ItemFolders, run: Run) -> str:
    """Copy a run's data into an open one, which continues them.

    Returns:
        The failure; empty on success.
    """
    aside = _free_name(source, item)
    staged = Path(item.folder(LOG)) / f"{FORK_COPY_PREFIX}{os.urandom(8).hex()}"
    try:
        staged.mkdir()
        _copy(Path(source.folder(LOG)), staged, aside)
        for kind in COPIED_AT_ONCE:
            _copy(Path(source.folder(kind)), Path(item.folder(kind)), aside)
        outbox = run.outbox
        goes_on = run.go_on(rows=None, staged=staged.name, abandoned=aside)
        problem = "" if goes_on or outbox is None else outbox.why_refused
    except (OSError, shutil.Error) as error:
        problem = str(error)
    if problem:
        shutil.rmtree(staged, ignore_errors=True)
        return problem
    deadline = time.monotonic() + PLACED_S
    while staged.exists() and time.monotonic() < deadline and agent_alive(find_places()):
        time.sleep(POLL_S)
    return ""


def _free_name(source: ItemFolders, item: ItemFolders) -> str:
    """A folder for the run's own files that neither run has yet."""
    name, number = BEFORE_FORK, 1
    kinds = (LOG, *COPIED_AT_ONCE)
    while any(
        os.path.lexists(os.path.join(one.folder(kind), name)) for one in (source, item) for kind in kinds
    ):
        number += 1
        name = f"{BEFORE_FORK}-{number}"
    return name


def _copy(source: Path, target: Path, aside: str) -> None:
    """Copy the plain files below a folder; files in the way move to the folder `aside`.

    A launcher's snapshots of another machine are not copied, since copies would count as the user's own.

    Raises:
        OSError: a file cannot be read or written.
    """
    for folder in _whole_folders(source):
        below = folder.relative_to(source)
        copy_sharded(folder, target / below.parent, partial(_make_way, aside=target / aside / below))
    for file in _plain_files(source):
        below = file.relative_to(source)
        final = target / below
        final.parent.mkdir(parents=True, exist_ok=True)
        temp = temp_path(final)
        try:
            shutil.copy2(file, temp, follow_symlinks=False)
            _place(temp, final, target / aside / below)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temp)


def _plain_files(folder: Path) -> Iterator[Path]:
    """Files that a fork copies: no links, and none that belong to the earlier run alone."""
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not (_left_out(name) or is_called_whole(Path(here, name)))]
        for name in names:
            path = Path(here, name)
            if _left_out(name) or not stat.S_ISREG(os.lstat(path).st_mode):
                continue
            if name.endswith(SNAPSHOT_ENDING) and is_foreign(path):
                warn(f"{path} came from another machine: it stays there, and loads with trust=True")
            else:
                yield path


def _whole_folders(folder: Path) -> Iterator[Path]:
    """Complete sharded checkpoints, each of which is copied as a whole."""
    for here, folders, _ in os.walk(folder):
        found = [name for name in folders if is_called_whole(Path(here, name))]
        folders[:] = [name for name in folders if not (_left_out(name) or name in found)]
        yield from (Path(here, name) for name in found)


def _make_way(final: Path, aside: Path) -> None:
    with suppress(FileNotFoundError):
        aside.parent.mkdir(parents=True, exist_ok=True)
        os.rename(final, aside)


def _left_out(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in NOT_FORKED)


def _place(temp: Path, final: Path, aside: Path) -> None:
    """Put a file in place, so that neither it nor a file of that name by the agent is lost."""
    while not claim_name(temp, final):
        _make_way(final, aside)
