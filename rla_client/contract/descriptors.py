"""What is ours in somebody else's process: file descriptors and their locks; what a forked child renews.

Training code and its libraries close descriptors that they did not open (`os.closerange` in whatever turns
itself into a daemon), and write to numbers that they expect to be open (1 and 2). So what stays open here
gets a high number, and is asked whether it still leads to our file before it is written to, cut or closed.

Locks are on open files: none outlives the process that holds it, and none is a file that could be left.
flock belongs to the open file: it ends with its last descriptor or mapping, also one that a fork copied.
It is for locks that only those ask for who want them. A record lock can be looked at without being taken
(`is_locked`): so clients see whether an agent serves, and the agent whether a writer lives.

Descriptors of memory and of processes are also had where a build of Python, conda's among them, lacks the
system calls that the kernel has.

Only the forking thread continues in a child. A lock that another thread held at that moment stays locked
there for ever, and what belongs to the parent (its stream, its sockets, the values of its next row) must not
be used twice. Objects with such things say so by `at_fork`.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import resource
import signal
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Protocol

FLOOR = 512  # files of a training rarely get that far, and the usual soft limit is 1024
LEAST = 3  # what a C library prints goes to 1 and 2, whatever is there
POLL_S = 0.025
_FLOCK = struct.Struct("hhqqi")  # struct flock on 64-bit Linux, natively aligned
_MFD_CLOEXEC = 1
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434  # the same on all machines

Identity = tuple[int, int]  # device and inode


def lowest_own() -> int:
    """The lowest number that our files get."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FLOOR if soft == resource.RLIM_INFINITY else min(FLOOR, soft // 2)


@cache  # once for a process
def grow_soon() -> None:
    """Have the kernel make room for high numbers meanwhile.

    In a process with threads that takes some 17 ms, once; nothing else waits for it.
    """
    with suppress(OSError, RuntimeError):  # no /proc; no more threads
        if len(os.listdir("/proc/self/task")) > 1:
            threading.Thread(target=_grow, name="rla-descriptors", daemon=True).start()


def _grow() -> None:
    for descriptor in range(LEAST):
        with suppress(OSError):
            os.close(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest_own()))
            return


def lift(descriptor: int) -> int:
    """Give an open file a high number and close the one it had; keep that where there is no other.

    Raises:
        OSError: it has the number of a standard stream, and there is no other; it is closed.
    """
    floor = lowest_own()
    if descriptor >= floor:
        return descriptor
    for least in (floor, LEAST):
        with suppress(OSError):
            lifted = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
            os.close(descriptor)
            return lifted
    if descriptor < LEAST:
        os.close(descriptor)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return descriptor


@contextmanager
def standard_taken() -> Iterator[None]:
    """Keep the numbers 0 to 2 from files that are opened meanwhile, also by a library.

    Where a program closed its standard streams they are the next ones that a file gets, and what a C library
    prints at that moment would be in it.
    """
    taken: list[tuple[int, Identity]] = []
    try:
        with suppress(OSError):  # no /dev/null here
            while not all(map(_is_open, range(LEAST))):
                number = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                taken.append((number, identity(number)))
        yield
    finally:
        for number, null in taken:
            close_own(number, null)


