"""RLA's tools over many runs of one table.

Each tool takes a glob below the table, prints what it matches, asks `y/n` (unless `skip_ask`), acts, and
returns the number of matched items over all kinds: a run with items of five kinds counts five. Deleting
moves items to the trash, from which `rla trash` restores them for at least seven days. Runs that are being
written, or that have rows in the spool, are left out with a message.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    ARCHIVED_TABLE,
    DEFAULT_LOG_TYPES,
    HYPARAM_FILE_NAME,
    LOG,
    TIME_STEP,
)
from rla_client.contract.safe_names import check_table_name
from rla_client.database.changes.change_lock import changing
from rla_client.database.changes.copies import copy_items
from rla_client.database.changes.live_runs import live_runs
from rla_client.database.changes.trash import move_to_trash
from rla_client.database.clock import clock
from rla_client.database.curves.csv_tail import read_tail
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.records.liveness import waiting_in_spool
from rla_client.database.tree.data_root import check_data_root
from rla_client.database.tree.items import Item, find_items, run_items


class Filter:
    """Choice of the matched runs that a deletion takes: all, or those with few time-steps."""

    ALL = "all"
    SMALL_TIMESTEP = "small_ts"

    def __init__(self) -> None:
        self.type = self.ALL
        self.timstep_bound: float = 0

    def config(self, type: str, timstep_bound: float) -> None:  # noqa: A002 - RLA's name
        """Set the choice.

        Args:
            type: `Filter.ALL` or `Filter.SMALL_TIMESTEP`.
            timstep_bound: a run is small if its last time-step is at most this.

        Raises:
            ArgumentError: an unknown type.
        """
        if type not in {self.ALL, self.SMALL_TIMESTEP}:
            message = f"a filter is {self.ALL!r} or {self.SMALL_TIMESTEP!r}, not {type!r}"
            raise ArgumentError(message)
        self.type = type
        self.timstep_bound = timstep_bound


class BasicLogTool:
    """Base of the tools: the database, the table, the glob."""

    def __init__(
        self, proj_root: str, task_table_name: str, regex: str, optional_log_type: Iterable[str] | None = None
    ) -> None:
        self.proj_root = check_data_root(proj_root)
        self.task_table_name = check_table_name(task_table_name)
        self.regex = regex
        self.log_types = [*DEFAULT_LOG_TYPES, *(optional_log_type or ())]

    def _matched(self, regex: str, kinds: Iterable[str] | None = None) -> list[Item]:
        wanted = self.log_types if kinds is None else [kind for kind in self.log_types if kind in set(kinds)]
        return [
            item for kind in wanted for item in find_items(self.proj_root, kind, self.task_table_name, regex)
        ]

    def _show(self, items: list[Item], verb: str) -> None:
        for item in items:
            print(f"{verb} {item.kind}/{item.table}/{item.index}")  # noqa: T201 - the tools talk, as RLA's
        if not items:
            print(f"nothing in table {self.task_table_name} matches {self.regex!r}")  # noqa: T201

    def _idle(self, items: list[Item]) -> list[Item]:
        live = live_runs(self.proj_root, items, clock())
        for table, index in sorted(live):
            print(f"left out, it is being written: {table}/{index}")  # noqa: T201
        idle = [item for item in items if (item.table, item.index) not in live]
        waiting = waiting_in_spool(self.proj_root, {(item.table, item.index) for item in idle})
        for table, index in sorted(waiting):
            print(f"left out, rows of it wait for an agent (rla-agent start): {table}/{index}")  # noqa: T201
        return [item for item in idle if (item.table, item.index) not in waiting]

    def _copy_all(self, verb: str, announced: str, target: Callable[[Item], str], *, skip_ask: bool) -> int:
        """Copy the matched items, run by run, to the paths that `target` gives; see `copy_items`."""
        items = self._matched(self.regex)
        self._show(items, announced)
        if not items or not _agreed(f"{verb} these files? (y/n) ", skip_ask):
            return 0
        with changing(self.proj_root, clock()):
            idle = self._idle(items)
            for index in dict.fromkeys(item.index for item in idle):
                of_run = [item for item in idle if item.index == index]
                copy_items(self.proj_root, of_run, target, clock())
        return len(idle)


class DeleteLogTool(BasicLogTool):
    """Deletes the runs of a table that `filter` chooses; see `Filter`."""

    def __init__(
        self,
        proj_root: str,
        task_table_name: str,
        regex: str,
        filter: Filter,  # noqa: A002 - RLA's name
        **kwargs: Iterable[str] | None,
    ) -> None:
        super().__init__(proj_root, task_table_name, regex, **kwargs)
        chosen: object = filter
        if not isinstance(chosen, Filter):
            message = f"filter must be a Filter, got {type(chosen).__name__}"
            raise ArgumentError(message)
        self.filter = chosen

    def delete_related_log(
        self, skip_ask: bool = False, delete_log_types: Iterable[str] | None = None
    ) -> int:
        """Delete everything that the glob matches; returns the number of items, 0 if the user declines."""
        return self._delete(self._matched(self.regex, delete_log_types), skip_ask)

    def delete_small_timestep_log(self, skip_ask: bool = False) -> int:
        """Delete the matched runs that have no rows or a last time-step of at most the bound."""
        small = []
        for item in self._matched(self.regex, (LOG,)):
            step = last_time_step(item.paths[0])
            if step is not None and step <= self.filter.timstep_bound:
                small.append(item.index)
        items = [item for index in small for item in run_items(self.proj_root, self.task_table_name, index)]
        return self._delete(items, skip_ask)

    def _delete(self, items: list[Item], skip_ask: bool) -> int:
        self._show(items, "delete")
        if not items or not _agreed("delete these files? (y/n) ", skip_ask):
            return 0
        with changing(self.proj_root, clock()):
            idle = self._idle(items)
            if idle:
                move_to_trash(self.proj_root, idle, clock())
        return len(idle)


class ArchiveLogTool(BasicLogTool):
    """Copies runs to `arc/`."""

    def __init__(
        self,
        proj_root: str,
        task_table_name: str,
        regex: str,
        archive_table_name: str = ARCHIVED_TABLE,
        **kwargs: Iterable[str] | None,
    ) -> None:
        super().__init__(proj_root, task_table_name, regex, **kwargs)
        self.archive_table_name = check_table_name(archive_table_name)

    def archive_log(self, skip_ask: bool = False) -> int:
        """Copy the matched items that are not archived yet; returns the number of matched items."""
        return self._copy_all(
            "archive",
            "archive",
            lambda item: f"{self.archive_table_name}/{item.kind}/{item.table}",
            skip_ask=skip_ask,
        )


class MigrateLogTool(BasicLogTool):
    """Copies runs to another table of the same database."""

    def __init__(
        self,
        proj_root: str,
        task_table_name: str,
        regex: str,
        target_task_table_name: str,
        **kwargs: Iterable[str] | None,
    ) -> None:
        super().__init__(proj_root, task_table_name, regex, **kwargs)
        self.target_task_table_name = check_table_name(target_task_table_name)

    def migrate_log(self, skip_ask: bool = False) -> int:
        """Copy the matched items that the other table lacks; returns the number of matched items."""
        table = self.target_task_table_name
        announced = f"copy to {table}:"
        return self._copy_all("migrate", announced, lambda item: f"{item.kind}/{table}", skip_ask=skip_ask)


class ViewLogTool(BasicLogTool):
    """Prints backup.txt of the runs that have reached time-step 1."""

    def view_log(self, skip_ask: bool = False) -> int:
        """Print them one by one; returns the number of printed files."""
        shown = 0
        for item in self._matched(self.regex, (LOG,)):
            if (last_time_step(item.paths[0]) or 0) < 1:
                continue
            print("view experiment:", f"{item.table}/{item.index}")  # noqa: T201
            path = Path(item.paths[0], "backup.txt")
            if path.is_file() and _agreed("press y to view ", skip_ask):
                print(path.read_text(encoding="utf-8", errors="replace"))  # noqa: T201
                shown += 1
        return shown


class PrettyPlotterTool(BasicLogTool):
    """Writes `parameter.json` into the log folder of runs that only have an archive_tester entry."""

    def gen_json(self, regex: str | None = None) -> int:
        """Write the files of all matched runs; returns the number of written files.

        The file holds the hyper-parameters and `formatted_log_name`, the index.
        """
        from rla_client.run.state.archive_reader import read_archive

        written = 0
        for item in self._matched(self.regex if regex is None else regex, (ARCHIVE_TESTER,)):
            folder = f"{LOG}/{item.table}/{item.index}"
            try:
                archive = read_archive(item.paths)
            except (DatabaseError, OSError) as error:
                print(error)  # noqa: T201
                continue
            if archive is None:
                print(f"no archive_tester entry of {folder}")  # noqa: T201
                continue
            content = {**(archive.get("hyper_param") or {}), "formatted_log_name": item.index}
            text = json.dumps(content, indent=4, sort_keys=True, default=str)
            try:
                with held_folder(self.proj_root, folder) as here:
                    write_atomic(here / f"{HYPARAM_FILE_NAME}.json", text.encode())
            except (FileNotFoundError, NotADirectoryError):
                print(f"no log folder {self.proj_root / folder}")  # noqa: T201
                continue
            written += 1
        return written


def last_time_step(log_folder: str) -> float | None:
    """Last time-step of a run: 0 without rows, None if its CSV cannot be parsed."""
    try:
        last = read_tail(os.path.join(log_folder, PROGRESS_FILE)).last
    except FileNotFoundError:
        return 0.0
    except (DatabaseError, OSError) as error:
        print(error)  # noqa: T201
        return None
    step = last.get(TIME_STEP, 0.0)
    return float(step) if isinstance(step, int | float) else None


def _agreed(question: str, skip_ask: bool) -> bool:
    return skip_ask or input(question).strip().lower() in {"y", "yes"}
