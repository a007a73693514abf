"""A run that went on elsewhere: what is left of its earlier stream here must not touch its files.

A batch job is killed on one machine and its run is resumed on another, over a shared data root. The
first machine's spool still holds the earlier stream, and its agent would cut the run's files back to
what they were there. So run.json says how new the newest stream of the run is (`epoch`, the moment
when it was opened). A stream that is older is taken in beside the run, into `abandoned-<stream>/` below
each of its folders: nothing returned is lost, and the files belong to the agent of the newer one.

On one machine this never happens: a later stream waits until the earlier one is taken in.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from typing import Any

from rla_agent.pipeline.stream import Stream
from rla_client.contract.files import open_folder, read_small
from rla_client.contract.run_file import MAX_RUN_FILE_BYTES, RUN_FILE

EPOCH = "epoch"  # field of run.json
GONE_ON = "the run went on elsewhere"

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


def step_aside(stream: Stream) -> bool:
    """Whether a stream's run went on elsewhere; it then gets folders and outputs of its own.

    Raises:
        OSError: the item cannot be read, or the folders not be made.
    """
    opening = stream.opening
    if not stream.aside:
        folder = open_folder(opening.root, opening.folders["log"])
        try:
            if not newer_than(read_run_file(folder), opening.run, opening.epoch):
                return False
        finally:
            os.close(folder)
        below = f"abandoned-{stream.name[-8:]}"
        folders = {kind: os.path.normpath(f"{path}/{below}") for kind, path in opening.folders.items()}
        stream.step_aside(opening._replace(folders=folders, primary=False))
        _log.warning("%s: %s; what is left here goes to %s/", opening.log_folder, GONE_ON, below)
    for path in stream.opening.folders.values():
        os.close(open_folder(opening.root, path, create=True))
    return True
