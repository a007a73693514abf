"""Memory of this process that others share: mapped from files, and copied into at the speed of its bus.

*Mapping*. `mmap.mmap` keeps a descriptor of its own under the lowest free number, and at its end closes that
number, whose ever it is by then. Here the mapping alone keeps the file open: a flock on it holds, and it
counts as open for writing, until the mapping is closed, the process ends, or it executes another program. A
child of fork has no part in that.

*Copying*. One memmove each. Above PARALLEL_MIN_BYTES a few short-lived threads share the work (memmove runs
without the GIL), because one core does not fill the bus. When the call returns, none of them is at work any
more, also when an exception (Ctrl-C) passes through: nobody writes to the destination afterwards.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias

from rla_client.contract.descriptors import OwnFile, lowest_own, try_lock

KERNEL_FILE_BYTES = 16 << 10
ALLOCATE_BYTES = 64 << 20  # some 15 ms
MADV_POPULATE_WRITE = 23  # Linux 5.14
_PROT_READ_WRITE = 1 | 2
_MAP_SHARED = 1
_MADV_DONTFORK = 10
_MADV_DONTDUMP = 16
_MAP_FAILED = ctypes.c_void_p(-1).value
PARALLEL_MIN_BYTES = 8 << 20  # below, starting a thread costs more than it saves
CUT_SLACK_BYTES = 1 << 20  # a share may be so much larger before a piece is cut in two
POLL_S = 0.0001  # a copy takes milliseconds
MAX_COPY_THREADS = 4  # two already fill the memory bus of a laptop

_libc = ctypes.CDLL(None, use_errno=True)
_held = ctypes.PyDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

Copy: TypeAlias = tuple[int, int, int]  # destination, source, bytes


class Mapping:
    """The first `size` bytes of a file, shared, to be read and written; closed at the latest when it goes.

    Args:
        descriptor: open for reading and writing; not needed any more afterwards.
        size: bytes; to touch those beyond the file's end is a SIGBUS.

    Raises:
        OSError: there is no memory for it, or the descriptor is closed.
    """

    __slots__ = ("__weakref__", "address", "close", "size")

    def __init__(self, descriptor: int, size: int) -> None:
        address = _libc.mmap(None, size, _PROT_READ_WRITE, _MAP_SHARED, descriptor, 0)
        if address is None or address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), "cannot map a file")
        _libc.madvise(address, size, _MADV_DONTFORK)
        _libc.madvise(address, size, _MADV_DONTDUMP)
        self.address = int(address)
        self.size = size
        self.close = weakref.finalize(self, _unmap, self.address, size, os.getpid())
        self.close.atexit = False  # threads may still write to it then; the kernel takes it away

    def view(self) -> memoryview:
        """The bytes; not to be used once the mapping is closed."""
        return memoryview((ctypes.c_ubyte * self.size).from_address(self.address)).cast("B")

    def advise(self, offset: int, size: int, advice: int) -> bool:
        """madvise(2) on a part; False where the kernel refuses."""
        return bool(_libc.madvise(self.address + offset, size, advice) == 0)


def _unmap(address: int, size: int, pid: int) -> None:
    if os.getpid() == pid:
        _libc.munmap(address, size)


def _open_high(path: str, flags: int) -> int:
    """Open a file under a high number, from a thread beside training code that may close descriptors.

    The low number that a file gets first is ours for an instant. Python's own calls let other threads run
    right then: one of them may close that number and open a file of its own under it, which we would take
    for ours. These calls keep the interpreter's lock.

    Raises:
        OSError: it cannot be opened.
    """
    low = _held.open(os.fsencode(path), flags, 0o600)
    if low < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    high = _held.fcntl(low, fcntl.F_DUPFD_CLOEXEC, lowest_own())
    if high < 0:
        return int(low)
    _held.close(low)
    return int(high)


def read_briefly(path: str) -> bytes:
    """The beginning of a small file of the kernel's (/proc, /sys); see `_open_high` for why not by `open`.

    Raises:
        OSError: it cannot be read.
    """
    content = ctypes.create_string_buffer(KERNEL_FILE_BYTES)
    descriptor = _held.open(os.fsencode(path), os.O_RDONLY | os.O_CLOEXEC, 0)
    length = _held.read(descriptor, content, KERNEL_FILE_BYTES) if descriptor >= 0 else -1
    number = ctypes.get_errno()
    if descriptor >= 0:
        _held.close(descriptor)
    if length < 0:
        raise OSError(number, os.strerror(number), path)
    return content.raw[:length]


def create_mapped(path: str, size: int, stop: threading.Event | None = None) -> Mapping:
    """Make a file of zeros, take all its space before anybody touches it, flock and map it.

    Args:
        path: where nothing is yet.
        size: bytes.
        stop: once set, the file is given up.

    Raises:
        OSError: there is no room for it, or somebody closed its descriptor meanwhile; nothing is left.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with OwnFile(_open_high(path, flags)) as file:
        try:
            if not try_lock(file.number):  # a sweeper came between
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
            offset = 0
            while offset < size:
                if stop is not None and stop.is_set():
                    raise OSError(errno.ECANCELED, "no longer wanted")  # noqa: TRY301 - one way out
                piece = min(ALLOCATE_BYTES, size - offset)
                with suppress(InterruptedError):  # a signal: the same piece again
                    os.posix_fallocate(file.number, offset, piece)
                    offset += piece
            return Mapping(file.number, size)
        except OSError:
            os.unlink(path)
            raise


