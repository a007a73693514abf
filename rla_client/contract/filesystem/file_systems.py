"""File-system types, network ones in particular."""

from __future__ import annotations

import os
from pathlib import Path

NETWORK_FILE_SYSTEMS = {
    0x6969: "NFS",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x517B: "SMB",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
    0x00C36400: "CephFS",
    0x65735546: "FUSE",
}


def network_file_system(path: Path) -> str | None:
    """Name of the network file system that `path` lies on, None for a local one."""
    return NETWORK_FILE_SYSTEMS.get(file_system_type(path))


def file_system_type(path: Path) -> int:
    """Magic number of the file system that `path`, or the nearest folder above it that exists, lies on."""
    import ctypes  # noqa: PLC0415 - not at import of the package

    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(256)
    probe = path
    while not probe.exists() and probe != probe.parent:
        probe = probe.parent
    if libc.statfs(os.fsencode(probe), buffer) != 0:
        return 0
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
