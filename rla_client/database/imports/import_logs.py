"""Import of other tools' logs (`rla import`).

Runs appear in batches of `BATCH`, each run complete. After a kill, the next command that changes the
database (`changes`) finishes or deletes the last batch, and the next import continues there. Each tool has
a reader, a module of its name (`tables` reads text tables); all yield `source.Look`, and
`item_writer.write` makes the items.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rla_client.contract.errors import ArgumentError, BrokenFileError
from rla_client.contract.layout import DEFAULT_LOG_TYPES, LOG
from rla_client.contract.safe_names import check_table_name
from rla_client.contract.text.spelling import unknown
from rla_client.database.changes.copies import publish
from rla_client.database.changes.journal import HIDDEN
from rla_client.database.imports import (
    aim,
    garage,
    mlflow,
    neptune,
    sacred,
    tables,
    tensorboard,
    trackio,
    wandb,
)
from rla_client.database.imports.item_writer import write
from rla_client.database.imports.source import DEFAULT_TABLE, UNREADABLE, Look, guarded, table_name

BATCH = 100  # runs that share a sync and a journal entry, and appear together
Finder = Callable[[Path], Iterator[Look]]
FINDERS: dict[str, Finder] = {
    "tensorboard": tensorboard.find_tensorboard,
    "csv": tables.find_csv,
    "garage": garage.find_garage,
    "wandb": wandb.find,
    "mlflow": mlflow.find_mlflow,
    "trackio": trackio.find_trackio,
    "neptune": neptune.find_neptune,
    "aim": aim.find_aim,
    "sacred": sacred.find_sacred,
}


def import_logs(  # noqa: PLR0913 - the options of the command
    data_root: Path,
    kind: str,
    folder: Path,
    table: str | None,
    now: float,
    *,
    reruns: bool = False,
    media: bool = True,
) -> ImportedRuns:
    """Import everything below a folder; the caller holds `changing`.

    Args:
        data_root: the database.
        kind: one of `FINDERS`.
        folder: folder or file to import.
        table: task table of the runs; None: that of their project, else `imported`.
        now: Unix seconds.
        reruns: also repetitions made by `rla rerun`.
        media: also images, videos and other files.

    Raises:
        ArgumentError: an unknown kind, or nothing of that kind below the folder.
        MissingExtraError: the kind needs a library that is not installed.
        OSError: the database cannot be written; imported runs stay, and the next import continues there.
    """
    if table is not None:
        check_table_name(table)
    if kind not in FINDERS:
        raise unknown(kind, FINDERS, f"cannot import {kind!r}")
    if ".." in folder.parts:  # names of runs include those of the folders above
        folder = folder.resolve()
    work = ImportedRuns(data_root, table, media)
    looks = work.of_others(guarded(os.fspath(folder), FINDERS[kind](folder)), folder)
    if kind == "garage" and not reruns:
        looks = work.without_reruns(looks, folder)
    while not work.ended:
        publish(data_root, partial(work.stage, looks), now)
    if not (work.made or work.there or work.problems):
        message = f"nothing to import: no {kind} logs below {folder}"
        raise ArgumentError(message)
    return work


@dataclass(slots=True)
class ImportedRuns:
    """Result of one call of `import_logs` so far.

    Attributes:
        data_root: see the arguments, also for `table` and `media`.
        made: imported runs, each as `table/index`.
        there: runs that existed already.
        problems: messages about everything that was left out.
        remarks: remark on imported runs → number of runs.
        ended: whether everything has been read.
    """

    data_root: Path
    table: str | None
    media: bool
    made: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    remarks: Counter[str] = field(default_factory=Counter)
    ended: bool = False

    def of_others(self, looks: Iterator[Look], folder: Path) -> Iterator[Look]:
        """Skip runs of this database, and staged copies of them.

        If `folder` itself lies inside the database, its runs are meant, and none is skipped.
        """
        root, start = os.path.realpath(self.data_root), os.path.realpath(folder)
        own = tuple(f"{root}/{kind}/" for kind in (*DEFAULT_LOG_TYPES, HIDDEN))
        if f"{start}/".startswith(own):
            yield from looks
            return
        found = False
        for where, look in looks:
            if not os.path.realpath(where).startswith(own):
                yield where, look
            elif not found:
                found = True
                self.problems.append(f"the runs in {self.data_root}, which are in this database already")

    def without_reruns(self, looks: Iterator[Look], folder: Path) -> Iterator[Look]:
        """Skip repetitions made by `rla rerun`."""
        for where, look in looks:
            if garage.is_rerun(Path(where), folder):
                self.problems.append(f"{where} repeats a run (rla rerun); --reruns imports it")
            else:
                yield where, look

    def stage(self, looks: Iterator[Look], staging: Path) -> dict[str, str]:
        """Write the next `BATCH` runs into a folder; returns {path in it: path relative to the data root}."""
        moves: dict[str, str] = {}
        staged: list[str] = []
        for where, look in looks:
            try:
                found = look()
                place = self.table or (table_name(found.table) if found.table else DEFAULT_TABLE)
                run = f"{place}/{found.index}"
                if run in staged or (self.data_root / LOG / run).exists():
                    self.there.append(run)
                    continue
                source = found.read()
            except UNREADABLE as error:
                self.problems.append(_problem(where, error))
                continue
            name = str(len(staged))
            try:
                kinds = write(staging / name, source if self.media else replace(source, files=()))
            except BrokenFileError as error:  # a file to be copied; any other error ends the import
                self.problems.append(str(error))
                shutil.rmtree(staging / name)
                continue
            moves |= {f"{name}/{kind}": f"{kind}/{run}" for kind in kinds}
            staged.append(run)
            self.remarks.update(source.remarks)
            if len(staged) == BATCH:
                break
        else:
            self.ended = True
        self.made += staged
        return moves


def _problem(where: str, error: Exception) -> str:
    if isinstance(error, BrokenFileError):
        return str(error)
    return f"{where} cannot be read: {type(error).__name__}: {error}"