def copy_memory(jobs: Sequence[Copy]) -> None:
    """Copy each (destination, source, bytes) of this process's memory; large amounts by several threads."""
    wait_for_copies()  # of a call that was interrupted
    total = sum(nbytes for _, _, nbytes in jobs)
    threads = 1 if total < PARALLEL_MIN_BYTES else min(MAX_COPY_THREADS, len(os.sched_getaffinity(0)))
    if threads == 1:
        _copy_all(jobs)
    else:
        _copy_in_parallel(jobs, total, threads)


def _copy_all(jobs: Sequence[Copy]) -> None:
    move = ctypes.memmove
    for to, source, nbytes in jobs:
        move(to, source, nbytes)


class _Share:
    """A part of the work that one thread does: the helper, or the caller when it comes first.

    `owner` may be asked again and again, so an interrupted caller can always find out who has it.
    """

    def __init__(self, jobs: Sequence[Copy]) -> None:
        self.jobs = jobs
        self.finished = False
        self._box: dict[str, str] = {}

    def owner(self, who: str) -> str:
        """`who`, if nobody has the share yet; else who has it."""
        return self._box.setdefault("owner", who)

    def wait(self) -> None:
        """Until the helper is done: polled, because an interrupted Event or lock is left in any state."""
        while not self.finished:
            time.sleep(POLL_S)

    def help(self) -> None:
        """Body of a helper thread."""
        try:
            if self.owner("helper") == "helper":
                _copy_all(self.jobs)
        finally:
            self.finished = True
            _running.discard(self)


_running: set[_Share] = set()
os.register_at_fork(after_in_child=_running.clear)  # whose helpers are the parent's


def wait_for_copies() -> None:
    """Return when no helper writes, or ever will: then memory that copies go to may be used anew.

    What a caller began and was thrown out of is found in `_running`, begun or not.
    """
    for share in list(_running):
        if share.owner("caller") != "caller":
            share.wait()
        _running.discard(share)


def _copy_in_parallel(jobs: Sequence[Copy], total: int, threads: int) -> None:
    first, *others = (_Share(share) for share in _shares(jobs, -(-total // threads)))
    try:
        _running.update(others)  # before any of them begins
        for share in others:
            try:
                _thread.start_new_thread(share.help, ())  # Thread.start waits on an Event
            except RuntimeError:  # no more threads: do it here
                break
        _copy_all(first.jobs)
        for share in others:
            if share.owner("caller") == "caller":  # its helper has not begun, and will not
                _copy_all(share.jobs)
    finally:
        _settle()


def _settle() -> None:
    """`wait_for_copies`, once more when a signal handler throws us out of it."""
    try:
        wait_for_copies()
    except BaseException:
        wait_for_copies()
        raise


def _shares(jobs: Sequence[Copy], share_bytes: int) -> list[list[Copy]]:
    """Split jobs into runs of about `share_bytes` each, cutting storages where need be."""
    shares: list[list[Copy]] = [[]]
    room = share_bytes
    for job in jobs:
        to, source, nbytes = job
        while nbytes > room + CUT_SLACK_BYTES:
            shares[-1].append((to, source, room))
            to, source, nbytes = to + room, source + room, nbytes - room
            shares.append([])
            room = share_bytes
        shares[-1].append((to, source, nbytes))
        room -= nbytes
        if room <= 0:
            shares.append([])
            room = share_bytes
    return [share for share in shares if share]
