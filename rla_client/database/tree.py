"""The tree of a database as items: which tables, which runs, which files of which kind.

An item is one run's data of one kind: a folder `<kind>/<table>/<index>`, or for archive_tester
the files `<index>.pkl`, `<index>.json`, `<index>.pt`, which count as one. Walking reads folder
names only; names that begin with a dot are never seen, so temp files and the trash are not
items. A glob as in RLA is relative to the table; a glob that ends above the index
(`2022/06/*`) means every item below what it matches.
"""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rla_client.config.schema import CONFIG_NAME, DATA_FOLDER
from rla_client.contract.errors import DatabaseError, NoSuchTableError
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    ARCHIVED_TABLE,
    DEFAULT_LOG_TYPES,
    HYPARAMETER,
    LOG,
    RunIndex,
)
from rla_client.contract.textformat import hint

SEARCH_DEPTH = 2  # folders below the one with rla_config.yaml
ARCHIVE_SUFFIXES = (".json", ".pt", ".pkl")
MAX_TABLE_DEPTH = 6  # components of a table name; a table may be `group/task`
INDEX_DEPTH = 4  # year, month, day, name
_YEAR = re.compile(r"\d{4}")
_TWO_DIGITS = re.compile(r"\d{2}")


@dataclass(frozen=True, slots=True)
class Item:
    """One run's data of one kind.

    Attributes:
        kind: one of `layout.DEFAULT_LOG_TYPES`.
        table: task table name.
        index: `YYYY/MM/DD/<name>`, without a file ending.
        paths: the folder, or the files of an archive_tester entry, as absolute paths.
    """

    kind: str
    table: str
    index: str
    paths: tuple[str, ...]


def check_data_root(data_root: str | os.PathLike[str]) -> Path:
    """Return the data root as an absolute path.

    Raises:
        DatabaseError: it is not a folder.
    """
    root = Path(os.path.abspath(os.path.expanduser(os.fspath(data_root))))
    if not root.is_dir():
        message = f"{root} is not a folder; give the data root, the folder that holds log/"
        raise DatabaseError(message)
    return root


