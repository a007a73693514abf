"""What the items of runs hold: RLA's query functions, text logs, tracebacks, event files for TensorBoard.

`experiment_data_query(data_root, table, glob, kind)` gives `{date: result}` with dates
`YYYY/MM/DD/HH-MM-SS-ffffff`. Both index spellings are found. A file that cannot be read is
warned about by name and left out; the rest is given. Nothing in a file is imported or called.

A resumed run keeps the hyper-parameters that it began with; each change is a file of its own
(`rla_client.run.parameters`). The traceback of what ended a run is the last one of its warnings.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError, DatabaseError, QueryCountError
from rla_client.contract.filesystem.plain_files import open_plain, read_small, written_bytes
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CHECKPOINT,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    OUTPUT_NAMES,
    TMP_DATA,
)
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.contract.text.spelling import unknown
from rla_client.database.csv_table import PROGRESS_FILE
from rla_client.database.records import Record, read_json
from rla_client.database.runs import Run, archived_manager
from rla_client.database.tree import (
    Item,
    check_data_root,
    check_table,
    checkpoint_names,
    files_below,
    find_items,
    shown_name,
)
from rla_client.run.parameters.hyper_params import HyperParams, wrap
from rla_client.run.parameters.parameter_reader import read_parameter_file

if TYPE_CHECKING:
    from rla_client.manager import ExpManager

LOG_FILES = {
    "log": "log.txt",
    "progress": "progress.csv",
    "warn": "warn.txt",
    "backup": "backup.txt",
    "console": "console.txt",
}
MAX_END_BYTES = 32 << 20  # of the last lines: 20 rows of 65,536 numbers
FAILED = "failed"
MAX_TRACEBACK_LINES = 15  # the end says what and where; `rla tail --file warn` has all
END_BYTES = 80 << 10  # of the warnings: the longest traceback that is kept, and what came after
KEPT_LOGDIR_S = 30 * 86400.0  # TensorBoard rarely looks at a folder of `rla tb --print` that is older
_DATE = re.compile(r"\d{4}/\d{2}/\d{2}/\d{2}-\d{2}-\d{2}-\d{6}")


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


def last_lines(path: Path, lines: int, max_bytes: int = MAX_END_BYTES) -> tuple[list[bytes], int]:
    """The last lines of a file, within `max_bytes`, and the offset after them.

    Raises:
        OSError: it cannot be read.
    """
    with open_plain(path) as file:
        size = written_bytes(file)
        block, start = b"", size
        while start > 0 and block.count(b"\n") <= lines and size - start < max_bytes:
            step = min(start, 1 << 16)
            start -= step
            file.seek(start)
            block = file.read(step) + block
    return (block.splitlines()[-lines:] if lines > 0 else []), size


def log_path(run: Run, what: str) -> Path:
    """The path of one of a run's text files.

    Args:
        run: whose.
        what: a key of `LOG_FILES`.

    Raises:
        UnknownNameError: there is no such kind of file. DatabaseError: the run has none.
    """
    if what not in LOG_FILES:
        raise unknown(what, LOG_FILES, f"there is no file {what!r}")
    path = Path(run.folder(LOG), LOG_FILES[what])
    if what == "console":  # of a run that went on, the newest
        path = max(path.parent.glob("console*.txt"), key=lambda found: found.stat().st_mtime, default=path)
    if not path.exists():
        there = [name for name, file in LOG_FILES.items() if Path(run.folder(LOG), file).exists()]
        name = shown_name(run.table, run.index)
        message = f"{name} has no {path.name}; it has: {', '.join(there) or 'no log'}"
        raise DatabaseError(message)
    return path


def resumed_with(log_folder: str) -> list[dict[str, Any]]:
    """What each `parameter.resumed-N.json` says, in order: `file`, `time_step`, `time`, `changed`."""
    from rla_client.run.parameters.parameter_changes import change_files

    found = []
    for path in change_files(Path(log_folder)):
        try:
            content = parse_json(read_small(path))
        except (OSError, ValueError):
            continue  # `rla fsck` is for broken files
        if isinstance(content, dict) and isinstance(content.get("changed"), dict):
            said = {name: content.get(name) for name in ("time_step", "time", "changed")}
            found.append({"file": path.name, **said})
    return found


def changes_text(resumes: list[dict[str, Any]]) -> dict[str, str]:
    """Lines of name and value for people: the name of a file, and `lr 0.1 → 0.2, …`."""
    from rla_client.database.text import plain

    lines = {}
    for one in resumes:
        changes = [
            f"{name} {' → '.join(str(plain(value)) for value in values)}"
            for name, values in one["changed"].items()
            if isinstance(values, list)
        ]
        step = one["time_step"]
        lines[one["file"]] = ("" if step is None else f"at {plain(step)}: ") + ", ".join(changes)
    return lines


def traceback_end(log_folder: str, state: str | None) -> str:
    """The last lines of the traceback that a failed run ended with; empty where there is none."""
    if state != FAILED:
        return ""
    from rla_client.run.failure import TRACEBACK_HEAD

    try:
        reason = str((read_json(f"{log_folder}/{RUN_FILE}") or {}).get("reason") or "")
        with open_plain(f"{log_folder}/{OUTPUT_NAMES['warn']}") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - END_BYTES, 0))
            text = file.read(END_BYTES).decode("utf-8", "replace")
    except (OSError, BrokenFileError):
        return ""
    place = text.rfind(TRACEBACK_HEAD)
    if place < 0 or not reason or reason.partition(":")[0] not in text[place:]:
        return ""  # one of something else, which the run went on after
    return "\n".join(text[place:].rstrip("\n").split("\n")[-MAX_TRACEBACK_LINES:])


def tensorboard_folders(data_root: Path, records: Sequence[Record]) -> dict[str, Path]:
    """Name shown in TensorBoard → event folder, for the runs that have one."""
    found = {}
    for record in records:
        folder = data_root / LOG / record.table / record.index / "tb"
        if os.path.isdir(folder):  # not one that may not be read
            found[f"{record.table}/{record.index}"] = folder
    return found


def fresh_logdir(now: float) -> Path:
    """A new folder for `make_logdir` in the user's cache; those of `KEPT_LOGDIR_S` ago go.

    Raises:
        OSError: it cannot be made.
    """
    import platformdirs

    try:
        cache = Path(platformdirs.user_cache_dir("rla")) / "tb"
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, "this user has no home, and HOME is not set") from error
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in cache.iterdir():
        with suppress(OSError):
            if now - old.lstat().st_mtime > KEPT_LOGDIR_S:
                shutil.rmtree(old)  # links are removed, never followed
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)), dir=cache))


def make_logdir(folders: dict[str, Path], target: Path, *, copy: bool) -> None:
    """A folder that TensorBoard can be pointed to.

    Args:
        folders: from `tensorboard_folders`.
        target: made; must not exist or be empty.
        copy: copy the event files; else link them.

    Raises:
        DatabaseError: the target holds something.
    """
    if target.exists() and any(target.iterdir()):
        message = f"{target} is not empty; choose another folder"
        raise DatabaseError(message)
    for name, folder in folders.items():
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if copy:
            shutil.copytree(folder, place)
        else:
            place.symlink_to(folder, target_is_directory=True)
