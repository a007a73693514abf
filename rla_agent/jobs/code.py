"""Code of runs: one copy of each content for all runs of a database, hard links in the items.

`<data_root>/code/.objects/<first two digits>/<the other 62>` holds each content once, named by
its SHA-256, mode 0444; contents of runs whose folders are less open lie beside it under names that end in
`-<mode>`, for a link has the mode of its inode. An item's file is a second name of that inode, so
1,000 runs of one repository cost one copy and the names. Readers list tables and dates, never names
that begin with a dot, and see ordinary files. Deleting an item deletes names; `sweep_objects` frees the
contents that only the store still names (`st_nlink` is 1), and whoever links at that moment
finds the name gone and stores the content again.

Invariants: an object is complete and durable before it takes its name; before an object is
linked its bytes are compared with the content, so a damaged or edited one is replaced, not
spread. Where the file system has no hard links, or an inode has too many, files are copied.

A job is idempotent: doing it twice leaves the same item. A blob is what
`rla_client/code/capture.py` describes; nothing in it is believed before it has been checked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from rla_agent.outputs.data_roots import closing_fd
from rla_client.contract.errors import RemoteProtocolError, UnsafeNameError
from rla_client.contract.files import (
    FOLDER_FLAGS,
    OLD_TEMP_S,
    READ_FLAGS,
    UNNAMED_TEMP,
    atomic_file,
    file_mode,
    give_mode,
    open_folder,
    open_root,
    walk,
)
from rla_client.contract.jobs import (
    BLOB_MAGIC,
    BLOB_TAIL,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_INDEX_BYTES,
    MAX_TOTAL_BYTES,
)
from rla_client.contract.layout import CODE, check_relative, component_problem
from rla_client.contract.protocol import unpack

STORE_FOLDER = f"{CODE}/.objects"  # below a data root
STORED_MODE = 0o444  # less what the item's folder does not allow
_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}
_FOR_GOOD = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}
_PREFIX = re.compile(r"[0-9a-f]{2}\Z")
_REST = re.compile(r"[0-9a-f]{62}(-[0-7]{1,3})?\Z")  # with the mode, where it is not STORED_MODE


class Outcome(Enum):
    """How a job ended."""

    WRITTEN = "written"
    KEPT = "kept"  # a file of this name was there and stays
    REMOVED = "removed"  # the item folder is gone: nothing is made again
    FAILED = "failed"  # never to be tried again
    LATER = "later"  # disk full and the like: keep the blob and try again


@dataclass(frozen=True, slots=True)
class CodeResult:
    """What became of a code job.

    Attributes:
        outcome: see Outcome.
        reason: why, for REMOVED, FAILED and LATER.
    """

    outcome: Outcome
    reason: str = ""


def outcome_of(error: OSError) -> Outcome:
    """LATER for what may pass (disk full, I/O error, no permission), FAILED for what cannot."""
    return Outcome.FAILED if error.errno in _FOR_GOOD else Outcome.LATER


def parse_code(fields: object) -> str:
    """Check the fields of a job frame; the name of its blob.

    Raises:
        RemoteProtocolError: they are not what a client writes.
    """
    if not isinstance(fields, dict):
        raise RemoteProtocolError("a code job is not a map")
    return blob_name(fields.get("blob"))


def blob_name(value: object) -> str:
    """Check a blob's name: one plain path component.

    Raises:
        RemoteProtocolError: it is none.
    """
    if not isinstance(value, str) or component_problem(value) or value.startswith("."):
        raise RemoteProtocolError(f"no name of a blob: {value!r:.100}")
    return value


def open_blob(folder: Path, name: str, max_bytes: int) -> tuple[int, int]:
    """Open a blob of this uid for reading: (descriptor, bytes).

    Raises:
        OSError: it is not there.
        RemoteProtocolError: it is a link, not ours, no plain file, or too large.
    """
    with closing_fd(os.open(folder, FOLDER_FLAGS)) as parent:
        try:
            descriptor = os.open(name, READ_FLAGS, dir_fd=parent)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RemoteProtocolError(f"blob {name} is a link") from error
            raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > max_bytes:
        os.close(descriptor)
        raise RemoteProtocolError(f"blob {name} is not ours, no plain file, or over {max_bytes} bytes")
    return descriptor, found.st_size


def run_code(name: str, blobs: Path, final_dir: Path, root: str | os.PathLike[str]) -> CodeResult:
    """Fill an item of the kind `code` from a blob.

    Args:
        name: of the blob, from `parse_code`.
        blobs: the stream's blob folder.
        final_dir: the item folder, held by the caller; it exists, and is not made again when it is gone.
        root: the data root; its store is made when it is missing.

    Returns:
        The outcome; no error is raised for what a client or the disk did.
    """
    try:
        item = open_root(final_dir)
    except OSError as error:
        return CodeResult(Outcome.REMOVED, f"{final_dir}: {error.strerror}")
    try:
        with closing_fd(item):
            blob, size = open_blob(blobs, name, MAX_TOTAL_BYTES + MAX_FILE_BYTES + MAX_INDEX_BYTES)
            with closing_fd(blob):
                index = read_index(blob, size)
                with opened_store(root) as store:
                    return _fill(item, blob, index, store)
    except (RemoteProtocolError, UnsafeNameError) as error:
        return CodeResult(Outcome.FAILED, str(error))
    except OSError as error:
        return CodeResult(outcome_of(error), f"{error.strerror or error}: {error.filename}")


def read_index(blob: int, size: int) -> list[tuple[tuple[str, ...], int, int]]:
    """Check a code blob's index: (name parts, offset, bytes) of each file.

    Raises:
        RemoteProtocolError: the blob is cut short or not one.
        UnsafeNameError: a name would leave the item folder.
    """
    tail = os.pread(blob, BLOB_TAIL.size, max(size - BLOB_TAIL.size, 0))
    if os.pread(blob, 8, 0) != BLOB_MAGIC or tail[4:] != BLOB_MAGIC:
        raise RemoteProtocolError("code blob is cut short or not one")
    length = int.from_bytes(tail[:4], "little")
    start = size - BLOB_TAIL.size - length
    if length > MAX_INDEX_BYTES or start < len(BLOB_MAGIC):
        raise RemoteProtocolError("code blob has no index")
    entries = unpack(os.pread(blob, length, start))
    if not isinstance(entries, list) or len(entries) > MAX_FILES + 1:
        raise RemoteProtocolError("code blob names too many files")
    offset = len(BLOB_MAGIC)
    index = []
    for entry in entries:
        name, bytes_ = _index_entry(entry)
        index.append((check_relative(name, what="code file"), offset, bytes_))
        offset += bytes_
    if offset != start:
        raise RemoteProtocolError("sizes in the code blob do not add up")
    return index


def _index_entry(entry: object) -> tuple[str, int]:
    match entry:
        case [str() as name, int() as size] if 0 <= size <= MAX_FILE_BYTES:
            return name, size
    raise RemoteProtocolError("code blob has a malformed entry")


def _fill(item: int, blob: int, index: list[tuple[tuple[str, ...], int, int]], store: Store) -> CodeResult:
    folders: set[tuple[str, ...]] = {()}
    for parts, offset, size in index:
        data = os.pread(blob, size, offset)
        if len(data) != size:
            raise RemoteProtocolError("code blob shrank while it was read")
        with closing_fd(walk(item, parts[:-1], create=True)) as folder:
            store.place(data, folder, parts[-1])
        folders.update(parts[:depth] for depth in range(len(parts)))
    for parts in sorted(folders, key=len, reverse=True):
        with closing_fd(walk(item, parts, create=True)) as folder:
            os.fsync(folder)
    return CodeResult(Outcome.WRITTEN)


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
        """Give the item folder a file `name` with this content; one that is there stays.

        Raises:
            OSError: the disk does not take it.
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
                continue  # swept between the look and the link
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
    """Be sure that the object is there and is this content."""
    if anew or not _holds(objects, name, data):
        _write_file(objects, name, data, mode)
        os.fsync(objects)


def _holds(objects: int, name: str, data: bytes) -> bool:
    try:
        with open(os.open(name, READ_FLAGS, dir_fd=objects), "rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(len(data) + 1) == data
    except OSError:
        return False  # missing or unreadable: written anew


def _write_file(folder: int, name: str, data: bytes, mode: int, *, exclusive: bool = False) -> None:
    with atomic_file(name, mode=mode, dir_fd=folder, durable=False, exclusive=exclusive) as file:
        file.write(data)
        file.flush()
        give_mode(file.fileno(), mode)
        os.fsync(file.fileno())  # the folder is synced once for all of its files


def sweep_objects(root: str | os.PathLike[str], now: float) -> int:
    """Free the contents that no run of a data root uses any more; returns the bytes freed.

    To be called now and then, and after items were deleted. Safe beside running jobs, also of
    agents on other machines that share the database. Only files that are named as objects are deleted,
    and temp files that nobody will finish; no link is followed.

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
