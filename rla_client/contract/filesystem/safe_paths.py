"""Symlink-safe paths below a data root.

Other users may write in a data root, too. So files below it are written, renamed and deleted relative to a
descriptor that is opened one component after the other. Links are followed by these rules:

- The data root itself may be reached through links: the user named it.
- A kind's folder directly below it (`log`, `code`, …, and `arc`) may be a link, since a kind may lie on
  another disk. The link must belong to this user or to root.
- Nothing below a kind, and nothing else directly below the data root, is reached through a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rla_client.contract.errors import UnsafeNameError
from rla_client.contract.filesystem.modes import make_folder
from rla_client.contract.layout import ARCHIVED_TABLE, DEFAULT_LOG_TYPES
from rla_client.contract.process.descriptors import closing_fd

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ON_LINUX = hasattr(os, "O_PATH")
_LINKABLE = frozenset(os.fsencode(name) for name in (*DEFAULT_LOG_TYPES, ARCHIVED_TABLE))


class ItemGoneError(Exception):
    """The folder of an item in a data root is not there any more."""


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
    """Descriptor of a folder of an item; what is missing is made only while the item's own is there.

    Args:
        root: absolute.
        item: the item's folder, relative to `root`; empty: the same as `folder`.
        folder: that, one below it, or the item's folder of another kind, relative to `root`.
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
    if not folder.startswith(f"{item}/") and item != ".":
        os.close(descriptor)
        return open_folder(root, folder, create=create)
    with closing_fd(descriptor):  # the folder is being deleted: nothing can be made in it
        return walk(descriptor, os.path.relpath(folder, item).split("/"), create=create)


@contextmanager
def held_folder(root: str | os.PathLike[str], relative: str, *, create: bool = False) -> Iterator[Path]:
    """`open_folder` as a path that stays valid for that very folder, even if another one takes its name.

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
    """Delete an entry of a folder below a data root recursively, without following links.

    Entries that are missing, or cannot be deleted, raise no error.
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
    """Target of a link of this user or of root, read from the very link that was checked."""
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
