"""Untrusted files of a run.

Every file is reached from its data root without following links (`contract.filesystem`) and opened without
waiting for a pipe or a device. Hidden names are never shown. Each answer has a bound and tells when the bound
was reached.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rla_client.contract.errors import ArgumentError, BrokenFileError, DatabaseError
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.filesystem.safe_paths import held_folder, open_folder
from rla_client.contract.layout import FOLDER_KINDS, item_path
from rla_client.contract.safe_names import check_relative, component_problem
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import PageRun, Site

MAX_SEEN = 200_000  # folder entries read for one answer, about 1 s
MAX_LISTED = 5000  # files named in an answer
MAX_DEPTH = 20  # nested folders


class PlainFile(NamedTuple):
    """A plain file: its path below the item, bytes, and modification time (Unix seconds)."""

    path: str
    size: int
    mtime: float


@dataclass(slots=True)
class Listing:
    """Files below an item, by path."""

    files: list[PlainFile] = field(default_factory=list)
    cut: bool = False  # there are more files
    passed: int = 0  # entries left out: links, pipes, names that cannot be part of an address


def item_of(entry: PageRun, kind: str) -> str:
    """Path of a run's item below the data root.

    Raises:
        ArgumentError: there is no such kind.
    """
    if kind not in FOLDER_KINDS:
        raise ArgumentError(f"there is no kind {kind[:50]!r}")
    return item_path(kind, entry.record.table, entry.record.index)


@contextmanager
def item_folder(site: Site, entry: PageRun, kind: str, below: tuple[str, ...] = ()) -> Iterator[Path]:
    """A folder of a run's item, held open.

    Raises:
        DatabaseError: a link or a file lies on the way.
        FileNotFoundError: it does not exist.
    """
    path = "/".join([item_of(entry, kind), *below])
    try:
        with held_folder(site.database(entry).data_root, path) as folder:
            yield folder
    except NotADirectoryError as error:
        raise DatabaseError(f"{path} is not reached: a link or a file lies on the way") from error


@contextmanager
def item_file(site: Site, entry: PageRun, kind: str, path: str) -> Iterator[BinaryIO]:
    """A file of a run's item, open for reading.

    Raises:
        ArgumentError: the path is not relative, or a part of it is hidden.
        DatabaseError: it is not a plain file, or lies behind a link.
        FileNotFoundError: it does not exist.
    """
    *above, name = check_relative(path)
    if any(part.startswith(".") for part in (*above, name)):
        raise ArgumentError(f"{path[:200]!r} is hidden")
    with item_folder(site, entry, kind, tuple(above)) as folder:
        try:
            file = open_plain(folder / name)
        except BrokenFileError as error:
            raise DatabaseError(f"{path[:200]} cannot be read: {error.problem}") from error
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "not there", path) from error
    with file:
        yield file


def asked_file(site: Site, asked: dict[str, Any]) -> AbstractContextManager[BinaryIO]:
    """The file that a request names, open for reading; see `item_file`."""
    return item_file(site, asked_run(site, asked), str(asked.get("kind")), str(asked.get("path")))


def list_files(site: Site, entry: PageRun, kind: str) -> Listing:
    """The visible plain files below an item, sorted by path; none where the item does not exist."""
    found = Listing()
    root, item = site.database(entry).data_root, item_of(entry, kind)
    folders = [""]
    while folders and not found.cut:
        below = folders.pop()
        try:
            descriptor = open_folder(root, f"{item}/{below}")
        except OSError:
            continue  # removed meanwhile, or not readable
        try:
            _list(descriptor, below, folders, found)
        finally:
            os.close(descriptor)
    found.files.sort()
    return found


def _list(descriptor: int, below: str, folders: list[str], found: Listing) -> None:
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if len(found.files) + found.passed + len(folders) >= MAX_SEEN:
                found.cut = True
                return
            path = f"{below}/{entry.name}" if below else entry.name
            try:
                state = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if component_problem(entry.name) is not None:
                found.passed += 1
            elif stat.S_ISDIR(state.st_mode) and path.count("/") < MAX_DEPTH:
                folders.append(path)
            elif stat.S_ISREG(state.st_mode):
                found.files.append(PlainFile(path, state.st_size, state.st_mtime))
            else:
                found.passed += 1


def listing(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The files of one kind of a run."""
    found = list_files(site, asked_run(site, asked), str(asked.get("kind")))
    return {
        "files": found.files[:MAX_LISTED],
        "count": len(found.files),
        "cut": found.cut,
        "passed": found.passed,
    }
