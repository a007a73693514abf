"""RLA's query functions: what of one kind lies in a table, by the date of the run.

`experiment_data_query(data_root, table, glob, kind)` gives `{date: result}` with dates
`YYYY/MM/DD/HH-MM-SS-ffffff`. Both index spellings are found. A file that cannot be read is
warned about by name and left out; the rest is given. Nothing in a file is imported or called.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError, DatabaseError, QueryCountError
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CHECKPOINT,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    TMP_DATA,
    RunIndex,
)
from rla_client.database.records import PROGRESS_FILE
from rla_client.database.tree import Item, check_data_root, check_table, find_items
from rla_client.run.hyper_params import HyperParams, read_archive, read_parameter_file, wrap

if TYPE_CHECKING:
    from rla_client.manager import ExpManager

_DATE = re.compile(r"\d{4}/\d{2}/\d{2}/\d{2}-\d{2}-\d{2}-\d{6}")
_STEP = re.compile(r"[_-](\d+)(?:\.[^/]*)?$")


@dataclass(slots=True)
class BasicQueryResult:
    """What was found; `dirname` is the item's folder."""

    dirname: str


@dataclass(slots=True)
class LogQueryResult(BasicQueryResult):
    """A log folder with its progress.csv."""


@dataclass(slots=True)
class HyperParamResult(BasicQueryResult):
    """`hyper_param["a"]["b"]` and `hyper_param.a.b`."""

    hyper_param: HyperParams


@dataclass(slots=True)
class CkpResult(BasicQueryResult):
    """`all_ckps`: names of the checkpoint files, oldest first."""

    all_ckps: list[str]


@dataclass(slots=True)
class OtherQueryResult(BasicQueryResult):
    """`location`: paths of all files below `dirname`; `ctime`: when each was last changed, Unix seconds."""

    ctime: list[float] = field(default_factory=list)
    location: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ArchiveQueryResult(BasicQueryResult):
    """`exp_manager`: a manager of the run, as `load_tester` gives it."""

    exp_manager: ExpManager


def extract_valid_index(regex: str) -> str | None:
    """The `YYYY/MM/DD/HH-MM-SS-ffffff` in a path, None without one."""
    match = _DATE.search(regex)
    return match.group(0) if match else None


def experiment_data_query(
    data_root: str | os.PathLike[str],
    task_table_name: str,
    reg: str,
    data_type: str,
    single_res_filter: bool = False,
) -> Any:  # noqa: ANN401 - one result or a dict of them, as in RLA
    """Find the data of one kind of all runs that a glob matches.

    Args:
        data_root: the database.
        task_table_name: task table.
        reg: glob below the table, such as `2026/11/21/*` or `*/*/*/*lr=0.1*`.
        data_type: LOG, ARCHIVE_TESTER, OTHER_RESULTS, TMP_DATA, HYPARAMETER or CHECKPOINT.
        single_res_filter: give the only result itself.

    Returns:
        `{index date: result}`, oldest first; with `single_res_filter` the result.

    Raises:
        NotImplementedError: another kind.
        NoSuchTableError: the database has no such table.
        QueryCountError: `single_res_filter` and none or several were found; an AssertionError.
    """
    make = _READERS.get(data_type)
    if make is None:
        message = f"data of kind {data_type!r} cannot be queried; choose one of {', '.join(_READERS)}"
        raise NotImplementedError(message)
    root = check_data_root(data_root)
    check_table(root, task_table_name)
    found: dict[str, BasicQueryResult] = {}
    for item in find_items(root, data_type, task_table_name, reg):
        try:
            result = make(item)
        except (DatabaseError, OSError) as error:
            warnings.warn(str(error), stacklevel=2)
            continue
        if result is not None:
            date = extract_valid_index(item.index) or item.index
            found[item.index if date in found else date] = result
    if not single_res_filter:
        if not found:
            warnings.warn(f"no {data_type} of table {task_table_name} matches {reg!r}", stacklevel=2)
        return found
    if len(found) != 1:
        listing = ", ".join(list(found)[:10]) or "none"
        message = f"exactly one run was asked for, {len(found)} match {reg!r} in {task_table_name}: {listing}"
        raise QueryCountError(message)
    return next(iter(found.values()))


