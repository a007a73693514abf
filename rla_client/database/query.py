"""RLA's query functions over the items of runs.

`experiment_data_query(data_root, table, glob, kind)` gives `{date: result}` with dates
`YYYY/MM/DD/HH-MM-SS-ffffff`, for indexes in either spelling. A file that cannot be read is left out, with
a warning that names it. Nothing in a file is imported or called.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import DatabaseError, QueryCountError
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT, HYPARAMETER, LOG, OTHER_RESULTS, TMP_DATA
from rla_client.database.archived_manager import archived_manager
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.tree.data_root import check_data_root
from rla_client.database.tree.items import Item, check_table, checkpoint_names, files_below, find_items
from rla_client.run.parameters.hyper_params import HyperParams, wrap
from rla_client.run.parameters.parameter_reader import read_parameter_file

if TYPE_CHECKING:
    from rla_client.manager import ExpManager


_DATE = re.compile(r"\d{4}/\d{2}/\d{2}/\d{2}-\d{2}-\d{2}-\d{6}")


@dataclass(slots=True)
class BasicQueryResult:
    """Result of a query; `dirname` is the item's folder."""

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
    """`location`: paths of all files below `dirname`; `ctime`: their modification times, Unix seconds."""

    ctime: list[float] = field(default_factory=list)
    location: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ArchiveQueryResult(BasicQueryResult):
    """`exp_manager`: a manager of the run, as `load_tester` returns it."""

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
    """Data of one kind of all runs that a glob matches.

    Args:
        data_root: the database.
        task_table_name: task table.
        reg: glob below the table, such as `2026/11/21/*` or `*/*/*/*lr=0.1*`.
        data_type: LOG, ARCHIVE_TESTER, OTHER_RESULTS, TMP_DATA, HYPARAMETER or CHECKPOINT.
        single_res_filter: expect exactly one result, and return it instead of a dict.

    Returns:
        `{index date: result}`, oldest first; with `single_res_filter` the result.

    Raises:
        NotImplementedError: `data_type` is none of these.
        NoSuchTableError: the database has no such table.
        QueryCountError: `single_res_filter` and the glob matches no run or several; an AssertionError.
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
    """Data of one run by its date, such as `2026/07/30/13-32-43-819243`.

    Raises:
        QueryCountError: no run has this date, or several have; the message lists them.
    """
    return experiment_data_query(
        data_root, task_table_name, log_date + "*", data_type, single_res_filter=True
    )


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
    return ArchiveQueryResult(item.paths[0].rpartition(".")[0], archived_manager(item))


_READERS: dict[str, Callable[[Item], BasicQueryResult | None]] = {
    LOG: _log_result,
    ARCHIVE_TESTER: _archive_result,
    OTHER_RESULTS: _other_result,
    TMP_DATA: _other_result,
    HYPARAMETER: _hyper_param_result,
    CHECKPOINT: _checkpoint_result,
}
