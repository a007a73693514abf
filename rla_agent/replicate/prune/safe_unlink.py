"""Deletion of a file only while it is unchanged.

A training process may replace the file with a new checkpoint just before unlink(2), and no system call
deletes a name only if it still refers to a certain file. So the file is renamed to a temp name in its folder,
checked there, and then deleted, or renamed back unless a later file has its name. Readers in between use the
note. After a SIGKILL in between, `finish_prune` completes it on the next pass: the file of the note is
deleted, any other gets its name back.
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
    """Delete a file of an open folder if it is unchanged (`local`).

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
    """Finish interrupted prunings in an open folder; failures wait for the next pass."""
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
    """Rename a file back, unless a later one has replaced it."""
    if claim_name(aside, name, dir_fd=folder):
        return
    if not stat.S_ISDIR(os.stat(aside, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(aside, dir_fd=folder)