def single_experiment_query(
    data_root: str | os.PathLike[str], task_table_name: str, log_date: str, data_type: str
) -> Any:  # noqa: ANN401
    """The data of one run by its date, such as `2026/07/30/13-32-43-819243`.

    Raises:
        QueryCountError: none or several runs have this date; the message says which.
    """
    return experiment_data_query(
        data_root, task_table_name, log_date + "*", data_type, single_res_filter=True
    )


def files_below(folder: str) -> list[str]:
    """Paths of all visible files below a folder, sorted."""
    found = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.join(here, name) for name in sorted(names) if not name.startswith(".")]
    return found


def checkpoint_names(folder: str) -> list[str]:
    """Names in a checkpoint folder, oldest first: by time-step, those without one before, by change time."""
    try:
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []

    def age(name: str) -> tuple[int, float, str]:
        match = _STEP.search(name)
        step = int(match[1]) if match else -1
        try:
            return step, os.stat(os.path.join(folder, name)).st_mtime, name
        except OSError:
            return step, 0.0, name

    return sorted(names, key=age)


def _log_result(item: Item) -> LogQueryResult | None:
    folder = item.paths[0]
    if os.path.exists(os.path.join(folder, PROGRESS_FILE)):
        return LogQueryResult(folder)
    inside = next((path for path in files_below(folder) if PROGRESS_FILE in os.path.basename(path)), None)
    return LogQueryResult(os.path.dirname(inside)) if inside else None


def _hyper_param_result(item: Item) -> HyperParamResult | None:
    found = read_parameter_file(item.paths[0])
    return None if found is None else HyperParamResult(item.paths[0], wrap(found))


def _checkpoint_result(item: Item) -> CkpResult | None:
    names = checkpoint_names(item.paths[0])
    return CkpResult(item.paths[0], names) if names else None


def _other_result(item: Item) -> OtherQueryResult | None:
    paths = files_below(item.paths[0])
    if not paths:
        return None
    return OtherQueryResult(item.paths[0], [os.path.getmtime(path) for path in paths], paths)


def _archive_result(item: Item) -> ArchiveQueryResult:
    return ArchiveQueryResult(_without_ending(item.paths[0]), archived_manager(item))


def archived_manager(item: Item) -> ExpManager:
    """A manager of the run that an archive_tester entry is of; what the archive says of it, as plain data.

    Raises:
        BrokenFileError: the entry is broken, or no archived manager.
        OSError: it cannot be opened.
    """
    from rla_client.manager import ExpManager
    from rla_client.run.data import Item as Place
    from rla_client.run.find import read_run

    content, index = read_archive(item.paths), RunIndex.parse(item.index)
    if content is None or index is None:
        raise BrokenFileError(item.paths[0], "it is not an archived manager")
    base = _without_ending(os.path.abspath(item.paths[0]))
    root = base.removesuffix(f"/{ARCHIVE_TESTER}/{item.table}/{item.index}")
    loaded: ExpManager = ExpManager.of_run(read_run(Place(root, item.table, index, index.opened), content))
    loaded.hyper_param = wrap(loaded.hyper_param)
    return loaded


def _without_ending(path: str) -> str:
    return str(Path(path).parent / Path(path).name.rpartition(".")[0])


_READERS: dict[str, Callable[[Item], BasicQueryResult | None]] = {
    LOG: _log_result,
    ARCHIVE_TESTER: _archive_result,
    OTHER_RESULTS: _other_result,
    TMP_DATA: _other_result,
    HYPARAMETER: _hyper_param_result,
    CHECKPOINT: _checkpoint_result,
}