def _is_open(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def open_high(
    path: str | os.PathLike[str], flags: int, mode: int = 0o600, *, dir_fd: int | None = None
) -> int:
    """As `os.open`, for a file that we write: not for an instant under the number of a standard stream.

    Raises:
        OSError: it cannot be opened.
    """
    with standard_taken():
        return lift(os.open(path, flags, mode, dir_fd=dir_fd))


def identity(descriptor: int) -> Identity:
    """What an open descriptor leads to.

    Raises:
        OSError: it is not open.
    """
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def leads_to(descriptor: int, expected: Identity | None) -> bool:
    """Whether a descriptor is open and still leads where it did."""
    with suppress(OSError):
        return descriptor >= 0 and identity(descriptor) == expected
    return False


def close_own(descriptor: int, expected: Identity | None) -> None:
    """Close a descriptor, unless its number is somebody else's by now."""
    if leads_to(descriptor, expected):
        with suppress(OSError):
            os.close(descriptor)


class OwnFile:
    """An open file of ours that is kept over more than one call: under a high number, asked before each use.

    It is closed with its object, at the latest.

    Args:
        descriptor: open; ours to close.

    Raises:
        OSError: as `lift`.
    """

    __slots__ = ("_descriptor", "_identity")

    def __init__(self, descriptor: int) -> None:
        self.replace(descriptor)

    def replace(self, descriptor: int) -> None:
        """Be of this one from now on, as somebody closed the former; the new one may have its number.

        Raises:
            OSError: as `lift`.
        """
        self._descriptor = lift(descriptor)
        self._identity = identity(self._descriptor)

    @property
    def number(self) -> int:
        """The descriptor, for one system call.

        Raises:
            OSError: somebody closed it.
        """
        if not leads_to(self._descriptor, self._identity):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._descriptor

    def close(self) -> None:
        """Close it, unless its number is somebody else's by now. Does nothing the second time."""
        descriptor, self._descriptor = self._descriptor, -1
        close_own(descriptor, self._identity)

    def __enter__(self) -> OwnFile:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_identity"):
            self.close()


# -- locks ------------------------------------------------------------------------------------------


def try_lock(descriptor: int, *, shared: bool = False, timeout_s: float = 0.0) -> bool:
    """Flock an open file or folder; False where another holds it for `timeout_s`.

    Raises:
        OSError: the file system has no such locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        else:
            return True


def wait_for_lock(descriptor: int) -> None:
    """Flock an open file, however long another holds it.

    Raises:
        OSError: the file system has no such locks.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def holder_pid(descriptor: int) -> int | None:
    """The process that holds the flock of an open file, as far as the kernel tells."""
    found = os.fstat(descriptor)
    own = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    pids: dict[str, int] = {}
    with suppress(OSError, ValueError), open("/proc/locks", encoding="ascii") as file:
        for line in file:  # 1: FLOCK  ADVISORY  WRITE 1234 08:01:12345 0 EOF
            words = line.split()
            if words[1:2] == ["FLOCK"] and words[5].rpartition(":")[2] == str(found.st_ino):
                pids[words[5]] = int(words[4])
    if own not in pids and len(pids) == 1:  # on btrfs and overlays st_dev is not the device of the lock
        own = next(iter(pids))
    pid = pids.get(own, 0)
    return pid if pid > 0 else None  # 0 or -1: not of this pid namespace


def lock_record(descriptor: int) -> None:
    """Take the record lock of an open file, for as long as that is open.

    Raises:
        OSError: another holds it, or the file system has no such locks.
    """
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


def lock_record_of_process(descriptor: int) -> None:
    """Take the record lock of a file for this process alone: no child of fork holds it.

    It ends when the process closes any descriptor of the file.

    Raises:
        OSError: another process holds it, or the file system has no such locks.
    """
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(descriptor: int, *, by_file: bool = False) -> bool:
    """Whether somebody else holds the record lock of an open file.

    Args:
        descriptor: open for reading and writing.
        by_file: somebody else is another open file, not another process.

    Raises:
        OSError: that cannot be asked.
    """
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK if by_file else fcntl.F_GETLK, query)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


# -- forks and the end ------------------------------------------------------------------------------


class Forked(Protocol):
    """Something that has to know when it finds itself in a forked child."""

    def after_fork_in_child(self) -> None:
        """Renew what must not be shared with the parent; called once in each child, in no order."""


_forked: weakref.WeakSet[Forked] = weakref.WeakSet()


def at_fork(thing: Forked) -> None:
    """Have `thing.after_fork_in_child()` called in forked children for as long as it is referred to."""
    _forked.add(thing)


def _after_fork_in_child() -> None:
    for thing in list(_forked):
        thing.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)


def renew_lock(lock: threading.Lock | threading.RLock) -> None:
    """In a child: free a lock that a thread of the parent may have held."""
    lock._at_fork_reinit()  # type: ignore[union-attr]  # noqa: SLF001 - as threading itself does


def at_exit(call: Callable[[], object]) -> None:
    """Have it called at the end of this process, also of a forked `multiprocessing` child; twice in some."""
    atexit.register(call)
    util, process = map(sys.modules.get, ("multiprocessing.util", "multiprocessing.process"))
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, call, exitpriority=0)


# -- calls that Python may lack ----------------------------------------------------------------------


def memory_file(name: str) -> int:
    """A new file in memory that has no name; its descriptor, which a started program does not get.

    Args:
        name: shown in /proc.

    Raises:
        OSError: this system has none.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    import ctypes  # noqa: PLC0415 - not at import of the package

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "memfd_create"):
        raise OSError(errno.ENOSYS, "this system has no files in memory")
    return _checked(library.memfd_create(name.encode(), _MFD_CLOEXEC))


def process_descriptor(pid: int) -> int:
    """A descriptor of a process, which can be read once that has ended; never of another one with its number.

    Raises:
        OSError: there is no such process, or the kernel is older than 5.3.
    """
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    if not 0 < pid < 1 << 31:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return _syscall(_PIDFD_OPEN, pid, 0)


def signal_process(descriptor: int, number: signal.Signals) -> None:
    """Send a signal to the process of a `process_descriptor`.

    Raises:
        OSError: it has ended (ProcessLookupError), or is somebody else's.
    """
    if hasattr(signal, "pidfd_send_signal"):
        signal.pidfd_send_signal(descriptor, number)
        return
    _syscall(_PIDFD_SEND_SIGNAL, descriptor, number, 0, 0)


def _syscall(number: int, *arguments: int) -> int:
    import ctypes  # noqa: PLC0415 - not at import of the package

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return _checked(call(*map(ctypes.c_long, (number, *arguments))))


def _checked(result: int) -> int:
    import ctypes  # noqa: PLC0415 - not at import of the package

    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
