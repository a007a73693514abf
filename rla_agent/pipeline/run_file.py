"""Agent's access to the file run.json of a run."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rla_agent.model.run_record import RunRecord
from rla_agent.model.run_states import RunState
from rla_agent.outputs.data_root_presence import same_root, why_parked
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.run_file import MAX_RUN_FILE_BYTES, RUN_FILE
from rla_client.contract.run_part import run_file_name
from rla_client.contract.spool.opening import Opening

EPOCH = "epoch"  # field of run.json
TAKEN = "taken"  # likewise
_log = logging.getLogger("rla_agent.pipeline.run_file")


def write_run_file(record: RunRecord, now: float, opening: Opening | None = None) -> str:
    """Write run.json into the run's log folder, unless that was removed.

    Args:
        record: of the run.
        now: Unix seconds.
        opening: of a stream of the run, which knows its data root from another one of that name.

    Returns:
        Why it has to be retried: the disk refused it, or the data root is missing; empty on success.
    """
    content = json.dumps(record.to_plain(now), indent=1).encode()
    below = os.path.relpath(record.log_folder, record.root)
    try:
        folder = open_folder(record.root, below)
    except OSError:
        if record.state is RunState.REMOVED:
            return ""
        there = os.path.isdir(record.root) if opening is None else same_root(opening)
        return "" if there else f"run.json is not written: {why_parked(record.root)}"
    try:
        with closing_fd(folder):
            name = run_file_name(record.part)
            found, epoch = read_run_file(folder, name), int(record.extra.get(EPOCH, 0))
            behind = found.get(EPOCH) == epoch and further_than(found, record.run, record.taken)
            if not behind and not newer_than(found, record.run, epoch):  # else it is another agent's by now
                write_atomic(f"/proc/self/fd/{folder}/{name}", content, mode=file_mode(folder))
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            return f"cannot write run.json, retrying: {error.strerror}: {record.log_folder}"
        _log.warning("run.json not written: %s: %s", record.log_folder, error)
    return ""


def read_run_file(folder: int, name: str = RUN_FILE) -> dict[str, Any]:
    """run.json in an open folder, or another file like it; empty without a readable one."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(read_small(name, MAX_RUN_FILE_BYTES, dir_fd=folder))
        if isinstance(content, dict):
            return content
    return {}


def newer_than(content: dict[str, Any], run: str, epoch: int) -> bool:
    """Whether a run.json was written by a later stream of the same run."""
    newest = content.get(EPOCH)
    return content.get("run_id") == run and isinstance(newest, int) and newest > epoch


def further_than(content: dict[str, Any], run: str, reached: Mapping[str, tuple[int, int]]) -> bool:
    """Whether a run.json is of a moment when more of the same run's streams was taken in.

    Args:
        content: of run.json.
        run: id.
        reached: stream → how far it is known here: a segment and an offset in it.
    """
    taken = content.get(TAKEN)
    if content.get("run_id") != run or not isinstance(taken, dict):
        return False
    for stream, position in reached.items():
        match taken.get(stream):
            case [int() as number, int() as offset] if (number, offset) > position:
                return True
    return False
