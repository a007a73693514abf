"""Import of TensorBoard's runs.

Each run is a folder of event files, or one file. The index consists of the time of the first record and
the path below the imported folder. Values are copied by repr. Files are read up to the first torn record,
as TensorBoard does. Scalars are simple values, or tensors of one number. Text summaries and data of
`add_hparams` become hyper-parameters, CleanRL's table `|param|value|` one for each row; other summaries
are skipped. Folders that `add_scalars` and `add_hparams` of torch and tensorboardX create below the
writer's folder belong to its run, as with our own writer: curves `main/name`, and metrics, which get the
last step if they have none.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.database.imports.event_messages import event_messages
from rla_client.database.imports.item_writer import table_of
from rla_client.database.imports.source import UNREADABLE, Look, Point, RunContent, failed, look
from rla_client.readers import read_events
from rla_client.run.parameters.hyper_params import parameters_of_table
from rla_client.stream.param_values import plain_hyper_param

if TYPE_CHECKING:
    from tensorboardX.proto.summary_pb2 import Summary


EVENTS = ".tfevents."  # in the name of an event file
_WRITTEN = re.compile(r"\.tfevents\.(\d+)\.(.+?)(?:\.(\d+)\.\d+.*)?$")  # time, host; process, from torch
_RENAMED = ("", None)  # writer of an event file with another name
_ODD = re.compile(r"[^-/\w.]")  # in a tag
_NUMBERS = {1: ("float_val", "f"), 2: ("double_val", "d"), 3: ("int_val", "i"), 9: ("int64_val", "q")}
_TEXT = 7
MAX_POINTS = 20_000_000  # of one run, about 200 bytes of memory each


def find_tensorboard(path: Path) -> Iterator[Look]:
    """Each folder below a folder that holds event files and is no part of another run; or one event file."""
    if path.is_file():
        if EVENTS in path.name:
            folder = path.absolute().parent
            yield os.fspath(path), partial(look, partial(_read_tensorboard, file=path), folder, folder)
        return
    runs: dict[Path, tuple[_Begun, list[_Part]]] = {}
    closed: list[OSError] = []
    for here, below, names in os.walk(path, onerror=closed.append):
        below.sort()  # trials of add_hparams, in order
        if any(EVENTS in name for name in names):
            folder = Path(here)
            owner = next((above for above in folder.parents if above in runs), None)
            part = None if owner is None else _part(folder, owner, runs[owner][0])
            if owner is None or part is None:
                runs[folder] = _begun(names), []
            else:
                runs[owner][1].append(part)
    for run, (_, parts) in runs.items():
        trials = _trials(parts)
        for folder, some in (
            (run, [part for part in parts if part.params is None] if trials else parts),
            *((one.folder, []) for one in trials),
        ):
            yield os.fspath(folder), partial(look, partial(_read_tensorboard, parts=some), folder, path)
    for error in closed:
        yield failed(os.fspath(error.filename), error)


_Begun = dict[tuple[str, str | None], int]  # (host; process, from torch) → start of its first file


@dataclass(frozen=True, slots=True)
class _Part:
    """A folder below a run's folder that its writer made for `add_scalars` or `add_hparams`.

    Attributes:
        folder: the folder.
        name: its path below the run's folder.
        params: parameters of `add_hparams`; None for `add_scalars`.
    """

    folder: Path
    name: str
    params: Mapping[str, Any] | None = None

    def points(self, last: float) -> Iterator[Point]:
        """Points of the folder as the run's; those of `add_hparams` without a step get the step `last`."""
        for tag, step, when, value in chain.from_iterable(map(read_points, event_files(self.folder))):
            if self.params is None:
                yield _joined(tag, self.name) or tag, step, when, value
            else:
                yield tag, step or last, when, value


def _part(folder: Path, owner: Path, begun: _Begun) -> _Part | None:
    """A folder as part of the run in `owner`, whose files `begun` describes; None if it is a separate run."""
    name = folder.relative_to(owner).as_posix()
    params: dict[str, Any] | None = None
    metrics: set[str] | None = None
    found = False
    try:
        files = event_files(folder)
        if not _of_one_writer(files, begun):
            return None
        for tag, _, _, value in chain.from_iterable(map(_values, files)):
            if isinstance(value, frozenset):
                metrics = {*(metrics or ()), *map(_clean, value)}
            elif isinstance(value, dict):
                params = {**(params or {}), **value}
            elif not isinstance(value, float) or not (
                _joined(tag, name) if metrics is None else _clean(tag) in metrics
            ):
                return None
            found = True
    except UNREADABLE:  # reported when it is read as a run
        return None
    if not found or (params is None) is not (metrics is None):
        return None
    return _Part(folder, name, params) if params is not None or _may_be_curve(name, files) else None


def _begun(names: Iterable[str]) -> _Begun:
    """Writers of event files and the start of their first file, from the names."""
    begun: _Begun = {}
    for name in names:
        if EVENTS in name:
            match = _WRITTEN.search(name)
            writer, when = ((match[2], match[3]), int(match[1])) if match else (_RENAMED, 0)
            begun[writer] = min(begun.get(writer, when), when)
    return begun


