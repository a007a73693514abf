"""Deletion of a file that still is the one that was looked at.

A training process may put a new checkpoint in the file's place just before unlink(2), and no call deletes a
name only if it still means a certain file. So the file is moved to a temp name in its folder, looked at
there, and then deleted, or given its name back unless something later has that. Readers in between find the
note. After a SIGKILL in between, `finish_prune` does the rest on the next pass: the file that the note is
about goes, any other gets its name back.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import Final

from rla_agent.replicate.file_state import Local
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, claim_name
from rla_client.contract.item.prune_notes import read_note

ASIDE_PREFIX: Final = os.fsencode(TEMP_PREFIX) + b"prune-"
_ASIDE: Final = re.compile(re.escape(ASIDE_PREFIX) + rb"[0-9a-f]{8}-(.+)\Z", re.DOTALL)
MAX_NAME_BYTES: Final = 255 - len(ASIDE_PREFIX) - len("01234567-")  # of a file that can be moved aside


def take_away(folder: int, name: bytes, local: Local) -> bool:
    """Delete a file of an open folder if it still is as it was looked at (`local`).

    False where another file had the name, of MAX_NAME_BYTES at most: that one is kept.

    Raises:
        OSError: it is not there, or cannot be deleted.
    """
    aside = ASIDE_PREFIX + os.urandom(4).hex().encode() + b"-" + name
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    try:
        found = os.stat(aside, dir_fd=folder, follow_symlinks=False)
        # st_ctime is that of the rename
        if (found.st_ino, found.st_size, found.st_mtime_ns) == (local.ino, local.size, local.mtime_ns):
            os.unlink(aside, dir_fd=folder)
            return True
    except OSError:
        _give_back(folder, aside, name)
        raise
    _give_back(folder, aside, name)
    return False


def finish_prune(folder: int) -> None:
    """Finish what killed pruners left in an open folder; what cannot be done now waits for the next pass."""
    with suppress(OSError):
        for entry in os.listdir(folder):
            match = _ASIDE.match(os.fsencode(entry))
            if match is not None:
                _finish_one(folder, match[0], match[1])


def _finish_one(descriptor: int, aside: bytes, name: bytes) -> None:
    found = os.stat(aside, dir_fd=descriptor, follow_symlinks=False)
    note = read_note(f"/proc/self/fd/{descriptor}", os.fsdecode(name))
    if note is not None and (found.st_size, found.st_mtime_ns) == (note.size, note.mtime_ns):
        os.unlink(aside, dir_fd=descriptor)  # all was checked before it was moved
    else:
        _give_back(descriptor, aside, name)


def _give_back(folder: int, aside: bytes, name: bytes) -> None:
    """Give a file its name back, unless a later one has it, which has then taken its place."""
    if claim_name(aside, name, dir_fd=folder):
        return
    if not stat.S_ISDIR(os.stat(aside, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(aside, dir_fd=folder)
