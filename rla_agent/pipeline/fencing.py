"""A run that went on elsewhere: what is left of its earlier stream here must not touch its files.

A batch job is killed on one machine and its run is resumed on another, over a shared data root. The
first machine's spool still holds the earlier stream, and its agent would cut the run's files back to
what they were there. So run.json says how new the newest stream of the run is (`epoch`, the moment
when it was opened). A stream that is older is taken in beside the run, into `abandoned-<stream>/` below
each of its folders: nothing returned is lost, and the files belong to the agent of the newer one.

On one machine this never happens: a later stream waits until the earlier one is taken in.

A spool may also be older than the files: a backup of a home, or of a machine, is restored, and the data root
lies elsewhere. So run.json says how far each stream was taken in (`taken`). A stream that ends before that
(here, and by agent.db) would cut the files back to what they were then; it is taken in beside the run, too.

So is a copy whose original is in use (a state folder was copied to try something): it has a writer or an
agent, or holds more. A mark in the stream's folder keeps that, whatever becomes of original and run.json.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_agent.model.ingest import Position
from rla_agent.pipeline.stream import Stream
from rla_client.contract.descriptors import try_lock
from rla_client.contract.files import FOLDER_FLAGS, is_there, open_folder, read_small, write_atomic
from rla_client.contract.opening import MAX_RUN_FILE_BYTES, RUN_FILE
from rla_client.contract.segments import end_of, writer_alive

EPOCH = "epoch"  # field of run.json
TAKEN = "taken"  # likewise
GONE_ON = "the run went on elsewhere"
_OLDER = "its files hold more than this spool, which is an older copy"
_COPY = "its stream here is a copy of one that is in use"
COPY_NAME = "copy"  # the mark in a stream's folder; both reasons leave it

_log = logging.getLogger("rla_agent.pipeline.fencing")


def read_run_file(folder: int) -> dict[str, Any]:
    """run.json in an open folder; empty without a readable one."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(read_small(RUN_FILE, MAX_RUN_FILE_BYTES, dir_fd=folder))
        if isinstance(content, dict):
            return content
    return {}


def newer_than(content: dict[str, Any], run: str, epoch: int) -> bool:
    """Whether a run.json is that of a later stream of the same run."""
    found = content.get(EPOCH)
    return content.get("run_id") == run and isinstance(found, int) and found > epoch


def further_than(content: dict[str, Any], run: str, reached: Mapping[str, tuple[int, int]]) -> bool:
    """Whether a run.json is of a moment when more of the same run's streams was taken in.

    Args:
        content: of run.json.
        run: id.
        reached: stream → how far it is known here: a segment and an offset in it.
    """
    found = content.get(TAKEN)
    if content.get("run_id") != run or not isinstance(found, dict):
        return False
    for stream, position in reached.items():
        match found.get(stream):
            case [int() as number, int() as offset] if (number, offset) > position:
                return True
    return False


def _why_aside(stream: Stream, stored: Position) -> str:
    """Why a stream must leave its run's files alone; empty when they are its own."""
    opening = stream.opening
    folder = open_folder(opening.root, opening.folders["log"])
    try:
        content = read_run_file(folder)
    finally:
        os.close(folder)
    if newer_than(content, opening.run, opening.epoch):
        return GONE_ON
    mark = stream.folder / COPY_NAME
    if is_there(mark):
        return _COPY
    end = Position(*end_of(stream.folder))
    if further_than(content, opening.run, {stream.name: max(stored, stream.durable, end)}):
        why = _OLDER
    elif _is_copy(stream, end):
        why = _COPY
    else:
        return ""
    write_atomic(mark, b"", mode=0o600)
    return why


def step_aside(stream: Stream, stored: Position) -> bool:
    """Whether a stream's run went on elsewhere; it then gets folders and outputs of its own.

    Args:
        stream: with all that is there of it.
        stored: how far agent.db says that it was taken in.

    Raises:
        OSError: the item cannot be read, or the folders not be made.
    """
    opening = stream.opening
    if not stream.aside:
        why = _why_aside(stream, stored)
        if not why:
            return False
        below = f"abandoned-{stream.name[-8:]}"
        folders = {kind: os.path.normpath(f"{path}/{below}") for kind, path in opening.folders.items()}
        # one less than its own: whatever it says of the run, it is not the last word
        stream.step_aside(opening._replace(folders=folders, primary=False, epoch=opening.epoch - 1))
        _log.warning("%s: %s; what is left here goes to %s/", opening.log_folder, why, below)
    for path in stream.opening.folders.values():
        os.close(open_folder(opening.root, path, create=True))
    return True


def _is_copy(stream: Stream, end: Position) -> bool:
    """Whether a stream's folder was copied from one that is in use.

    Raises:
        OSError: that cannot be found out.
    """
    if not stream.opening.spool:  # of an earlier release
        return False
    original = Path(stream.opening.spool, stream.name)
    if os.path.realpath(stream.folder) == os.path.realpath(original):
        return False
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        return not os.path.samefile(original, stream.folder) and _in_use(original, end)
    return False


def _in_use(folder: Path, end: Position) -> bool:
    """Whether a stream has a writer, an agent that serves it, or more than up to `end`."""
    if writer_alive(folder) or end_of(folder) > end:
        return True
    spool = os.open(folder.parent, FOLDER_FLAGS)
    try:
        return not try_lock(spool, shared=True)
    except OSError:  # no such locks there: that says nothing
        return False
    finally:
        os.close(spool)
