"""The tree of a database: which tables, which runs, which files of which kind, and which run somebody means.

An item is one run's data of one kind: a folder `<kind>/<table>/<index>`, or for archive_tester
the files `<index>.pkl`, `<index>.json`, `<index>.pt`, which count as one. Walking reads folder
names only; names that begin with a dot are never seen, so temp files and the trash are not
items. A glob as in RLA is relative to the table; a glob that ends above the index
(`2022/06/*`) means every item below what it matches.

A run that was continued on another machine is a *chain* of items. run.json of each later one has a `parent`
with `chain` set: `{"run": index, "table", "time_step", "rows", "chain": true}`; `rows` and `time_step` say
how much of the parent counts (what it recorded after its last checkpoint was done again). A fork has a parent
too, but no `chain`: it holds a copy of the rows. A chain is shown as one run, by its newest item; the earlier
ones are left out of lists, and its curves begin with theirs. A parent that is not in this database is left
out.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.config.project import CONFIG_NAME, DATA_FOLDER
from rla_client.contract.checkpoint.checkpoint_age import oldest_first, save_time
from rla_client.contract.errors import AmbiguousRunError, DatabaseError, NoSuchRunError, NoSuchTableError
from rla_client.contract.layout import ARCHIVE_TESTER, ARCHIVED_TABLE, DEFAULT_LOG_TYPES, HYPARAMETER, LOG
from rla_client.contract.run_index import DATE_LENGTH, RunIndex, make_info
from rla_client.contract.text.spelling import ends_in, hint, listed, near

if TYPE_CHECKING:
    from rla_client.run.parameters.hyper_params import HyperParams

LAST = "@last"
MAX_CANDIDATES_SHOWN = 8
MAX_LINKS = 1000  # of one chain; more is a circle
_DAY_LENGTH = len("2026/11/21/")
_KIND_FOLDER = re.compile(rf"^(?:.*/)?(?:{'|'.join(DEFAULT_LOG_TYPES)})/(?=.+/\d{{4}}/\d\d/\d\d/)")
_MICROSECONDS = re.compile(r"(\d{4}/\d{2}/\d{2}/\d{2}-\d{2}-\d{2})-\d{6}(?=[_ ])")
_STEP = re.compile(r"[_-](\d+)(?:\.[^/]*)?$")
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


def _tell_closed(error: PermissionError) -> None:
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
        _tell_closed(error)
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
        _tell_closed(error)
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
    return next((name[: -len(suffix)] for suffix in ARCHIVE_SUFFIXES if name.endswith(suffix)), None)


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
    sizes = [size for path in item.paths for size in _sizes(path)]
    return sum(sizes), len(sizes)


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


def files_below(folder: str) -> list[str]:
    """Paths of all visible files below a folder, sorted."""
    found = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.join(here, name) for name in sorted(names) if not name.startswith(".")]
    return found


def checkpoint_names(folder: str) -> list[str]:
    """Names in a checkpoint folder, in the order of their saves (`contract.checkpoint.checkpoint_age`)."""
    try:
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    if len(names) < 2:  # noqa: PLR2004 - nothing to order
        return names

    def step_of(name: str) -> int:
        match = _STEP.search(name)
        return int(match[1]) if match else -1

    return [one.name for one in oldest_first(save_time(Path(folder), name, step_of(name)) for name in names)]


def short_name(index: str) -> str:
    """The date part of an index."""
    return index[:DATE_LENGTH]


def shown_name(table: str, index: str) -> str:
    """Table and index for people, without the bare `_&` that an index without tracked parameters ends in."""
    return f"{table}/{index[:-2] if index.endswith(('_&', ' &')) else index}"


def tracked_texts(index: str, hyper: HyperParams | None = None) -> dict[str, str]:
    """The tracked hyper-parameters as the index spells them; the fast form of `tracked`.

    Args:
        index: of a run.
        hyper: all hyper-parameters, for values that hold an `&` themselves.
    """
    parts = index.partition("&")[2].split("&")
    found = {}
    place = 0
    while place < len(parts):
        taken = _parts_of_value(parts[place:], hyper) if hyper else 1
        key, sign, value = "&".join(parts[place : place + taken]).partition("=")
        if sign:
            found[key] = value
        place += taken
    return found


def _parts_of_value(parts: list[str], hyper: HyperParams) -> int:
    """Over how many of the parts between `&` the first one's value goes."""
    key = parts[0].partition("=")[0]
    try:
        value = hyper.dotted(key)
    except KeyError:
        return 1
    whole = make_info([(key, value)])[1:]
    count = whole.count("&") + 1
    return count if "&".join(parts[:count]) == whole else 1


