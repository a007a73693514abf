"""Enumeration of a data root's items.

An item is one run's data of one kind: a folder `<kind>/<table>/<index>`, or for archive_tester the files
`<index>.pkl`, `<index>.json`, `<index>.pt`, which count as one. Only names of folders are read; names that
begin with a dot are skipped, so temp files and the trash are not items. A glob is relative to the table,
as in RLA; a glob that ends above the index (`2022/06/*`) means every item below its matches.
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

from rla_client.contract.checkpoint.checkpoint_age import oldest_first, save_time
from rla_client.contract.errors import NoSuchTableError
from rla_client.contract.layout import ARCHIVE_TESTER, DEFAULT_LOG_TYPES
from rla_client.contract.run_index import RunIndex
from rla_client.contract.text.spelling import hint

_STEP = re.compile(r"[_-](\d+)(?:\.[^/]*)?$")
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


def list_names(folder: str | os.PathLike[str]) -> list[str]:
    """Sorted visible names in a folder; empty if it is missing."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8, as all our names are."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def tell_closed(path: object) -> None:
    """Warn about a file or folder that is left out for lack of permission."""
    warnings.warn(f"left out, as you may not read it: {path}", stacklevel=3)


def tell_unread(error: OSError) -> None:
    """Warn about a file or folder that is left out because it cannot be read."""
    if isinstance(error, PermissionError):
        tell_closed(error.filename)
        return
    reason = (error.strerror or str(error)).lower()
    warnings.warn(f"left out, as it cannot be read ({reason}): {error.filename}", stacklevel=3)


def find_tables(data_root: Path, kinds: Iterable[str] = DEFAULT_LOG_TYPES) -> list[str]:
    """Sorted names of all task tables; unreadable ones are left out, with a warning."""
    found: set[str] = set()
    for kind in kinds:
        found.update(_tables_below(data_root / kind, "", MAX_TABLE_DEPTH))
    return sorted(found)


def _tables_below(folder: Path, table: str, depth: int) -> Iterator[str]:
    try:
        names = list_names(folder)
    except OSError as error:
        if not table:
            raise
        tell_unread(error)
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
    except OSError as error:
        tell_unread(error)
        if closed is not None:
            closed.append(os.fspath(folder))
        return []


def day_items(
    data_root: Path, kind: str, table: str, day: str, closed: list[str] | None = None
) -> list[Item]:
    """The items of one day, sorted by name.

    Args:
        data_root: the database.
        kind: kind of the items.
        table: task table of the items.
        day: `YYYY/MM/DD`.
        closed: list that receives the day's folder if it cannot be read; there is also a warning.
    """
    folder = os.path.join(data_root, kind, table, day)
    groups: dict[str, list[str]] = {}
    for name in _names_within(folder, closed):
        stem = archive_stem(name) if kind == ARCHIVE_TESTER else name
        if stem is not None and _is_text(name) and RunIndex.parse(f"{day}/{stem}") is not None:
            groups.setdefault(stem, []).append(f"{folder}/{name}")
    return [Item(kind, table, f"{day}/{stem}", tuple(paths)) for stem, paths in groups.items()]


def archive_stem(name: str) -> str | None:
    """Name of the run of an archive_tester file; None for other files."""
    return next((name[: -len(suffix)] for suffix in ARCHIVE_SUFFIXES if name.endswith(suffix)), None)


def find_items(data_root: Path, kind: str, table: str, pattern: str = "*") -> list[Item]:
    """Items of one kind that a glob matches, or that lie below its matches.

    Args:
        data_root: the database.
        kind: kind of the items.
        table: task table.
        pattern: glob relative to the table, as RLA's `regex` and `regs`; for archive_tester with or without
            the file ending.
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
    """Check that a task table exists in some kind.

    Raises:
        NoSuchTableError: it does not; the message names the nearest table.
    """
    if any((data_root / kind / table).is_dir() for kind in DEFAULT_LOG_TYPES):
        return
    advice = hint(table, find_tables(data_root)) or "it has none yet"
    message = f"{data_root} has no task table {table!r}\nhint: {advice}"
    raise NoSuchTableError(message)


def files_below(folder: str) -> list[str]:
    """Paths of all visible files below a folder, sorted."""
    found = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.join(here, name) for name in sorted(names) if not name.startswith(".")]
    return found


NO_CHECKPOINTS = frozenset({"completions"})  # TRL's samples, beside the Trainer's checkpoints


def checkpoint_names(folder: str) -> list[str]:
    """Names in a checkpoint folder, in the order of their saves (`contract.checkpoint.checkpoint_age`)."""
    try:
        names = [name for name in os.listdir(folder) if not (name.startswith(".") or name in NO_CHECKPOINTS)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    if len(names) < 2:  # noqa: PLR2004 - nothing to order
        return names

    def step_of(name: str) -> int:
        match = _STEP.search(name)
        return int(match[1]) if match else -1

    return [one.name for one in oldest_first(save_time(Path(folder), name, step_of(name)) for name in names)]