def list_names(folder: str | os.PathLike[str]) -> list[str]:
    """Sorted visible names in a folder; none when it is not there."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8, as all names of ours are; anything else is somebody else's."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def tell_closed(error: PermissionError) -> None:
    """Warn of a folder that is left out, because somebody else made it for himself alone."""
    warnings.warn(f"left out, as you may not read it: {error.filename}", stacklevel=3)


def find_tables(data_root: Path, kinds: Iterable[str] = DEFAULT_LOG_TYPES) -> list[str]:
    """Names of all task tables, sorted; those that may not be read are left out, with a warning."""
    found: set[str] = set()
    for kind in kinds:
        found.update(_tables_below(data_root / kind, "", MAX_TABLE_DEPTH))
    return sorted(found)


def _tables_below(folder: Path, table: str, depth: int) -> Iterator[str]:
    try:
        names = list_names(folder)
    except PermissionError as error:
        if not table:
            raise
        tell_closed(error)
        return
    for name in names:
        child = folder / name
        if not _is_text(name) or not child.is_dir():
            continue
        if table and _YEAR.fullmatch(name) and any(map(_TWO_DIGITS.fullmatch, _names_within(child))):
            yield table
        elif depth and not (table and _YEAR.fullmatch(name)):
            yield from _tables_below(child, f"{table}/{name}" if table else name, depth - 1)


def find_days(data_root: Path, kind: str, table: str) -> Iterator[str]:
    """All `YYYY/MM/DD` folders of one table of one kind; unreadable ones are left out, with a warning."""
    base = os.path.join(data_root, kind, table)
    for year in filter(_YEAR.fullmatch, _names_within(base)):
        for month in filter(_TWO_DIGITS.fullmatch, _names_within(f"{base}/{year}")):
            for day in filter(_TWO_DIGITS.fullmatch, _names_within(f"{base}/{year}/{month}")):
                yield f"{year}/{month}/{day}"


def _names_within(folder: str | Path, closed: list[str] | None = None) -> list[str]:
    try:
        return list_names(folder)
    except PermissionError as error:
        tell_closed(error)
        if closed is not None:
            closed.append(os.fspath(folder))
        return []


def day_items(
    data_root: Path, kind: str, table: str, day: str, closed: list[str] | None = None
) -> list[Item]:
    """The items of one day, sorted by name.

    Args:
        data_root: the database.
        kind: of the items.
        table: theirs.
        day: `YYYY/MM/DD`.
        closed: gets the day's folder where it may not be read, which is also warned of.
    """
    folder = os.path.join(data_root, kind, table, day)
    groups: dict[str, list[str]] = {}
    for name in _names_within(folder, closed):
        stem = archive_stem(name) if kind == ARCHIVE_TESTER else name
        if stem is not None and _is_text(name) and RunIndex.parse(f"{day}/{stem}") is not None:
            groups.setdefault(stem, []).append(f"{folder}/{name}")
    return [Item(kind, table, f"{day}/{stem}", tuple(paths)) for stem, paths in groups.items()]


def archive_stem(name: str) -> str | None:
    """Index name of an archive_tester file, None when the file is something else."""
    for suffix in ARCHIVE_SUFFIXES:
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return None


def find_items(data_root: Path, kind: str, table: str, pattern: str = "*") -> list[Item]:
    """Items of one kind that a glob matches, or that lie below what it matches.

    Args:
        data_root: the database.
        kind: which kind.
        table: which task table.
        pattern: glob relative to the table, as RLA's `regex` and `regs`; for archive_tester
            with or without the file ending.
    """
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if "**" in parts:
        return _find_recursive(data_root, kind, table, pattern)
    found = []
    for day in find_days(data_root, kind, table):
        if all(fnmatchcase(name, part) for name, part in zip(day.split("/"), parts, strict=False)):
            found += [item for item in day_items(data_root, kind, table, day) if _fits(item, parts, pattern)]
    return found


def _fits(item: Item, parts: list[str], pattern: str) -> bool:
    if len(parts) < INDEX_DEPTH:
        return True
    names = [item.index, *("/".join(path.rsplit("/", INDEX_DEPTH)[1:]) for path in item.paths)]
    if pattern in names:
        return True
    last = [name.rsplit("/", 1)[1] for name in names]
    if len(parts) == INDEX_DEPTH:
        return any(fnmatchcase(name, parts[-1]) for name in last)
    inside = "/".join(parts[INDEX_DEPTH:])
    return fnmatchcase(last[0], parts[INDEX_DEPTH - 1]) and any(
        glob.glob(f"{glob.escape(path)}/{inside}") for path in item.paths
    )


def _find_recursive(data_root: Path, kind: str, table: str, pattern: str) -> list[Item]:
    base = os.path.join(data_root, kind, table)
    matched = glob.glob(pattern, root_dir=base, recursive=True)
    prefixes = {"/".join(path.strip("/").split("/")[:INDEX_DEPTH]) for path in matched}
    days = {prefix.rsplit("/", 1)[0] for prefix in prefixes if prefix.count("/") == INDEX_DEPTH - 1}
    wanted = {f"{base}/{prefix}" for prefix in prefixes}
    items = (item for day in sorted(days) for item in day_items(data_root, kind, table, day))
    return [item for item in items if wanted.intersection(item.paths)]


def run_items(data_root: Path, table: str, index: str) -> list[Item]:
    """All items of one run, in the order of the kinds."""
    day, name = index.rsplit("/", 1)
    found = []
    for kind in DEFAULT_LOG_TYPES:
        base = os.path.join(data_root, kind, table, day)
        if kind == ARCHIVE_TESTER:
            candidates = [f"{base}/{name}{suffix}" for suffix in ARCHIVE_SUFFIXES]
        else:
            candidates = [f"{base}/{name}"]
        paths = tuple(path for path in candidates if os.path.lexists(path))
        if paths:
            found.append(Item(kind, table, index, paths))
    return found


def check_table(data_root: Path, table: str) -> None:
    """Be sure that a task table is there in some kind.

    Raises:
        NoSuchTableError: it is not; the message names the nearest of those that are.
    """
    if any((data_root / kind / table).is_dir() for kind in DEFAULT_LOG_TYPES):
        return
    advice = hint(table, find_tables(data_root)) or "it has none yet"
    message = f"{data_root} has no task table {table!r}\nhint: {advice}"
    raise NoSuchTableError(message)


def archived_root(data_root: Path) -> Path:
    """The archive of a database, itself laid out as a database."""
    return data_root / ARCHIVED_TABLE


def item_bytes(item: Item) -> tuple[int, int]:
    """Bytes (allocated) and number of files of an item; what vanishes meanwhile counts nothing."""
    total = files = 0
    for path in item.paths:
        for size in _sizes(path):
            total += size
            files += 1
    return total, files


def _sizes(path: str) -> Iterator[int]:
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, _, names in os.walk(path):
            for name in names:
                yield _size(os.path.join(folder, name))
    else:
        yield _size(path)


def _size(path: str) -> int:
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    blocks: int = getattr(found, "st_blocks", 0)
    return blocks * 512 or found.st_size


class NoRunsYetError(DatabaseError):
    """A project whose database has no run yet; nothing is wrong with it."""


def find_data_root(start: Path) -> Path:
    """The database in a folder, above it, below the folder with rla_config.yaml above it, or in `data` here.

    Raises:
        NoRunsYetError: here is a project, but no run yet.
        DatabaseError: there is none, or several.
    """
    project = None
    for folder in (start, *start.parents):
        if is_data_root(folder):
            return folder
        if (folder / CONFIG_NAME).is_file():
            project = project or folder
            found = sorted(roots_below(folder, SEARCH_DEPTH))
            found = [path for path in found if path.is_relative_to(start)] or found
            if len(found) == 1:
                return found[0]
            if found:
                listing = "\n".join(f"  --data-root {path}" for path in found)
                message = f"{folder} holds several databases, choose one:\n{listing}"
                raise DatabaseError(message)
    if is_data_root(start / DATA_FOLDER):  # of rla_client.init in a project without rla_config.yaml
        return start / DATA_FOLDER
    if project is not None:
        message = f"no runs yet in {project / DATA_FOLDER}"
        raise NoRunsYetError(message)
    message = (
        f"no database here: neither {start} nor a folder above it holds one; "
        "go to your project, or give --data-root FOLDER (the folder that holds log/)"
    )
    raise DatabaseError(message)


def is_data_root(folder: Path) -> bool:
    """Whether a folder looks like a data root: a kind with a table in it."""
    kinds = [kind for kind in (LOG, ARCHIVE_TESTER, HYPARAMETER) if (folder / kind).is_dir()]
    return bool(kinds) and bool(find_tables(folder, kinds))


def roots_below(folder: Path, depth: int) -> list[Path]:
    """Databases in a folder, at most `depth` folders deep; hidden ones are passed over."""
    found = []
    for entry in os.scandir(folder):
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
            continue
        path = Path(entry.path)
        if is_data_root(path):
            found.append(path)
        elif depth > 1:
            found += roots_below(path, depth - 1)
    return found