def _of_one_writer(files: Sequence[Path], begun: _Begun) -> bool:
    """Whether a run's writer may have written files below its own: the same process, started not earlier."""
    return _RENAMED in begun or all(
        writer in begun and begun[writer] <= when
        for writer, when in _begun(file.name for file in files).items()
    )


def _may_be_curve(name: str, files: Sequence[Path]) -> bool:
    """Whether `add_scalars` makes such a folder; tensorboardX names no process and makes two levels."""
    return "/" in name or any(process or not host for host, process in _begun(file.name for file in files))


def _joined(tag: str, name: str) -> str:
    """`loss/train` for a tag `loss` of `add_scalars` in `loss_train` or `loss/train`; else empty."""
    for begin in (f"{tag.replace('/', '_')}_", f"{tag}/"):
        if len(name) > len(begin) and _clean(name).startswith(_clean(begin)):
            return f"{tag}/{name[len(begin) :]}"
    return ""


def _clean(tag: str) -> str:
    """A tag as tensorboardX cleans it."""
    return _ODD.sub("_", tag)


def _trials(parts: Sequence[_Part]) -> list[_Part]:
    """Parts of `add_hparams`, if their parameters differ: each is a run of its own then."""
    trials = [part for part in parts if part.params is not None]
    return trials if len({repr(sorted((part.params or {}).items())) for part in trials}) > 1 else []


def _read_tensorboard(
    path: Path, file: Path | None = None, parts: Sequence[_Part] = ()
) -> tuple[float, RunContent]:
    own, params = event_files(path) if file is None else [file], dict[str, Any]()
    began = began_below = float("inf")  # parts must not change the start in the run's index
    events = [(one, one.name) for one in own]
    for part in parts:
        events += [(one, f"{part.name}/{one.name}") for one in event_files(part.folder)]

    def points() -> Iterator[Point]:
        nonlocal began, began_below
        last = 0.0
        for tag, step, when, value in chain.from_iterable(map(read_points, own)):
            began, last = min(began, when), max(last, step)
            yield tag, step, when, value
        for tag, step, when, value in chain.from_iterable(part.points(last) for part in parts):
            began_below = min(began_below, when)
            yield tag, step, when, value

    def scalars() -> Iterator[Point]:
        for number, (tag, step, when, value) in enumerate(points()):
            if number == MAX_POINTS:
                raise BrokenFileError(os.fspath(path), f"more than {MAX_POINTS} points: import parts of it")
            if isinstance(value, float):
                yield tag, step, when, value
            else:
                params.update(value if isinstance(value, dict) else _text_parameters(tag, value))

    columns, rows = table_of(scalars())
    if set(columns) == {TIME_STEP, TIMESTAMP}:
        raise BrokenFileError(
            os.fspath(file or path), "no scalar in its event files" if file is None else "no scalar"
        )
    began = began_below if began == float("inf") else began
    return began, RunContent(columns, rows, params, events)


def _text_parameters(tag: str, text: str) -> dict[str, Any]:
    """Hyper-parameters of a text summary: those of a table `|param|value|`, else the text itself."""
    table = parameters_of_table(text)
    return {name: plain_hyper_param(value) for name, value in table.items()} or {tag: text}


def event_files(folder: Path) -> list[Path]:
    """Event files directly in a folder, in the order of their starts."""
    return sorted(path for path in folder.iterdir() if EVENTS in path.name and path.is_file())


def read_points(path: str | os.PathLike[str]) -> Iterator[Point]:
    """All scalar and text points of one file, up to the first torn record; hyper-parameters as a dict.

    Raises:
        BrokenFileError: it is a pipe, a device or a folder.
        OSError: it cannot be opened.
    """
    for tag, step, when, found in _values(path):
        if found is not None and not isinstance(found, frozenset):
            yield tag, step, when, found


def _values(path: str | os.PathLike[str]) -> Iterator[Point]:
    """As `read_points`, and a frozenset for names of metrics, None for other summaries."""
    event_class = event_messages()[0]
    from google.protobuf.message import DecodeError

    for data in read_events(path, check=False):
        try:
            event = event_class.FromString(data)
            points = [(value.tag, _value(value)) for value in event.summary.value]
        except DecodeError:
            return
        for tag, found in points:
            yield tag, int(event.step), float(event.wall_time), found


def _value(value: Summary.Value) -> float | str | dict[str, Any] | frozenset[str] | None:
    if value.metadata.plugin_data.plugin_name == "hparams":
        return _hparams(value.metadata.plugin_data.content)
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


def _hparams(data: bytes) -> dict[str, Any] | frozenset[str]:
    """Hyper-parameters of a session, or the names of metrics from the data of the experiment."""
    plugin_data = event_messages()[1].FromString(data)
    if plugin_data.WhichOneof("data") == "experiment":
        return frozenset(info.name.tag for info in plugin_data.experiment.metric_infos)
    found = plugin_data.session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind") or "string_value") for name, value in found.items()}
