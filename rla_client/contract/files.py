"""The one way to write a whole file, to reach a folder of a data root, to open its files; who may read what.

`write_atomic` leaves either the old file or the whole new one under the final name, also after
a power cut: temp file in the same folder, write, fsync, replace, fsync of the folder.

A data root is partly written by others: a copied database, a colleague's folder, a training script.
So what is written, renamed or deleted below one is reached from a descriptor, one component after the
other, and this rule says where links are followed:

- The data root itself may be reached through links: the user named it.
- A kind's folder directly below it (`log`, `code`, …, and `arc`) may be a link, since a kind may lie on
  another disk. The link must belong to this user or to root.
- Nothing below a kind, and nothing else directly below the data root, is reached through a link.
- A file of a data root that is a link, a pipe, a device, a socket or a folder is not a file: `open_plain`
  refuses it without waiting for anybody.

Permissions: the training process makes the folders of its run under the user's umask. The agent, whose own
umask is 0, gives what it makes in a folder the folder's permissions, from the first byte on: a file may be
read by those who may list its folder and written by those who may write there (`file_mode`), a folder is
as its parent (`folder_mode`). What takes the place of an older file never gets more than that had.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from rla_client.contract.descriptors import open_high
from rla_client.contract.errors import BrokenFileError, UnsafeNameError
from rla_client.contract.layout import ARCHIVED_TABLE, DEFAULT_LOG_TYPES

TEMP_PREFIX = ".rla-tmp-"  # sweepers and replication pass over names that begin so
UNNAMED_TEMP = re.compile(re.escape(TEMP_PREFIX) + r"[0-9a-f]{16}\Z")  # as `temp_path` makes them
FORK_COPY_PREFIX = f"{TEMP_PREFIX}fork-"  # folders in which a fork copies logs
OLD_TEMP_S = 3600.0  # nobody writes one small file for so long
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # of a file that may be anything
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_SMALL_BYTES = 4 << 20  # of a file that is read whole: 20,000 hyper-parameters of 200 bytes
_ON_LINUX = hasattr(os, "O_PATH")
_LINKABLE = frozenset(os.fsencode(name) for name in (*DEFAULT_LOG_TYPES, ARCHIVED_TABLE))
PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class ItemGoneError(Exception):
    """The folder of an item in a data root is not there any more."""


def write_atomic(
    path: str | os.PathLike[str], data: bytes, *, mode: int | None = None, durable: bool = True
) -> None:
    """Put `data` under `path`, whole or not at all.

    Args:
        path: final name; its folder exists.
        data: the content.
        mode: permission bits before umask, those of `file_mode` unless given; a file that is replaced
            hands on at most its own.
        durable: False leaves the fsyncs to somebody who does them before promising anything.

    Raises:
        OSError: the file could not be written, and which; the old content, if any, is untouched.
    """
    try:
        with atomic_file(path, mode=mode, durable=durable) as file:
            file.write(data)
    except OSError as error:
        if error.filename is None:  # of a write to a descriptor: the caller may write several disks
            error.filename = os.fspath(path)
        raise


@contextmanager
def atomic_file(
    path: str | os.PathLike[str],
    *,
    mode: int | None = None,
    durable: bool = True,
    dir_fd: int | None = None,
    temp: str | None = None,
    exclusive: bool = False,
) -> Iterator[BinaryIO]:
    """Open a temp file beside `path` that takes its name when the block ends without error.

    `mode`: see `write_atomic`; the others: see `replacing`.
    """
    with replacing(path, durable=durable, dir_fd=dir_fd, temp=temp, exclusive=exclusive) as new:
        bits = file_mode(new.parent if dir_fd is None else dir_fd) if mode is None else mode
        bits &= _bits(path, dir_fd)  # never more than the older file had
        with open(open_high(new, NEW_FLAGS, bits, dir_fd=dir_fd), "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())


@contextmanager
def replacing(
    path: str | os.PathLike[str],
    *,
    durable: bool = True,
    dir_fd: int | None = None,
    temp: str | None = None,
    exclusive: bool = False,
) -> Iterator[Path]:
    """A temp name; the file that the block makes there takes the name `path` when it ends without error.

    For those that let a library write, or link; others use `atomic_file`. The block syncs the content.

    Args:
        path: final name; its folder exists.
        durable: False leaves the sync of the folder to the caller.
        dir_fd: descriptor of the folder, `path` and the temp name are relative to.
        temp: the temp file's name, for callers that find it again after a crash.
        exclusive: what has the final name by then stays.

    Raises:
        FileExistsError: `exclusive`, and something has the name.
        OSError: it could not be done; what is there stays, and the temp file goes.
    """
    new = temp_path(path) if temp is None else Path(path).with_name(temp)
    try:
        yield new
        if not exclusive:
            os.replace(new, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        elif not claim_name(new, path, dir_fd=dir_fd):
            raise FileExistsError(errno.EEXIST, "has the name", path)  # noqa: TRY301 - one way out
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=dir_fd)
        raise
    if durable and dir_fd is not None:
        os.fsync(dir_fd)
    elif durable:
        fsync_folder(new.parent)


def claim_name(
    temp: str | bytes | os.PathLike[str], final: str | bytes | os.PathLike[str], *, dir_fd: int | None = None
) -> bool:
    """Rename an entry of a folder unless something has its new name: then both stay, and it is False.

    The look and the rename are one step where the file system has hard links.

    Raises:
        OSError: it could not be renamed.
    """
    try:
        os.link(temp, final, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError:  # no links here, or none to a folder; another fault shows below
        if is_there(final, dir_fd=dir_fd):
            return False
        os.rename(temp, final, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    else:
        os.unlink(temp, dir_fd=dir_fd)
    return True


def is_there(name: str | bytes | os.PathLike[str], *, dir_fd: int | None = None) -> bool:
    """Whether a folder has an entry of this name, a dangling link too.

    Raises:
        OSError: that cannot be found out.
    """
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _bits(path: str | os.PathLike[str], dir_fd: int | None) -> int:
    """Permission bits of a plain file; all where there is none."""
    try:
        found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return 0o777
    return stat.S_IMODE(found.st_mode) | PRIVATE_FILE if stat.S_ISREG(found.st_mode) else 0o777


def file_mode(folder: int | str | os.PathLike[str]) -> int:
    """Permission bits of a file made in `folder` (a path or a descriptor).

    Raises:
        OSError: the folder is not there.
    """
    found = os.stat(folder).st_mode
    shared = 0o644 if found & stat.S_ISVTX else 0o666  # in a sticky folder others may not change a file
    return found & shared | PRIVATE_FILE


def folder_mode(folder: int | str | os.PathLike[str]) -> int:
    """Permission bits of a folder made in `folder` (a path or a descriptor).

    Raises:
        OSError: the folder is not there.
    """
    found = os.stat(folder).st_mode
    shared = 0o755 if found & stat.S_ISVTX else 0o777
    return found & shared | PRIVATE_FOLDER


def give_mode(descriptor: int, mode: int) -> None:
    """Set a file's permission bits; on a file system that keeps none nothing happens."""
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        with suppress(OSError):
            os.fchmod(descriptor, mode)


