"""Making items out of foreign logs: TensorBoard event folders, CSV files, garage's folders.

Each source becomes one run: `log/<table>/<index>` with progress.csv (and TensorBoard's event
files, or garage's text log), and `hyperparameter/<table>/<index>` with parameter.json. The index
is made of the time of the source's first record and its path below the imported folder, so
importing again finds the run there and leaves it. A run appears whole; see `copies.publish`.

Of garage's folders, variant.json holds the hyper-parameters; metadata.json (git, packages, machine)
goes into the item's environment.json; secrets are hidden in both. What `rla rerun` made beside a run
repeats it, and would count twice in every mean: it is passed over unless asked for.

Folders of garage's form that our own launchers wrote hold a run.json. How the run stood goes into
the item's, not its identity (id, streams, parent): the item is a copy, which nobody goes on in.
What was still running when it was copied has the state `unknown`.

Values are copied as they are: numbers of event files by repr, cells of CSVs as text. The column
`time-step` is the step of the event, or the source's own step column.

Reading TensorBoard event files: scalars by tag, with step, wall time and value.

A file is a series of records `length u64 | masked crc u32 | data | masked crc u32`; the data are
Event messages. Reading stops at the first torn record, as TensorBoard does. Scalars are simple
values, or tensors of one number as newer writers make them. Other summaries are passed over;
text summaries (hyper-parameters) are given as text.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rla_client.code.secret_values import Secrets
from rla_client.contract.csv_lines import split_rows, write_rows
from rla_client.contract.errors import ArgumentError, BrokenFileError
from rla_client.contract.extras import extra
from rla_client.contract.files import open_plain, written_bytes
from rla_client.contract.layout import (
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    TIME_STEP,
    TIMESTAMP,
    RunIndex,
    check_table_name,
    make_info,
)
from rla_client.contract.run_file import LIVE_STATES, RUN_FILE
from rla_client.contract.spelling import unknown
from rla_client.database.copies import publish
from rla_client.database.records import MAX_TIME, UNKNOWN, read_json
from rla_client.run.readers import MAX_RECORD_BYTES

_HEAD = struct.Struct("<QI")
_NUMBERS = {1: ("float_val", "f"), 2: ("double_val", "d"), 3: ("int_val", "i"), 9: ("int64_val", "q")}
_TEXT = 7
STEP_COLUMNS = (
    TIME_STEP, "TotalEnvSteps", "time/total_timesteps", "total_timesteps", "timesteps", "global_step", "step",
    "Step", "steps", "iteration", "Iteration", "epoch",
)  # fmt: skip
ENVIRONMENT_FILE = "environment.json"
RERUN_ENDING = "-rerun"  # of the folder that `rla rerun` makes: code/ and run/
STATE_FIELDS = (  # of run.json
    "format", "state", "reason", "exit_code", "signal", "opened", "reopened", "ran_before_s", "last_row",
    "closed", "user", "host", "versions", "updated",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """One run to be made.

    Attributes:
        path: what is read, a folder or a file.
        name: its path below the imported folder.
        columns: of progress.csv.
        rows: cells as text.
        params: hyper-parameters.
        began: Unix seconds of its first record.
        events: event files to copy.
        text: text log to copy.
        state: content of the item's run.json; empty makes none.
        environment: content of the item's environment.json; empty makes none.
    """

    path: Path
    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    params: Mapping[str, Any]
    began: float
    events: Sequence[Path] = ()
    text: Path | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)


def import_logs(
    data_root: Path, kind: str, folder: Path, table: str, now: float, *, reruns: bool = False
) -> tuple[list[str], list[str], list[str]]:
    """Import everything below a folder; the caller holds `changing`.

    Args:
        data_root: the database.
        kind: tensorboard, csv or garage.
        folder: what to import.
        table: task table that gets the runs.
        now: Unix seconds.
        reruns: also what `rla rerun` made.

    Returns:
        (indices made, indices that were there, problems).

    Raises:
        ArgumentError: an unknown kind, or nothing of that kind below the folder.
    """
    check_table_name(table)
    if kind not in _FINDERS:
        raise unknown(kind, _FINDERS, f"cannot import {kind!r}")
    made: list[str] = []
    there: list[str] = []
    problems: list[str] = []
    paths = list(_FINDERS[kind](folder))
    repeated = [path for path in paths if kind == "garage" and not reruns and _is_rerun(path, folder)]
    problems += [f"{path} repeats a run (rla rerun); --reruns imports it" for path in repeated]
    for path in paths:
        if path in repeated:
            continue
        try:
            source = _READERS[kind](path, folder)
        except (BrokenFileError, OSError) as error:
            problems.append(str(error))
            continue
        index = _index(source)
        (made if _publish(data_root, table, index, (source, now)) else there).append(index)
    if not paths:
        message = f"nothing to import: no {kind} logs below {folder}"
        raise ArgumentError(message)
    return made, there, problems


def _index(source: Source) -> str:
    pairs = (
        [("source", Secrets.of(source.params).verbatim(source.name))] if source.name not in {"", "."} else []
    )
    return RunIndex.make(datetime.fromtimestamp(source.began), "noip", make_info(pairs)).path  # noqa: DTZ006


def _publish(data_root: Path, table: str, index: str, what: tuple[Source, float]) -> bool:
    source, now = what
    secrets = Secrets.of(source.params)

    def build(staging: Path) -> dict[str, str]:
        log, hyper = staging / "log", staging / "hyperparameter"
        log.mkdir(parents=True)
        hyper.mkdir()
        with (log / "progress.csv").open("w", encoding="utf-8", newline="") as file:
            write_rows(file, [source.columns, *source.rows])
        text = json.dumps(secrets.parameters(source.params), indent=4, sort_keys=True, default=str)
        for target in (log, hyper):
            (target / f"{HYPARAM_FILE_NAME}.json").write_text(text, encoding="utf-8")
        if source.state:
            (log / RUN_FILE).write_text(json.dumps(dict(source.state), indent=1), encoding="utf-8")
        if source.environment:
            text = json.dumps(secrets.parameters(source.environment), indent=1)
            (log / ENVIRONMENT_FILE).write_text(text, encoding="utf-8")
        if source.text is not None:
            shutil.copyfile(source.text, log / "log.txt")
        if source.events:
            (log / "tb" / "events").mkdir(parents=True)
            for path in source.events:
                shutil.copy2(path, log / "tb" / "events" / path.name)
        return {"log": f"{LOG}/{table}/{index}", "hyperparameter": f"{HYPARAMETER}/{table}/{index}"}

    if (data_root / LOG / table / index).exists():
        return False
    publish(data_root, build, now)
    return True


def _tensorboard_folders(folder: Path) -> Iterator[Path]:
    for here, _, names in os.walk(folder):
        if any(".tfevents." in name for name in names):
            yield Path(here)


def _csv_files(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
        return
    yield from sorted(path for path in folder.rglob("*.csv") if path.is_file())


def _garage_folders(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("progress.csv")):
        if (path.parent / "variant.json").exists() or (path.parent / "metadata.json").exists():
            yield path.parent


def _read_tensorboard(path: Path, folder: Path) -> Source:
    table: dict[int, dict[str, str]] = {}
    times: dict[int, float] = {}
    params: dict[str, Any] = {}
    tags: dict[str, None] = {}
    began = float("inf")
    files = event_files(path)
    for file in files:
        for point in read_points(file):
            began = min(began, point.wall_time)
            if isinstance(point.value, str):
                params[point.tag] = point.value
                continue
            tags[point.tag] = None
            table.setdefault(point.step, {})[point.tag] = repr(point.value)
            times[point.step] = max(point.wall_time, times.get(point.step, 0.0))
    if not table:
        raise BrokenFileError(os.fspath(path), "no scalar in its event files")
    names = sorted(tags.keys() - {TIME_STEP, TIMESTAMP})
    columns = [*names, TIME_STEP, TIMESTAMP]
    rows = [
        [*(cells.get(name, "") for name in names), str(step), repr(times[step])]
        for step, cells in sorted(table.items())
    ]
    return Source(path, _name(path, folder), columns, rows, params, began, files)


def _read_csv(path: Path, folder: Path) -> Source:
    columns, rows = _table(path)
    return Source(path, _name(path, folder), *_with_steps(columns, rows), {}, path.stat().st_mtime)


def _read_garage(path: Path, folder: Path) -> Source:
    columns, rows = _table(path / "progress.csv")
    params, metadata = (read_json(path / name) or {} for name in ("variant.json", "metadata.json"))
    around = metadata.pop("environment", {})
    environment = {**around, **metadata} if isinstance(around, dict) else metadata
    state = _state(path / RUN_FILE)
    began = state.get("opened")
    if not isinstance(began, int | float) or not 0 <= began < MAX_TIME:
        began = min(entry.stat().st_mtime for entry in path.iterdir())
    text = path / "debug.log"
    events = [*event_files(path), *sorted((path / "tb").rglob("*.tfevents.*"))]
    return Source(
        path, _name(path, folder), *_with_steps(columns, rows), params, began, events,
        text if text.is_file() else None, state, environment,
    )  # fmt: skip


def _is_rerun(path: Path, folder: Path) -> bool:
    """Whether a folder is the `run` of a `<run>-rerun` that `rla rerun` made beside `<run>`."""
    above = path.parent
    return path.name == "run" and above.name.endswith(RERUN_ENDING) and folder not in {path, above}


def _state(path: Path) -> dict[str, Any]:
    """How the run of a run.json stood; empty without one.

    Raises:
        BrokenFileError: it is no JSON object.
    """
    found = read_json(path) or {}
    state = {name: found[name] for name in STATE_FIELDS if name in found}
    if state.get("state") in LIVE_STATES:
        state |= {"state": UNKNOWN, "reason": "it was running when it was imported"}
    return state


def _name(path: Path, folder: Path) -> str:
    return path.name if path == folder else os.fspath(path.relative_to(folder))


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV; lines with `#` before the header (SB3's monitor) are passed over."""
    with open_plain(path, links=True) as file:
        data = io.BytesIO(file.read(written_bytes(file)).replace(b"\0", b"?"))
    lines = list(io.TextIOWrapper(data, encoding="utf-8", errors="replace", newline=""))
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    rows = [row for row in split_rows("".join(lines)) if row]
    if not rows:
        raise BrokenFileError(os.fspath(path), "it is empty")
    return rows[0], [[*row, *[""] * (len(rows[0]) - len(row))][: len(rows[0])] for row in rows[1:]]


