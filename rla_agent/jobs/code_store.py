"""Store of code contents of a data root.

It is content-addressed: `<data_root>/code/.objects/<first two digits>/<the other 62>` has each content once,
named by its SHA-256, mode 0444; contents of runs with narrower folder permissions are beside it under names
that end in `-<mode>`, since a link has the mode of its inode. An item's file is a hard link to that inode, so
1,000 runs of one repository cost one copy and the names.

An object is complete and durable before it takes its name; before it is linked its bytes are compared with
the content, so a damaged or edited one is replaced, not spread. Without hard links, or with too many, files
are copied. `sweep_objects` deletes contents without a link outside of the store (`st_nlink` is 1); a link
that is made at that moment fails, and the content is stored again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rla_client.contract.filesystem.atomic_write import OLD_TEMP_S, UNNAMED_TEMP, atomic_file
from rla_client.contract.filesystem.modes import file_mode, give_mode
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import open_folder, walk
from rla_client.contract.layout import CODE
from rla_client.contract.process.descriptors import closing_fd

STORE_FOLDER = f"{CODE}/.objects"  # below a data root
STORED_MODE = 0o444  # without bits that the item's folder does not allow
_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
_PREFIX = re.compile(r"[0-9a-f]{2}\Z")
_REST = re.compile(r"[0-9a-f]{62}(-[0-7]{1,3})?\Z")  # with the mode, where it is not STORED_MODE


@contextmanager
def opened_store(root: str | os.PathLike[str]) -> Iterator[Store]:
    """The contents of a data root; where `.objects` is a link or a file, items get copies instead."""
    try:
        folder = open_folder(root, STORE_FOLDER, create=True)
    except NotADirectoryError:
        yield Store(None)
        return
    with closing_fd(folder):
        yield Store(folder)


class Store:
    """The contents of one database."""

    def __init__(self, folder: int | None) -> None:
        self._folder = folder  # None: no content can be shared

    def place(self, data: bytes, folder: int, name: str) -> None:
        """Put a file `name` with this content into the item folder; an existing one stays.

        Raises:
            OSError: the disk refuses it.
        """
        mode = STORED_MODE & file_mode(folder)
        digest = hashlib.sha256(data).hexdigest() + ("" if mode == STORED_MODE else f"-{mode:o}")
        anew = False
        for _ in range(3):
            if self._folder is None:
                break
            try:
                with closing_fd(walk(self._folder, (digest[:2],), create=True)) as objects:
                    _keep(objects, digest[2:], data, mode, anew=anew)
                    os.link(digest[2:], name, src_dir_fd=objects, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                return
            except FileNotFoundError:
                continue  # swept between the check and the link
            except (NotADirectoryError, IsADirectoryError):
                break  # something else has the name: this file is a copy
            except OSError as error:
                if error.errno == errno.EMLINK:
                    anew = True
                    continue
                if error.errno not in _NO_LINKS:
                    raise
                self._folder = None
            else:
                return
        with suppress(FileExistsError):
            _write_file(folder, name, data, mode, exclusive=True)


def _keep(objects: int, name: str, data: bytes, mode: int, *, anew: bool) -> None:
    """Check that the object has this content, else write it."""
    if anew or not _holds(objects, name, data):
        _write_file(objects, name, data, mode)
        os.fsync(objects)


def _holds(objects: int, name: str, data: bytes) -> bool:
    try:
        with open(os.open(name, READ_FLAGS, dir_fd=objects), "rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(data) + 1) == data
    except OSError:
        return False  # missing or unreadable: written again


def _write_file(folder: int, name: str, data: bytes, mode: int, *, exclusive: bool = False) -> None:
    with atomic_file(name, mode=mode, dir_fd=folder, durable=False, exclusive=exclusive) as file:
        file.write(data)
        file.flush()
        give_mode(file.fileno(), mode)
        os.fsync(file.fileno())  # the folder is synced once for all of its files


def sweep_objects(root: str | os.PathLike[str], now: float) -> int:
    """Delete the contents that no run of a data root uses any more; returns the number of freed bytes.

    To be called periodically, and after items were deleted. Safe beside running jobs, also of agents on other
    machines that share the database. Only files that are named as objects are deleted, and abandoned temp
    files; no link is followed.

    Args:
        root: the data root.
        now: Unix seconds, for the age of temp files.

    Raises:
        OSError: the store cannot be read.
    """
    try:
        store = open_folder(root, STORE_FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    with closing_fd(store):
        return sum(_sweep(store, name, now) for name in sorted(os.listdir(store)) if _PREFIX.match(name))


def _sweep(store: int, prefix: str, now: float) -> int:
    try:
        folder = walk(store, [prefix])
    except (FileNotFoundError, NotADirectoryError):
        return 0
    freed = 0
    with closing_fd(folder):
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and _is_unused(name, found, now):
                    os.unlink(name, dir_fd=folder)
                    freed += found.st_size
    with suppress(OSError):
        os.rmdir(prefix, dir_fd=store)
    return freed


def _is_unused(name: str, found: os.stat_result, now: float) -> bool:
    return bool(_REST.match(name)) or (
        UNNAMED_TEMP.match(name) is not None and now - found.st_mtime >= OLD_TEMP_S
    )
