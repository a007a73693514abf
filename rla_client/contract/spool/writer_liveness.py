"""The liveness of a stream's writer.

The writer holds a POSIX record lock on the lock file while it lives; the file has `<pid> <start time>`. A
held lock means a live writer; where it is free or its file is gone, an open-for-writing newest segment does.
The writer has that mapped as well, so that it counts as open as long as the process, whoever closes its
descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time

from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS
from rla_client.contract.process.locks import is_locked
from rla_client.contract.spool.segments import MAX_HOLDER_BYTES, segment_numbers, segment_path

LOCK_NAME = "lock"
LOCKLESS_S = 600.0  # after its last row a writer of unknown state counts as dead
_NO_LOCK_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO}
_F_SETLEASE, _F_SETSIG = 1024, 10  # of Linux


def writer_alive(folder: str | os.PathLike[str], spool: int | None = None) -> bool | None:
    """Whether the writer of a stream lives; True when that cannot be found out, None if its folder is away.

    It lives while it holds the lock. A free lock, or one whose file is missing or replaced, proves nothing: a
    cleaner may delete the file, and any code in the writing process that opens and closes it (a copy of the
    state folder) releases the lock. Then the writer lives while a process has the newest segment open for
    writing, or mapped for it: that lasts while its program runs, also where some code closed all descriptors,
    until the next record opens the segment again.

    All checks are made in one open folder, whatever takes its name meanwhile. A missing one (the spool is
    renamed, say) may come back, and proves nothing.

    Never call it in the writing process itself: closing any descriptor of a POSIX-locked file
    drops the lock.

    Args:
        folder: of the stream.
        spool: descriptor of the folder of the streams, for the stream in that one, whatever its path is now.
    """
    try:
        held = os.open(folder if spool is None else os.path.basename(folder), FOLDER_FLAGS, dir_fd=spool)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return True  # out of descriptors or memory: the writer's state is unknown
    try:
        return _writes_in(held)
    finally:
        os.close(held)


def _writes_in(folder: int) -> bool:
    named = b""
    try:
        descriptor = os.open(LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NO_LOCK_FILE:
            return True
    else:
        try:
            if is_locked(descriptor):
                return True
            named = os.pread(descriptor, MAX_HOLDER_BYTES, 0)
        except OSError:
            return True
        finally:
            os.close(descriptor)
    return _segment_is_written(folder, named)


def _segment_is_written(folder: int, named: bytes) -> bool:
    """Whether a process has the newest segment open for writing; True when that cannot be determined.

    The kernel grants a read lease only on files that nobody has open for writing. That is reliable over pid
    namespaces, after exec, and where the pid of a dead process was reused.

    Args:
        folder: of the stream; a descriptor.
        named: content of the lock file, for file systems without leases.
    """
    try:
        numbers = segment_numbers(folder)
        newest = segment_path("", numbers[-1])
        descriptor = os.open(newest, READ_FLAGS, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError, IndexError):
        return False
    except OSError as error:
        return error.errno != errno.ELOOP
    try:
        found = _is_open_for_writing(descriptor)
        if found is None:
            written = os.fstat(descriptor).st_mtime
            found = process_lives(named) if named else time.time() - written < LOCKLESS_S
        return found or segment_numbers(folder) != numbers
    except FileNotFoundError:
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)


def _is_open_for_writing(descriptor: int) -> bool | None:
    """Whether any process has an open file open for writing, too; None where the kernel does not tell."""
    try:
        fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGURG)  # ignored, where SIGIO would end the process
        fcntl.fcntl(descriptor, _F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, _F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    return False


def process_lives(named: bytes) -> bool:
    """Whether the process of a lock file's `<pid> <start time>` lives on this machine.

    It decides where the lock is free and the file system has no leases; a writer that releases the stream
    empties the file.
    """
    pid, _, start = named.decode("ascii", "replace").strip().partition(" ")
    if not (pid.isdecimal() and start.isdecimal()):
        return False
    found = process_start(int(pid))
    return found is not None and found == int(start)


def process_start(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])
