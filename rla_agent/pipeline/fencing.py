"""A run that went on elsewhere: what is left of its earlier stream here must not touch its files.

A batch job is killed on one machine and its run is resumed on another, over a shared data root. The
first machine's spool still holds the earlier stream, and its agent would cut the run's files back to
what they were there. So run.json says how new the newest stream of the run is (`epoch`, the moment
when it was opened). A stream that is older is taken in beside the run, into `abandoned-<stream>/` below
each of its folders: nothing returned is lost, and the files belong to the agent of the newer one.

On one machine this never happens: a later stream waits until the earlier one is taken in.

A copy of a spool (a backup, a state folder that was copied to try something) is such an earlier stream, too:
where the stream that it was copied from is still there, or its run has ended, the copy is taken in beside
the run. A mark in the copy's folder keeps that, whatever becomes of the other.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_agent.pipeline.stream import Stream
from rla_client.contract.files import FOLDER_FLAGS, is_there, open_folder, read_small, write_atomic
from rla_client.contract.locks import holder_pid
from rla_client.contract.run_file import LIVE_STATES, MAX_RUN_FILE_BYTES, RUN_FILE
from rla_client.contract.segments import writer_alive

EPOCH = "epoch"  # field of run.json
GONE_ON = "the run went on elsewhere"
COPY = "this is a copy of the stream in {}"
COPY_NAME = "copy"  # the mark in a stream's folder

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


def step_aside(stream: Stream, *, lived: bool) -> bool:
    """Whether a stream's run went on elsewhere; it then gets folders and outputs of its own.

    Args:
        stream: that is taken up.
        lived: agent.db knows of no end of its run.

    Raises:
        OSError: the item cannot be read, or the folders not be made.
    """
    opening = stream.opening
    if not stream.aside:
        folder = open_folder(opening.root, opening.folders["log"])
        try:
            content = read_run_file(folder)
        finally:
            os.close(folder)
        why, epoch = GONE_ON, opening.epoch
        if not newer_than(content, opening.run, epoch):
            ended = content.get("run_id") == opening.run and content.get("state") not in LIVE_STATES
            if not _is_copy(stream, ended=lived and ended):
                return False
            why, epoch = COPY.format(opening.spool), epoch - 1
        below = f"abandoned-{stream.name[-8:]}"
        folders = {kind: os.path.normpath(f"{path}/{below}") for kind, path in opening.folders.items()}
        stream.step_aside(opening._replace(folders=folders, primary=False, epoch=epoch))
        _log.warning("%s: %s; what is left here goes to %s/", opening.log_folder, why, below)
    for path in stream.opening.folders.values():
        os.close(open_folder(opening.root, path, create=True))
    return True


def _is_copy(stream: Stream, *, ended: bool) -> bool:
    """Whether a stream's folder was copied from one that is in use, or whose run has `ended` since.

    Raises:
        OSError: that cannot be found out, or not be marked.
    """
    mark = stream.folder / COPY_NAME
    if is_there(mark):
        return True
    if not stream.opening.spool:  # of an earlier release
        return False
    original = Path(stream.opening.spool, stream.name)
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        if os.path.samefile(original, stream.folder):
            return False
        ended = ended or _in_use(original)
    if ended and os.path.realpath(stream.folder) != str(original):
        write_atomic(mark, b"", mode=0o600)
        return True
    return False


def _in_use(folder: Path) -> bool:
    """Whether a stream has a writer, or an agent that serves it."""
    if writer_alive(folder):
        return True
    spool = os.open(folder.parent, FOLDER_FLAGS)
    try:
        return holder_pid(spool) is not None
    finally:
        os.close(spool)
