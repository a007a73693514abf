"""Fencing of streams of runs that were continued elsewhere.

A run killed on one machine may be resumed on another, over a shared data root; the agent of the first must
not cut its files back then. So run.json says how new the run's newest stream is (`epoch`, when it was
opened). An older stream is taken in beside the run, into `abandoned-<stream>/` below each of its folders:
no row is lost, and the files belong to the agent of the newer one. On one machine a later stream waits
until the earlier one is taken in.

A spool may also be older than the files (a restored backup): run.json says how far each stream was taken in
(`taken`), and one that ends before that is fenced, too. So is a copy whose original is in use: it has a
writer or an agent, or holds more. A mark in the stream's folder makes the fence permanent, whatever becomes
of original and run.json.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from rla_agent.model.records import Position
from rla_agent.pipeline.run_file import further_than, newer_than, read_run_file
from rla_agent.pipeline.stream import Stream
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS, is_there, open_folder
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.process.locks import try_lock
from rla_client.contract.run_part import run_file_name
from rla_client.contract.spool.segments import end_of
from rla_client.contract.spool.writer_liveness import writer_alive

COPY_NAME = "copy"  # the mark in a stream's folder; both reasons below leave it
CONTINUED_ELSEWHERE = "the run went on elsewhere"
_OLDER_COPY = "its files hold more than this spool, which is an older copy"
_COPY_IN_USE = "its stream here is a copy of one that is in use"
_log = logging.getLogger("rla_agent.pipeline.fencing")


def fence(stream: Stream, stored: Position) -> bool:
    """Whether a stream's run was continued elsewhere; it then gets folders and outputs of its own.

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
        stream.fence(opening._replace(folders=folders, primary=False, epoch=opening.epoch - 1))
        _log.warning("%s: %s; what is left here goes to %s/", opening.log_folder, why, below)
    for path in stream.opening.folders.values():
        os.close(open_folder(opening.root, path, create=True))
    return True


def _why_aside(stream: Stream, stored: Position) -> str:
    """Reason why a stream must leave its run's files alone; empty when they are its own."""
    opening = stream.opening
    with closing_fd(open_folder(opening.root, opening.folders["log"])) as folder:
        run = read_run_file(folder)
        content = read_run_file(folder, run_file_name(opening.part)) if opening.part else run
    if newer_than(run, opening.run, opening.epoch) or newer_than(content, opening.run, opening.epoch):
        return CONTINUED_ELSEWHERE
    mark = stream.folder / COPY_NAME
    if is_there(mark):
        return _COPY_IN_USE
    end = Position(*end_of(stream.folder))
    if further_than(content, opening.run, {stream.name: max(stored, stream.durable, end)}):
        why = _OLDER_COPY
    elif _is_copy(stream, end):
        why = _COPY_IN_USE
    else:
        return ""
    write_atomic(mark, b"", mode=0o600)
    return why


def _is_copy(stream: Stream, end: Position) -> bool:
    """Whether a stream's folder was copied from one that is in use.

    Raises:
        OSError: that cannot be found out.
    """
    if not stream.opening.spool:  # the folder of its origin is not recorded
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
    with closing_fd(os.open(folder.parent, FOLDER_FLAGS)) as spool:
        try:
            return not try_lock(spool, shared=True)
        except OSError:  # no such locks on this file system
            return False
