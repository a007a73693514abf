"""System calls that some builds of Python lack."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct

_MFD_CLOEXEC = 1
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434  # the same on all machines
_INFO_BYTES, _INFO_EXIT = 64, 1 << 3  # of struct pidfd_info; its last field is the status
_PIDFD_GET_INFO = 3 << 30 | _INFO_BYTES << 16 | 0xFF << 8 | 11


def memory_file(name: str) -> int:
    """Descriptor of a new unnamed file in memory, not inherited by started programs.

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


def exit_status(descriptor: int) -> int | None:
    """The wait status of the process of a `process_descriptor`, whoever's child it was.

    Returns:
        None: it lives, or the kernel is older than 6.15.
    """
    told = bytearray(struct.pack("=Q", _INFO_EXIT).ljust(_INFO_BYTES, b"\0"))
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, told)
    except OSError:
        return None
    (mask,) = struct.unpack_from("=Q", told)
    (status,) = struct.unpack_from("=i", told, _INFO_BYTES - 4)
    return status if mask & _INFO_EXIT else None


def signal_process(descriptor: int, number: signal.Signals) -> None:
    """Send a signal to the process of a `process_descriptor`.

    Raises:
        OSError: it has ended (ProcessLookupError), or belongs to another user.
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
