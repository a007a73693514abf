"""Checkpoints of a run in order of their saves."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_client.contract.checkpoint.checkpoint_age import SaveTime, oldest_first, save_time
from rla_client.contract.filesystem.safe_paths import held_folder, open_folder
from rla_client.contract.item.prune_notes import pruned_files
from rla_client.contract.layout import CHECKPOINT, PRUNED_FOLDER
from rla_client.contract.sharded_checkpoint.files import folder_name
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole
from rla_client.contract.sharded_checkpoint.status import sharded_status
from rla_client.database.noted_checkpoints import NotedCheckpoint, noted_checkpoints
from rla_client.database.results_by_name import stepped
from rla_client.database.text.numbers import plain
from rla_client.database.tree.items import NO_CHECKPOINTS
from rla_client.web.item_files import MAX_LISTED, item_of, list_files
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import Site


def _noted(one: NotedCheckpoint) -> str:
    """The location text of a checkpoint that another program wrote."""
    if not one.by_call:
        return "noted: as the Trainer wrote it"
    state = {None: "not looked at from here", True: "complete", False: "not complete"}[one.complete]
    return ", ".join([f"noted: {state}", *(f"{name} {plain(value)}" for name, value in one.metrics.items())])


def checkpoints(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The checkpoints in the order of their saves, as rows [path, bytes, time, time-step, location].

    The location is `here` or a master. A sharded checkpoint is one row; its location is `here:` or
    `not whole:` with its shards. Checkpoints that are known only by a note come first: without a time, and
    without bytes where they were not inspected.
    """
    entry = asked_run(site, asked)
    found = list_files(site, entry, CHECKPOINT)
    rows: dict[str, list[Any]] = {
        one.path: [*one, stepped(one.path)[0], "here"]
        for one in found.files
        if one.path.partition("/")[0] not in NO_CHECKPOINTS
    }
    orders: dict[str, int | None] = {}
    root, item = site.database(entry).data_root, item_of(entry, CHECKPOINT)
    with suppress(OSError), held_folder(root, item) as folder:
        own = [path for path in rows if "/" not in path]
        orders.update((path, save_time(folder, path, -1).order) for path in own)
        _merge_shards(folder, rows, orders)
        os.close(open_folder(root, f"{item}/{PRUNED_FOLDER}"))  # raises OSError if it is a link
        for note in pruned_files(folder):
            rows[note.name] = [note.name, note.size, note.mtime_ns / 1e9, stepped(note.name)[0], note.target]
            orders[note.name] = note.order
    ages = [
        SaveTime(path, -1 if row[3] is None else int(row[3]), int((row[2] or 0) * 1e9), orders.get(path))
        for path, row in rows.items()
    ]
    noted = noted_checkpoints(site.database(entry).data_root, entry.record.table, entry.record.index)
    elsewhere = [[one.path, one.size, None, one.step, _noted(one)] for one in noted]
    listed = [*elsewhere, *(rows[one.name] for one in oldest_first(ages))]
    return {
        "files": listed[-MAX_LISTED:],
        "count": len(rows) + len(elsewhere),
        "cut": found.cut,
        "bytes": sum(row[1] for row in rows.values()),
    }


def _merge_shards(folder: Path, rows: dict[str, list[Any]], orders: dict[str, int | None]) -> None:
    """Replace the rows of each sharded checkpoint's files by one row."""
    for one in sharded_status(folder):
        name = folder_name(one.name, one.step)
        key = name if one.whole else f"{name} in the making"
        here = [rows.pop(path) for path in list(rows) if path.startswith(name + "/")] if one.whole else []
        time = max((row[2] for row in here), default=one.order / 1e9 or None)
        what = str(one).partition(": ")[2].removeprefix("whole, ")
        where = f"here: {what}" if one.whole else f"not whole: {what}"
        if one.pruned and (note := note_of_whole(one.path)) is not None:
            where = note.target
        rows[key] = [name, one.size, time, one.step, where]
        orders[key] = one.order or None
