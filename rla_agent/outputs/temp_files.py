"""Names of temp files that the agent writes beside outputs, and their removal after a kill.

A temp file of a rewrite bears its stream's name: one agent at a time has the stream, so when it
takes the stream up or ends it, files of that name belong to nobody, unless agent.db says that one
is about to take an output's name (an intent). Others (run.json, item files, what a client writes)
may be in the making in another process, and go only when they are old.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress

from rla_client.contract.files import OLD_TEMP_S, TEMP_PREFIX, UNNAMED_TEMP, open_folder


def temp_name(stream: str) -> str:
    """A fresh name for a temp file of a stream's output."""
    return f"{TEMP_PREFIX}{stream}-{os.urandom(4).hex()}"


def sweep_temp_files(root: str, below: str, stream: str, intents: Collection[str], now: float) -> list[str]:
    """Remove what killed processes left in one folder of a stream's outputs.

    Args:
        root: data root.
        below: the folder, relative to it.
        stream: its own temp files go whatever their age.
        intents: names that a rename still waits for.
        now: Unix seconds, against which the age of other temp files counts.

    Returns:
        Names removed; a folder that is not there has none.
    """
    removed: list[str] = []
    try:
        folder = open_folder(root, below)
    except OSError:
        return removed
    try:
        for name in os.listdir(folder):
            if name in intents or not name.startswith(TEMP_PREFIX):
                continue
            with suppress(OSError):
                if not name.startswith(f"{TEMP_PREFIX}{stream}-"):
                    written = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
                    if not UNNAMED_TEMP.match(name) or now - written < OLD_TEMP_S:
                        continue
                os.unlink(name, dir_fd=folder)
                removed.append(name)
    except OSError:
        return removed  # it cannot be listed: next time
    finally:
        os.close(folder)
    return removed