def _with_steps(columns: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The table with a column `time-step`: a copy of the source's step column, else the row's number."""
    if TIME_STEP in columns:
        return columns, rows
    known = next((name for name in STEP_COLUMNS if name in columns), None)
    place = columns.index(known) if known is not None else -1
    steps = [row[place] if known is not None else str(number) for number, row in enumerate(rows)]
    return [*columns, TIME_STEP], [[*row, step] for row, step in zip(rows, steps, strict=True)]


_FINDERS: dict[str, Callable[[Path], Iterator[Path]]] = {
    "tensorboard": _tensorboard_folders,
    "csv": _csv_files,
    "garage": _garage_folders,
}
_READERS: dict[str, Callable[[Path, Path], Source]] = {
    "tensorboard": _read_tensorboard,
    "csv": _read_csv,
    "garage": _read_garage,
}


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one tag: a number, or text."""

    tag: str
    step: int
    wall_time: float
    value: float | str


def event_files(folder: Path) -> list[Path]:
    """Event files directly in a folder, in the order in which they were begun."""
    return sorted(path for path in folder.iterdir() if ".tfevents." in path.name and path.is_file())


def read_points(path: str | os.PathLike[str]) -> Iterator[Point]:
    """All scalar and text points of one file, up to the first torn record.

    Raises:
        BrokenFileError: it is a pipe, a device or a folder.
        OSError: it cannot be opened.
    """
    with extra("tensorboard", "reading event files"):
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from tensorboardX.proto.event_pb2 import Event

    with open_plain(path, links=True) as file:
        while True:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            length = _HEAD.unpack(head)[0]
            if length > MAX_RECORD_BYTES:
                return
            data = file.read(length + 4)
            if len(data) < length + 4:
                return
            event = Event()
            try:
                event.ParseFromString(data[:length])
            except DecodeError:
                return
            for value in event.summary.value:
                found = _value(value)
                if found is not None:
                    yield Point(value.tag, int(event.step), float(event.wall_time), found)


def _value(value: Any) -> float | str | None:  # noqa: ANN401 - a protobuf message
    which = value.WhichOneof("value")
    if which == "simple_value":
        return float(value.simple_value)
    if which != "tensor":
        return None
    tensor = value.tensor
    if tensor.dtype == _TEXT and tensor.string_val:
        return bytes(tensor.string_val[0]).decode("utf-8", "replace")
    if tensor.dtype not in _NUMBERS:
        return None
    field, code = _NUMBERS[tensor.dtype]
    numbers = list(getattr(tensor, field))
    if not numbers and len(tensor.tensor_content) == struct.calcsize(code):
        numbers = list(struct.unpack("<" + code, tensor.tensor_content))
    return float(numbers[0]) if len(numbers) == 1 else None