def umask() -> int:
    """The process's umask. Where /proc tells it, asking for it changes nothing for other threads."""
    with suppress(OSError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    found = os.umask(0o077)
    os.umask(found)
    return found


def open_within(name: str, flags: int, folder: int) -> int:
    """Open a file of an open folder; one that is not there is made, with the folder's permissions.

    Raises:
        OSError: it cannot be opened or made.
    """
    return os.open(name, flags | os.O_CREAT | os.O_CLOEXEC, file_mode(folder), dir_fd=folder)


def make_folder(name: str | bytes | os.PathLike[str], folder: int | None = None) -> bool:
    """Make a folder with its parent's permissions; False where something of that name is there.

    Args:
        name: in `folder`, or a path.
        folder: descriptor of the parent.

    Raises:
        OSError: it cannot be made.
    """
    try:
        parent = os.path.dirname(os.path.abspath(os.fsdecode(name))) if folder is None else folder
        os.mkdir(name, folder_mode(parent), dir_fd=folder)
    except FileExistsError:
        return False
    return True


def sqlite_address(path: str | os.PathLike[str], options: str = "mode=ro") -> str:
    """The URI of an SQLite file, for `sqlite3.connect(…, uri=True)`; any name, `#`, `?` and `%` included."""
    return f"{Path(os.path.abspath(path)).as_uri()}?{options}"


def temp_path(final: str | os.PathLike[str]) -> Path:
    """A fresh hidden name in the folder of `final`, short whatever the length of that name."""
    return Path(final).parent / f"{TEMP_PREFIX}{os.urandom(8).hex()}"


def fsync_folder(path: str | os.PathLike[str]) -> None:
    """Make creations, renames and removals in a folder durable."""
    _fsync(path, os.O_DIRECTORY)


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Make what another process wrote into a file durable.

    Raises:
        OSError: it is not there, or could not be synced.
    """
    _fsync(path, 0)


def _fsync(path: str | os.PathLike[str], flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def closing_fd(descriptor: int) -> Iterator[int]:
    """A descriptor that was just opened; closed on leaving."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# -- folders below a data root -----------------------------------------------------------------


def open_root(root: str | bytes | os.PathLike[str]) -> int:
    """Descriptor of a data root, which may be reached through links.

    Raises:
        OSError: it is not there, or is not a folder.
    """
    return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def walk(folder: int, parts: Sequence[str] | Sequence[bytes], *, create: bool = False) -> int:
    """Descriptor of a folder below an open one, reached without following links.

    Args:
        folder: descriptor; it stays open.
        parts: the folders on the way.
        create: make those that are missing, durably.

    Raises:
        FileNotFoundError: one is not there.
        NotADirectoryError: one is a file or a link.
        UnsafeNameError: one is not the name of a folder.
    """
    return _descend(folder, parts, create=create, enter=_enter)


def walk_root(root: int, parts: Sequence[str] | Sequence[bytes], *, create: bool = False) -> int:
    """`walk` from the descriptor of a data root: the first part may be a kind that lies elsewhere."""
    first = _descend(root, parts[:1], create=create, enter=_enter_kind)
    try:
        return walk(first, parts[1:], create=create)
    finally:
        os.close(first)


def open_folder(root: str | os.PathLike[str], relative: str, *, create: bool = False) -> int:
    """Descriptor of a folder below a data root; see the module's text on links.

    Args:
        root: the data root.
        relative: `.`, or the folder's path below it.
        create: make the components that are missing, durably.

    Raises:
        FileNotFoundError: it is not there.
        NotADirectoryError: a component is a file, or a link that is not followed.
        UnsafeNameError: the path leaves the data root.
    """
    below = os.path.normpath(relative)
    descriptor = open_root(root)
    if below == ".":
        return descriptor
    try:
        return walk_root(descriptor, below.split("/"), create=create)
    finally:
        os.close(descriptor)


def open_below(root: str, item: str, folder: str, *, create: bool = False) -> int:
    """Descriptor of a folder of an item; what is missing may be made only below the item's own.

    Args:
        root: absolute.
        item: the item's folder, relative to `root`; empty: the same as `folder`.
        folder: that or one below it, relative to `root`.
        create: make the components that are missing.

    Raises:
        ItemGoneError: the item's folder is not there.
        OSError: anything else.
    """
    try:
        descriptor = open_folder(root, item or folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ItemGoneError(os.path.join(root, item or folder)) from error
    if folder == (item or folder):
        return descriptor
    with closing_fd(descriptor):  # nothing can be made in one that is deleted right now
        return walk(descriptor, os.path.relpath(folder, item).split("/"), create=create)


@contextmanager
def held_folder(root: str | os.PathLike[str], relative: str, *, create: bool = False) -> Iterator[Path]:
    """`open_folder` as a path that leads into that very folder, whatever takes its name meanwhile.

    Where there is no /proc (macOS) it is the plain path, which was checked.

    Raises:
        OSError, UnsafeNameError: as `open_folder`.
    """
    descriptor = open_folder(root, relative, create=create)
    try:
        yield Path(f"/proc/self/fd/{descriptor}") if _ON_LINUX else Path(root, relative)
    finally:
        os.close(descriptor)


def discard(root: str | os.PathLike[str], folder: str, name: str) -> None:
    """Delete an entry of a folder below a data root with all that is in it; never what a link leads to.

    What cannot be deleted, or is not there, stays without an error.
    """
    with suppress(OSError, UnsafeNameError), held_folder(root, folder) as here:
        if stat.S_ISDIR(os.lstat(here / name).st_mode):
            import shutil  # noqa: PLC0415 - not at import of the package

            shutil.rmtree(here / name, ignore_errors=True)
        else:
            os.unlink(here / name)


def _descend(
    folder: int, parts: Sequence[str] | Sequence[bytes], *, create: bool, enter: Callable[[int, bytes], int]
) -> int:
    names = [os.fsencode(part) for part in parts]
    for name in names:
        if name in {b"", b".", b".."} or b"/" in name or b"\0" in name:
            raise UnsafeNameError(f"{name!r} is not a name of a folder below a data root")
    current = os.dup(folder)
    try:
        for part in names:
            try:
                below = enter(current, part)
            except FileNotFoundError:
                if not create:
                    raise
                if make_folder(part, current):
                    os.fsync(current)
                below = enter(current, part)
            os.close(current)
            current = below
    except BaseException:
        os.close(current)
        raise
    return current


def _enter(folder: int, name: bytes) -> int:
    return os.open(name, FOLDER_FLAGS, dir_fd=folder)


def _enter_kind(root: int, name: bytes) -> int:
    try:
        return _enter(root, name)
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP} or name not in _LINKABLE:
            raise
        target = _own_link(root, name)
        if target is None:
            raise
    return os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)