def match_runs(names: Sequence[tuple[str, str]], reference: str) -> list[tuple[str, str]]:
    """(table, index) pairs that a reference means.

    `@last`; else the first of these that any run fits: the whole index; tracked hyper-parameters
    as they stand there (`seed=3` is not 30; `lr=0.1&seed=3`); a part of table and index without the
    microseconds of its time, which fit any short number; a part with them; what `rla-agent status`
    prints (time, table, hyper-parameters), up to an … at its end; its words in any order, each cut
    where a … stands. What stands before the table in the path of a folder of the run does not count.
    """
    if reference == LAST:
        return list(names[-1:])
    wanted = reference.strip().rstrip("/")
    if not wanted:
        return []
    exact = [pair for pair in names if wanted in {pair[1], f"{pair[0]}/{pair[1]}"}]
    if exact:
        return exact
    below_kind = _KIND_FOLDER.sub("", wanted)
    if below_kind != wanted:
        return match_runs(names, below_kind)
    fields = [f"&{part}&" for part in wanted.strip("&").split("&")]
    if all("=" in field for field in fields):
        exact = [pair for pair in names if all(field in f"{pair[1]}&" for field in fields)]
    return (
        exact
        or [pair for pair in names if wanted in _MICROSECONDS.sub(r"\1", f"{pair[0]}/{pair[1]}", count=1)]
        or [pair for pair in names if wanted in f"{pair[0]}/{pair[1]}"]
        or _match_shown(names, wanted)
        or _match_words(names, wanted.split())
    )


def _match_shown(names: Sequence[tuple[str, str]], text: str) -> list[tuple[str, str]]:
    """Runs that `rla-agent status` or `rla show` print as this text, or as one that begins so before an …."""
    begin = text.removesuffix("…")
    fits = str.__eq__ if begin == text else str.startswith
    return [pair for pair in names if fits(_status_name(*pair), begin) or fits("/".join(pair), begin)]


def _status_name(table: str, index: str) -> str:
    found = RunIndex.parse(index)
    return "" if found is None else f"{found.time[:8]} {table} {found.info.strip('&')}".strip()


def _match_words(names: Sequence[tuple[str, str]], words: Sequence[str]) -> list[tuple[str, str]]:
    """Runs that have each word: the table, whole tracked hyper-parameters, or else a part of the index."""
    if len(words) < 2 and not words[0].endswith("…"):  # noqa: PLR2004
        return []

    def has(pair: tuple[str, str], word: str) -> bool:
        table, index = pair
        if word in {table, "…"}:
            return True
        text = word.removesuffix("…").strip("&")
        if "=" not in text:
            return text in index
        cut = word.endswith("…") and not word.endswith("&…")
        return f"&{text}" in f"&{index}" if cut else f"&{text}&" in f"&{index}&"

    return [pair for pair in names if all(has(pair, word) for word in words)]


def not_one(found: list[tuple[str, str]], names: Sequence[tuple[str, str]], reference: str) -> DatabaseError:
    """The error to raise when a reference means no run, or several."""
    if not names:
        return NoSuchRunError("there is no run here yet")
    if not found:
        return _no_run(names, reference)
    shown = "\n".join(f"  {shown_name(table, index)}" for table, index in found[-MAX_CANDIDATES_SHOWN:])
    more = f" (the newest {MAX_CANDIDATES_SHOWN})" if len(found) > MAX_CANDIDATES_SHOWN else ""
    return AmbiguousRunError(
        f"{len(found)} runs match {reference!r}; give a longer part, in quotes where it holds & "
        f"('lr=0.1&seed=3'){more}:\n{shown}"
    )


