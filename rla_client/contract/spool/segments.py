"""Write-ahead segments of the spool.

::

    <state>/spool/<stream>/
        lock          held by the writer while it lives (writer_liveness.py)
        000001.seg    frames (protocol.py); the first one is OPEN; appended by one write(2) each
        000002.seg    exists only once 000001.seg is complete
        000002.base   the agent's: sizes of all outputs at the start of segment 2
        blobs/        large payloads that JOB frames name

The client (stream/segment_writer.py) makes the folder under a hidden name, with lock and first segment, and
renames it. It never deletes. The agent deletes a segment when every output's durable position has passed
it, the folder when the writer has ended and everything was ingested. Bytes below `size` never change; a
torn frame can only be at the end of a segment.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

from rla_client.contract.errors import SpoolError
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS

MAX_HOLDER_BYTES = 64
BLOBS_NAME = "blobs"
SEGMENT_SUFFIX = ".seg"
OPENING_BYTES = 1 << 16  # of a segment; an opening frame has a kilobyte, few have more than this
BASE_SUFFIX = ".base"
STREAM_NAME = re.compile(r"^[0-9a-f]{16}-[0-9]{1,10}-[0-9a-f]{8}$")
_SEGMENT_NAME = re.compile(r"^([0-9]{6,9})\.seg$")


def new_stream_name() -> str:
    """Unique over machines and reboots, sorts by time from 1970 on, safe as a folder name."""
    return f"{max(time.time_ns(), 0):016x}-{os.getpid()}-{os.urandom(4).hex()}"


def segment_path(folder: str | os.PathLike[str], number: int) -> Path:
    """Path of segment `number` (from 1) of the stream in `folder`."""
    return Path(folder) / f"{number:06d}{SEGMENT_SUFFIX}"


def base_path(folder: str | os.PathLike[str], number: int) -> Path:
    """Path of the sizes that the agent keeps for the start of segment `number`."""
    return Path(folder) / f"{number:06d}{BASE_SUFFIX}"


def segment_size(folder: str | os.PathLike[str], number: int) -> int | None:
    """Bytes of a segment; None where the stream has none of that number.

    Raises:
        FileNotFoundError: the stream's folder is away.
        OSError: that cannot be found out.
    """
    path = segment_path(folder, number)
    with suppress(FileNotFoundError):
        return os.stat(path).st_size
    descriptor = os.open(folder, FOLDER_FLAGS)  # it may have been missing a moment ago, and be back
    try:
        return os.stat(path.name, dir_fd=descriptor).st_size
    except FileNotFoundError:
        return None
    finally:
        os.close(descriptor)


def segment_numbers(folder: str | os.PathLike[str] | int) -> list[int]:
    """Numbers of the segments that exist, ascending.

    Raises:
        FileNotFoundError: the stream is gone.
    """
    found = (_SEGMENT_NAME.match(name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def end_of(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Newest segment of a stream and its bytes; zeros for one without segments.

    Raises:
        OSError: that cannot be found out, or the stream is gone.
    """
    number = max(segment_numbers(folder), default=0)
    return number, segment_size(folder, number) or 0


def stream_names(spool: Path, *, links: bool = False) -> list[str]:
    """Streams in a spool, oldest first; other entries are skipped.

    Args:
        spool: the folder of the streams.
        links: include links to folders, for callers that report them as unread.
    """
    with os.scandir(spool) as entries:
        named = (entry for entry in entries if STREAM_NAME.match(entry.name))
        return sorted(
            entry.name
            for entry in named
            if entry.is_dir(follow_symlinks=False) or (links and entry.is_symlink())
        )


def check_stream(folder: Path) -> None:
    """Check that a stream, and its folder of blobs, are folders of this user (or of root).

    Raises:
        FileNotFoundError: it is gone.
        SpoolError: one of them is a link, a file, or somebody else's.
    """
    _check_folder(folder)
    with suppress(FileNotFoundError):
        _check_folder(folder / BLOBS_NAME)


def _check_folder(folder: Path) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise SpoolError(f"{folder} is a link or a file: nothing is read from it")
    if found.st_uid not in {0, os.geteuid()}:
        raise SpoolError(f"{folder} belongs to uid {found.st_uid}: nothing is read from it")


def spool_bytes(spool: Path) -> int:
    """Bytes of all streams, blobs included; streams that are removed meanwhile count as nothing."""
    return sum(stream_size(spool / name)[0] for name in stream_names(spool))


def stream_size(folder: str | os.PathLike[str]) -> tuple[int, int, float]:
    """Bytes of one stream, blobs included, and its last change (Unix seconds)."""
    total, blobs, changed = 0, 0, 0.0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    size, _, when = stream_size(entry.path)
                    blobs += size
                else:
                    found = entry.stat(follow_symlinks=False)
                    size, when = found.st_size, found.st_mtime
                total, changed = total + size, max(changed, when)
    return total, blobs, changed


def read_at(path: str | os.PathLike[str], offset: int, limit: int) -> bytes:
    """Bytes of a segment from `offset`, at most `limit`; empty at its present end.

    Raises:
        FileNotFoundError: the segment does not exist (yet, or any more).
        SpoolError: it is a link, no plain file, or somebody else's.
    """
    try:
        descriptor = os.open(path, READ_FLAGS)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise SpoolError(f"{os.fspath(path)} is a link: nothing is read from it") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {0, os.geteuid()}:
            whose = f"is not a plain file, or belongs to uid {found.st_uid}"
            raise SpoolError(f"{os.fspath(path)} {whose}: nothing is read from it")
        return os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)