def _own_link(root: int, name: bytes) -> str | None:
    """Where a link of this user or of root leads, read from the very link that was checked."""
    if not _ON_LINUX:
        own = os.stat(name, dir_fd=root, follow_symlinks=False).st_uid in {0, os.geteuid()}
        return os.fsdecode(os.readlink(name, dir_fd=root)) if own else None
    link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    try:
        found = os.fstat(link)
        own = stat.S_ISLNK(found.st_mode) and found.st_uid in {0, os.geteuid()}
        return os.readlink("", dir_fd=link) if own else None
    finally:
        os.close(link)


# -- files of a data root ----------------------------------------------------------------------


def open_plain(path: str | os.PathLike[str], *, dir_fd: int | None = None, links: bool = False) -> BinaryIO:
    """Open a file for reading that anybody may have put there; never waits for a pipe or a device.

    Args:
        path: of the file.
        dir_fd: descriptor of the folder that a relative path begins at.
        links: the path may be a link; for files that the user names himself.

    Raises:
        BrokenFileError: it is a pipe, device, socket or folder, or a link where none is followed.
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BrokenFileError(os.fspath(path), "it is a link, which is not followed here") from error
        if error.errno == errno.ENXIO:
            raise BrokenFileError(os.fspath(path), "it is not a file but a socket or a device") from error
        raise
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        what = "folder" if stat.S_ISDIR(kind) else "pipe" if stat.S_ISFIFO(kind) else "device"
        raise BrokenFileError(os.fspath(path), f"it is not a file but a {what}")
    return open(descriptor, "rb")


def read_small(
    path: str | os.PathLike[str],
    max_bytes: int = MAX_SMALL_BYTES,
    *,
    dir_fd: int | None = None,
    links: bool = False,
) -> bytes:
    """All of a small file; see `open_plain`.

    Raises:
        BrokenFileError: it is not a file, or has more than `max_bytes`.
        OSError: it cannot be opened or read.
    """
    with open_plain(path, dir_fd=dir_fd, links=links) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise BrokenFileError(os.fspath(path), f"it is larger than {max_bytes} bytes")
    return data


def append_line(path: str | os.PathLike[str], line: bytes) -> None:
    """Append to a file in one write, so that lines of several processes stay whole.

    Args:
        path: of the file, made for its owner alone where it is not there; no link is followed and no pipe
            waited for.
        line: with its end.

    Raises:
        OSError: it is not a file, cannot be opened, or took a part of the line only.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = open_high(path, flags | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        if os.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
    finally:
        os.close(descriptor)


def written_bytes(file: BinaryIO) -> int:
    """Size of an open file up to its first hole: nobody wrote what follows there."""
    size = os.fstat(file.fileno()).st_size
    try:
        hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
    except OSError:  # empty, or a file system that does not tell
        return size
    finally:
        file.seek(0)
    return min(size, hole)
