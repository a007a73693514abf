"""Truncation of workers' tables at a resume.

Workers and ranks have tables of their own in the run's log folder, `progress.<label>.csv` and
`progress.<label>.json`, event files in `tb/<label>/`, and samples in `samples.<label>.jsonl.gz` of the folder
of samples. The agent truncates those of the main process when its stream begins
(rla_agent/pipeline/resume_fork.py). The others are truncated here, before the run is opened again: all
records of the former processes have been ingested, and the new processes have not begun. Removed rows move to
the same abandoned folder. A rank then continues its own table.

A row counts as later when its time-step is above the checkpoint's. Where time-steps restart at 0 (stages of a
curriculum), it must also have been recorded after the checkpoint was saved, so that earlier stages stay. Else
its time does not count, since a rank may have been ahead of the main process then. The same holds for events:
a file is truncated before its first later event, as the main process's is, and one without earlier events is
moved.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rla_client.contract.errors import BrokenFileError, RemoteProtocolError
from rla_client.contract.filesystem.atomic_write import atomic_file, fsync_file, fsync_folder
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import LOG, SAMPLES, TIME_STEP, TIMESTAMP, is_samples_file
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.contract.text.csv_lines import cells_of
from rla_client.run.current_logger import warn

if TYPE_CHECKING:
    from rla_client.run.resume.resume_point import ResumePoint

_TABLE = re.compile(r"progress\.[^.]+\.(csv|json)")
_WORKER = re.compile(r"(rank|p)[0-9]+(-[A-Za-z0-9-]+-[0-9a-f]{6})?(-[0-9]+)?")  # see `worker_opening`
VERSION_BYTES = 64  # of a file's first record, which tells the format's version, at most
_EVENT_FILE = re.compile(r"events\.out\.tfevents\..+", re.DOTALL)
Placed = tuple[float, float]  # time-step, Unix seconds


def cut_worker_tables(point: ResumePoint) -> None:
    """Truncate the tables of workers and ranks to the point of a resume; can be repeated.

    One that cannot be read or written stays unchanged, with a warning.
    """
    limit = -math.inf if point.time_step is None else float(point.time_step)
    saved = saved_moment(point)
    moment = -math.inf if saved is None else saved
    folder = Path(point.item.folder(LOG))
    for name in sorted(os.listdir(folder)):
        found = _TABLE.fullmatch(name)
        if found is not None:
            try:
                cut_table(folder / name, folder / point.continues.abandoned, limit, moment)
            except (OSError, BrokenFileError) as error:
                warn(f"{name} keeps its rows after the checkpoint: {error}")
    _cut_all_samples(point, limit, moment)
    for path in sorted(folder.glob("tb/*/*")):
        if is_writer(folder, path.parent.name) and _EVENT_FILE.fullmatch(path.name):
            aside = folder / point.continues.abandoned / "tb" / path.parent.name
            try:
                with held_folder(folder, f"tb/{path.parent.name}") as held:
                    cut_events(held / path.name, aside, limit, moment)
            except (OSError, BrokenFileError) as error:
                warn(f"{path} keeps its events after the checkpoint: {error}")


def saved_moment(point: ResumePoint) -> float | None:
    """When the checkpoint was saved, Unix seconds, if time-steps had restarted before; else None.

    The main process's own table shows it: only then has it later time-steps that were recorded before the
    save.
    """
    if point.time_step is None or point.order is None:
        return None
    limit, saved = float(point.time_step), point.order / 1e9
    log = Path(point.item.folder(LOG))
    for name in ("progress.csv", "progress.json"):
        try:
            with open_plain(log / name) as file:
                _, records, place = _rows(file, name)
                began_anew = any(step > limit and recorded <= saved for step, recorded in map(place, records))
                return saved if began_anew else None
        except (OSError, BrokenFileError):
            continue
    return saved


def is_writer(log: Path, label: str) -> bool:
    """Whether a label is of a worker, a rank or a joined process, and not of an import or a renamed file."""
    own_table = (log / f"progress.{label}.csv").is_file() and not label.startswith("old-")
    return own_table or _WORKER.fullmatch(label) is not None


def _cut_all_samples(point: ResumePoint, limit: float, moment: float) -> None:
    folder = Path(point.item.folder(SAMPLES))
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    for name in names:
        label = name.removeprefix("samples.").removesuffix(".jsonl.gz")
        if is_samples_file(name) and is_writer(Path(point.item.folder(LOG)), label):
            try:
                cut_samples(folder / name, folder / point.continues.abandoned, limit, moment)
            except (OSError, BrokenFileError) as error:
                warn(f"{name} keeps its samples after the checkpoint: {error}")


def cut_samples(path: Path, abandoned: Path, limit: float, moment: float) -> None:
    """Move the members from the first later one on to a file of the same name in `abandoned`.

    Args:
        path: of a samples file.
        abandoned: a folder.
        limit: the last time-step that stays.
        moment: Unix seconds; what was recorded before stays, too.

    Raises:
        OSError: it cannot be read or written.
        BrokenFileError: it is a link, or no file of samples.
    """
    from rla_client.contract.sample_members import (  # noqa: PLC0415 - rarely needed
        HEAD_BYTES,
        member_head,
        read_index,
    )

    with open_plain(path) as file:
        keep = 0
        while (head := member_head(file.read(HEAD_BYTES))) is not None:
            file.seek(keep)
            try:
                recorded = read_index(file.read(HEAD_BYTES + head.index_bytes), head).timestamp
            except RemoteProtocolError as error:
                raise BrokenFileError(str(path), str(error)) from error
            if head.step > limit and recorded > moment:
                break
            keep += head.size
            file.seek(keep)
        file.seek(keep)
        if not _move_rest(file, abandoned, path, b""):
            return
    os.truncate(path, keep)
    fsync_file(path)


def cut_events(path: Path, abandoned: Path, limit: float, moment: float) -> None:
    """Cut an event file before its first later event; one with nothing else goes to `abandoned`.

    Args:
        path: of the file.
        abandoned: a folder.
        limit: the last time-step that stays.
        moment: Unix seconds; what was recorded before stays, too.

    Raises:
        OSError: it cannot be read or written.
        BrokenFileError: it is a link, or no file.
    """
    from rla_client.contract.event_records import records_until  # noqa: PLC0415 - rarely needed

    with open_plain(path) as file:
        keep = records_until(iter(partial(file.read, 1 << 20), b""), limit, moment)
        if keep is None:
            return
    if keep <= VERSION_BYTES:
        abandoned.mkdir(parents=True, exist_ok=True)
        path.rename(abandoned / path.name)
        fsync_folder(abandoned)
    else:
        os.truncate(path, keep)
        fsync_file(path)


def cut_table(path: Path, abandoned: Path, limit: float, moment: float) -> None:
    """Move the rows from the first later one on to a file of the same name in `abandoned`.

    Args:
        path: of a CSV or of JSON lines.
        abandoned: a folder.
        limit: the last time-step that stays.
        moment: Unix seconds; what was recorded before stays, too.

    Raises:
        OSError: it cannot be read or written.
        BrokenFileError: it is a link, or no file.
    """
    with open_plain(path) as file:
        head, records, place = _rows(file, path.name)
        keep = len(head)
        for record in records:
            step, recorded = place(record)
            if step > limit and recorded > moment:
                break
            keep += len(record)
        file.seek(keep)
        if not _move_rest(file, abandoned, path, head):
            return
    os.truncate(path, keep)
    fsync_file(path)


def _move_rest(file: BinaryIO, abandoned: Path, path: Path, head: bytes) -> bool:
    """Copy the rest of a file to `abandoned`, behind a head; False where there is no rest."""
    data = file.read(1 << 20)
    if not data:
        return False
    abandoned.mkdir(exist_ok=True)
    with atomic_file(abandoned / path.name, mode=file_mode(path.parent)) as copy:
        copy.write(head)
        while data:
            copy.write(data)
            data = file.read(1 << 20)
    return True


def _rows(file: BinaryIO, name: str) -> tuple[bytes, Iterator[bytes], Callable[[bytes], Placed]]:
    """Header, rows, and a function for a row's time-step and moment, of a CSV or of JSON lines."""
    if name.endswith(".json"):
        return b"", iter(file), _place_in_line
    records = _records(file)
    head, place = _table(next(records, b""))
    return head, records, place


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Complete records; newlines inside quotes do not end one."""
    waiting: list[bytes] = []
    quotes = 0
    for line in file:
        waiting.append(line)
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            yield b"".join(waiting)
            waiting, quotes = [], 0
    if waiting:
        yield b"".join(waiting)


def _cells(record: bytes) -> list[str]:
    return cells_of(record.replace(b"\0", b"").decode("utf-8", "replace"))


def _table(head: bytes) -> tuple[bytes, Callable[[bytes], Placed]]:
    """The header, and a function for a row's time-step and moment; a row without them counts as early."""
    columns = _cells(head)

    def place(record: bytes) -> Placed:
        return _placed(dict(zip(columns, _cells(record), strict=False)))

    return head, place


def _place_in_line(record: bytes) -> Placed:
    try:
        found = parse_json(record)
    except ValueError:
        return -math.inf, -math.inf
    return _placed(found if isinstance(found, dict) else {})


def _placed(row: dict[str, object]) -> Placed:
    """Time-step and moment of a row; the default moment is now."""
    return _number(row.get(TIME_STEP), -math.inf), _number(row.get(TIMESTAMP), math.inf)


def _number(value: object, otherwise: float) -> float:
    try:
        return float(value)  # type: ignore[arg-type] # what is no number raises
    except (TypeError, ValueError):
        return otherwise
