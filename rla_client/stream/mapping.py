"""Memory-mapped files without a descriptor.

`mmap.mmap` keeps a descriptor of its own under the lowest free number, and at its end closes that number,
which may belong to another file by then. Here the mapping alone keeps the file open: a flock on it lasts, and
the file counts as open for writing, until the mapping is closed, the process ends, or it executes another
program. A child of fork does not inherit the mapping.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import threading
import weakref
from contextlib import suppress

from rla_client.contract.process.descriptors import OwnFile, lowest_own
from rla_client.contract.process.locks import try_lock

KERNEL_FILE_BYTES = 16 << 10
ALLOCATE_BYTES = 64 << 20  # some 15 ms
MADV_POPULATE_WRITE = 23  # Linux 5.14
_PROT_READ_WRITE = 1 | 2
_MAP_SHARED = 1
_MADV_DONTFORK = 10
_MADV_DONTDUMP = 16
_MAP_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_held = ctypes.PyDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Mapping:
    """A shared, writable mapping of a file's first `size` bytes; closed at the latest when it is collected.

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
        self.close.atexit = False  # threads may still write to it then; the kernel unmaps it

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

    The file has a low number for an instant. Python's own calls let other threads run right then: one of them
    may close that number and open a file of its own under it, which we would mistake for ours. These calls
    keep the interpreter's lock.

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
    """Make a file of zeros, allocate all its space, flock and map it.

    Args:
        path: must not exist.
        size: bytes.
        stop: once set, the file is discarded.

    Raises:
        OSError: there is no room for it, or somebody closed its descriptor meanwhile; nothing is left.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with OwnFile(_open_high(path, flags)) as file:
        try:
            if not try_lock(file.number):  # removed by a sweeper
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
            offset = 0
            while offset < size:
                if stop is not None and stop.is_set():
                    raise OSError(errno.ECANCELED, "no longer wanted")  # noqa: TRY301 - one way out
                piece = min(ALLOCATE_BYTES, size - offset)
                with suppress(InterruptedError):  # a signal: repeat the piece
                    os.posix_fallocate(file.number, offset, piece)
                    offset += piece
            return Mapping(file.number, size)
        except OSError:
            os.unlink(path)
            raise
