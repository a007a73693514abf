"""Cleanup of unused shared memory."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.job.arena_layout import (
    ARENA_FOLDER,
    ARENA_HEADER,
    ARENA_MAGIC,
    ARENA_OWNER_MAX,
    ARENA_OWNER_OFFSET,
    ARENA_PREFIX,
    ArenaName,
    spool_key,
    stream_key,
)
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.process.locks import try_lock


def sweep_arenas(spool: Path, live_streams: Callable[[Path], Iterable[str]]) -> list[str]:
    """Remove unused shared memory.

    An arena is removed when no live process holds its lock and either its stream belongs to `spool` and is
    not live, or its stream's folder is gone (of an agent that has ended).

    Args:
        spool: this agent's spool folder.
        live_streams: returns the names of streams that have, or may still get, checkpoint jobs. It is called
            after the arenas were listed: a stream exists before its first arena, so that one which began,
            and was killed, while this process was suspended keeps its saves.

    Returns:
        Names of the files that were removed.
    """
    own = spool_key(spool)
    removed = []
    try:
        entries = os.listdir(ARENA_FOLDER)
    except OSError:
        return []
    live = {stream_key(stream) for stream in live_streams(spool)}
    for entry in entries:
        name = ArenaName.parse(entry) if entry.startswith(ARENA_PREFIX) else None
        if name is None or name.uid != os.geteuid() or (name.spool_key == own and name.stream_key in live):
            continue
        if _is_abandoned(entry, own=name.spool_key == own):
            with suppress(OSError):
                os.unlink(os.path.join(ARENA_FOLDER, entry))
                removed.append(entry)
    return removed


def _is_abandoned(entry: str, *, own: bool) -> bool:
    try:
        with closing_fd(os.open(os.path.join(ARENA_FOLDER, entry), READ_FLAGS)) as descriptor:
            if os.fstat(descriptor).st_uid != os.geteuid():
                return False
            if not try_lock(descriptor, shared=True):  # shared: two sweepers do not see each other
                return False  # a client lives
            if own:
                return True
            header = os.pread(descriptor, ARENA_HEADER.size, 0)
            magic, _, _, _, length = ARENA_HEADER.unpack(header)
            folder = os.pread(descriptor, min(length, ARENA_OWNER_MAX), ARENA_OWNER_OFFSET)
            return bool(magic == ARENA_MAGIC and folder and not os.path.lexists(folder))
    except (OSError, ValueError, OverflowError, struct.error):
        return False  # the header is not written yet, or never will be
