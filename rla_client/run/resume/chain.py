"""A run that continues an earlier one in a new item.

The earlier run is one of this machine, or was fetched from the master (`fetch_run`). It is not written any
more: the new item's `parent` in run.json names it, with `chain` set; its checkpoint is copied into the new
item, so that the chain can continue on a third machine. Queries return the chain as one run
(`rla_client.database.tree.chains.chain_of`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.checkpoint.listing import list_checkpoints
from rla_client.contract.checkpoint.checkpoint_age import oldest_first, save_time
from rla_client.contract.filesystem.atomic_write import replacing, write_atomic
from rla_client.contract.layout import CHECKPOINT, RESUME_FOLDER
from rla_client.contract.sharded_checkpoint.copy import copy_sharded
from rla_client.contract.sharded_checkpoint.files import folder_name
from rla_client.contract.sharded_checkpoint.folder import read_whole
from rla_client.contract.sharded_checkpoint.retention import list_whole
from rla_client.run.item import ItemFolders
from rla_client.run.resume.find_run import read_run_file
from rla_client.run.resume.resume_point import read_marks
from rla_client.run.run_checkpoints import CHECKPOINT_NAME
from rla_client.run.state.resume_state import arrays_of, read_resume_state

NO_ROWS = b'{"rows": 0, "outputs": {}}'  # of the new item, at the checkpoint that it begins with


@dataclass(frozen=True, slots=True)
class Chained:
    """Where a chain continues.

    Attributes:
        parent: the earlier run, now here too.
        time_step: of the checkpoint.
        state: stored beside it by `save_checkpoint`.
        link: for run.json's `parent`.
    """

    parent: ItemFolders
    time_step: int
    state: dict[str, Any]
    link: dict[str, Any]


def chain_here(item: ItemFolders) -> Chained | None:
    """Continue a run of this machine in a new item, where it cannot be continued in place.

    Returns:
        None where no checkpoint of it is on the disk.
    """
    folder = Path(item.folder(CHECKPOINT))
    files = list_checkpoints(folder, CHECKPOINT_NAME)
    found = [save_time(folder, path.name, step) for step, path in files[-1:]]
    found += [save_time(folder, name, whole.save.step) for name, whole in list_whole(folder, CHECKPOINT_NAME)]
    return chain_from(item, oldest_first(found)[-1].time_step, read_run_file(item)) if found else None


def chain_from(parent: ItemFolders, step: int, told: Mapping[str, Any]) -> Chained:
    """A chain from a checkpoint of `parent`; `told`: that run's description by run.json or the agent."""
    folder = Path(parent.folder(CHECKPOINT))
    link = {
        "run": parent.index.path,
        "table": parent.table,
        "time_step": step,
        "rows": read_marks(folder, CHECKPOINT_NAME, step).get("rows"),
        "chain": True,
        "run_id": told.get("run_id"),
        "host": told.get("host"),
    }
    return Chained(parent, step, read_resume_state(folder, CHECKPOINT_NAME, step) or {}, link)


def take_checkpoint(chained: Chained, item: ItemFolders) -> None:
    """Copy the first checkpoint into the new item.

    Raises:
        OSError: the disk is full, and the like.
    """
    source, target = Path(chained.parent.folder(CHECKPOINT)), Path(item.folder(CHECKPOINT))
    name = f"{CHECKPOINT_NAME}_{chained.time_step}"
    sharded = source / folder_name(CHECKPOINT_NAME, chained.time_step)
    if read_whole(sharded) is not None:
        copy_sharded(sharded, target)
    found = source / f"{name}.pt"
    if not found.exists():
        found = source / f"{CHECKPOINT_NAME}-{chained.time_step}.pt"
    if found.exists() or read_whole(target / sharded.name) is None:
        with replacing(target / f"{name}.pt", durable=False) as temp:
            try:
                os.link(found, temp)
            except OSError:
                shutil.copy2(found, temp)  # a file system without links
    below = target / RESUME_FOLDER
    below.mkdir(exist_ok=True)
    for kept in (*arrays_of(source, name), source / RESUME_FOLDER / f"{name}.state"):
        if kept.exists():
            write_atomic(below / kept.name, kept.read_bytes(), mode=kept.stat().st_mode & 0o666)
    write_atomic(below / f"{name}.marks.json", NO_ROWS)