def _no_run(names: Sequence[tuple[str, str]], reference: str) -> NoSuchRunError:
    """The error for a reference that means no run: of `key=value` parts it says which one fails."""
    problem = f"no run matches {reference!r}"
    tracked: dict[str, list[str]] = {}
    for _, index in reversed(names):
        for key, value in tracked_texts(index).items():
            tracked.setdefault(key, []).append(value)
    for part in reference.strip().strip("&").split("&"):
        key, sign, value = part.partition("=")
        if sign and key not in tracked:
            close = (ends_in(key, tracked) or near(key, tracked))[:1]
            advice = f"did you mean {close[0]}={value}?" if close else _by_parameter(key, value, tracked)
            return NoSuchRunError(f"{problem}: no run tracks a parameter {key!r}\nhint: {advice}")
        if sign and value not in tracked[key]:
            values = listed(sorted(set(tracked[key]), key=_by_number))
            return NoSuchRunError(f"{problem}: none has {key}={value}\nhint: {key} is {values}")
    words = {word for _, index in names for word in (short_name(index), short_name(index)[_DAY_LENGTH:])}
    tables = {table for table, _ in names}
    close = near(reference, ["@last", *sorted(tables), *sorted(words, reverse=True)])
    meant = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return NoSuchRunError(f"{problem}\nhint: {meant}`rla ls` lists the runs, @last is the newest")


def _by_parameter(key: str, value: str, tracked: Mapping[str, object]) -> str:
    """How to find runs by a parameter that stands in no name."""
    there = f"tracked are {listed(tracked)}; " if tracked else ""
    literal = json.dumps(value, ensure_ascii=False) if _by_number(value)[0] else value
    return f"{there}others are found by `rla ls --where {shlex.quote(f'{key} == {literal}')}`"


def _by_number(text: str) -> tuple[int, float, str]:
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)


@dataclass(frozen=True, slots=True)
class Link:
    """One item of a chain.

    Attributes:
        index: of the item.
        rows: how many of its first rows count; None: see `time_step`.
        time_step: only rows up to it count; None: all.
    """

    index: str
    rows: int | None = None
    time_step: float | None = None


def link_of(run: Mapping[str, Any], table: str) -> Link | None:
    """The run that the one of this run.json continues, None without one."""
    parent = run.get("parent")
    if not isinstance(parent, dict) or parent.get("chain") is not True or parent.get("table") != table:
        return None
    index, rows, step = str(parent.get("run")), parent.get("rows"), parent.get("time_step")
    if RunIndex.parse(index) is None or ".." in index.split("/"):
        return None
    return Link(
        index,
        rows if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0 else None,
        float(step) if isinstance(step, int | float) else None,
    )


def chain_of(data_root: str | os.PathLike[str], table: str, index: str) -> list[Link]:
    """The items of a run, the first begun first; the last is the run itself."""
    from rla_client.contract.run_file import run_file

    chain = [Link(index)]
    seen = {index}
    while len(chain) < MAX_LINKS:
        link = link_of(run_file(data_root, table, chain[0].index), table)
        if link is None or link.index in seen or not Path(data_root, LOG, table, link.index).is_dir():
            break
        seen.add(link.index)
        chain.insert(0, link)
    return chain


class NoRunsYetError(DatabaseError):
    """A project whose database has no run yet; nothing is wrong with it."""


def find_data_root(start: Path, *, new: bool = False) -> Path:
    """The database in a folder, above it, below the folder with rla_config.yaml above it, or in `data` here.

    Of several below the project's folder it is the one in `data` here, or in the project's own `data`.

    Args:
        start: where to look from.
        new: of a project without runs, where its first run will go.

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
            own = [place / DATA_FOLDER for place in (start, folder) if place / DATA_FOLDER in found]
            if own or len(found) == 1:
                return (own or found)[0]
            if found:
                listing = "\n".join(f"  --data-root {path}" for path in found)
                message = f"{folder} holds several databases, choose one:\n{listing}"
                raise DatabaseError(message)
    if is_data_root(start / DATA_FOLDER):  # of rla_client.init in a project without rla_config.yaml
        return start / DATA_FOLDER
    if project is not None and new:
        return project / DATA_FOLDER
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
