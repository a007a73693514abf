"""Temp files beside the outputs of a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress

from rla_agent.pipeline.stream import Stream
from rla_agent.store.agent_db import AgentDatabase
from rla_client.contract.filesystem.atomic_write import OLD_TEMP_S, TEMP_PREFIX, UNNAMED_TEMP
from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.process.descriptors import closing_fd


def sweep_leftovers(stream: Stream, database: AgentDatabase) -> None:
    """Remove temp files that killed processes left beside the stream's outputs.

    A temp file of a rewrite bears its stream's name: one agent at a time has the stream, so when it
    takes the stream up or ends it, files of that name belong to nobody, unless agent.db says that one
    is about to take an output's name (an intent). Others (run.json, item files, what a client writes)
    may be in the making in another process, and go only when they are old.
    """
    intents = database.intents()
    for folder in {output.folder for output in stream.outputs}:
        sweep_temp_files(stream.opening.root, folder, stream.name, intents, time.time())


def sweep_temp_files(root: str, below: str, stream: str, intents: Collection[str], now: float) -> None:
    """Remove what killed processes left in one folder of a stream's outputs.

    Args:
        root: data root.
        below: the folder, relative to it.
        stream: its own temp files go whatever their age.
        intents: names that a rename still waits for.
        now: Unix seconds, against which the age of other temp files counts.
    """
    with suppress(OSError), closing_fd(open_folder(root, below)) as folder:  # not listed now: next time
        for name in os.listdir(folder):
            if name in intents or not name.startswith(TEMP_PREFIX):
                continue
            with suppress(OSError):
                if not name.startswith(f"{TEMP_PREFIX}{stream}-"):
                    written = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                    if not UNNAMED_TEMP.match(name) or now - written < OLD_TEMP_S:
                        continue
                os.unlink(name, dir_fd=folder)


def temp_name(stream: str) -> str:
    """A fresh name for a temp file of a stream's output."""
    return f"{TEMP_PREFIX}{stream}-{os.urandom(4).hex()}"
