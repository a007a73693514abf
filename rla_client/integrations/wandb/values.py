"""Values that can be logged: numbers, media, artifacts.

A value goes into a cell of the row, a file of the results, or TensorBoard's events.
"""

from __future__ import annotations

import datetime as dt
import importlib
import io
import json
import os
import shutil
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rla_client import logger
from rla_client.adapter import Joined
from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.atomic_write import replacing, write_atomic
from rla_client.contract.layout import CHECKPOINT, OTHER_RESULTS
from rla_client.manager import exp_manager
from rla_client.media.result_file import keep_bytes, keep_copy
from rla_client.media.row_media import is_media, safe_name
from rla_client.media.values import audio, histogram, html, image, point_cloud, table, video
from rla_client.media.values.logged_value import LoggedValue, Where, is_frame, to_array
from rla_client.run.current_logger import warn
from rla_client.run.record.media_events import send_media_event
from rla_client.run.record.scalar_rows import scalar_rows
from rla_client.stream.clock import time_step_holder
from rla_client.stream.param_values import plain_hyper_param
from rla_client.stream.summary_scalars import summary_scalars
from rla_client.stream.values import to_plain

_warned: set[str] = set()
_CATEGORIES = (  # colours, Tableau's ten
    (31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189),
    (140, 86, 75), (227, 119, 194), (127, 127, 127), (188, 189, 34), (23, 190, 207),
)  # fmt: skip
MAX_LISTED = 32  # elements of an array that stays a list; of a larger one a histogram is kept, as in wandb
PLAIN_TYPES = frozenset({float, int, bool, str})


class Error(RlaError):
    """What wandb calls its errors."""


class UsageError(Error):
    """A call that cannot be meant."""


def tell_unknown(name: str) -> None:
    """Warn, once, that a name does nothing."""
    if name not in _warned:
        _warned.add(name)
        warn(f"wandb.{name} has no meaning here and does nothing")


class Unknown:
    """What such a name gives: called, it warns; as a decorator it leaves the function as it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Warn, unless the name is a private one of wandb's."""
        if "._" not in self._name:
            tell_unknown(self._name)
        decorates = len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType)
        return args[0] if decorates else Unknown(f"{self._name}()")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(f"{self._name}.{name}")

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Unknown:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def __repr__(self) -> str:
        return f"<wandb.{self._name}: no meaning here>"


def unknown_part(module: str, name: str) -> Unknown:
    """An attribute of a module of wandb's that is not known here.

    Raises:
        AttributeError: it is one that Python itself looks for.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    return Unknown(f"{module}.{name}")


class Lenient:
    """A class of wandb's whose further attributes are `Unknown`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Unknown(f"{type(self).__name__}.{name}")


class _Value:
    """Takes what wandb's class takes, by position or name, and has it as attributes; more is ignored."""

    takes: ClassVar[dict[str, Any]] = {}  # argument → what it is without one; `...`: there must be one
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, *args: Any, **named: Any) -> None:
        given = {**dict(zip(self.takes, args, strict=False)), **named}
        for name, default in self.takes.items():
            value = default if given.get(name) is None else given[name]
            if value is ...:
                raise TypeError(f"{type(self).__name__} needs {name}")
            setattr(self, name, value)


class Image(image.Image):
    """See `rla_client.Image`; a batch of images is shown side by side.

    Boxes, masks and classes are not drawn. Floats that are negative, and tensors beyond 1, are scaled to the
    range from their least to their greatest value, as wandb does.
    """

    def __init__(self, data_or_path: Any, mode: Any = None, caption: str | None = None, **_: Any) -> None:
        del mode
        super().__init__(data_or_path, caption)
        self.data = pixels(self.data)


class Video(video.Video):
    """See `rla_client.Video`; frames have the shape (T, C, H, W), a batch of films one dimension more."""

    def __init__(
        self, data_or_path: Any, caption: str | None = None, fps: float | None = None,
        format: str | None = None, **_: Any,  # noqa: A002 - wandb's name
    ) -> None:  # fmt: skip
        del caption
        super().__init__(data_or_path, fps or 4, format if format in {"gif", "webm", "ogg"} else "mp4")

    def save(self, name: str, where: Where) -> None:
        """See `rla_client.Video.save`."""
        if not hasattr(self.data, "shape"):
            super().save(name, where)
            return
        frames = to_array(self.data)
        batches = frames if frames.ndim == 5 else [frames]  # noqa: PLR2004 - (batch, T, C, H, W)
        for number, film in enumerate(batches):
            which = f"{name}_{number}" if len(batches) > 1 else name
            ending = "gif" if self.format == "gif" else "mp4"
            video.Video(film.transpose(0, 2, 3, 1), self.fps, ending).save(which, where)


class Audio(audio.Audio):
    """See `rla_client.Audio`."""

    def __init__(
        self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None, **_: Any
    ) -> None:
        del caption
        super().__init__(data_or_path, sample_rate or 44_100)


class Histogram(histogram.Histogram):
    """See `rla_client.Histogram`: values, or counts with the edges of their bins."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        if np_histogram is None:
            super().__init__(sequence, num_bins)
        else:
            super().__init__(counts=np_histogram[0], edges=np_histogram[1])


class Html(html.Html):
    """See `rla_client.Html`."""

    def __init__(self, data: Any, inject: bool = True, data_is_not_path: bool = False) -> None:
        del inject, data_is_not_path
        super().__init__(data)


class Object3D(LoggedValue):
    """Points, see `rla_client.PointCloud`, or a file with an object, of which a copy is kept.

    Points are an array of (n, 3), (n, 4) with a category each, or (n, 6) with colours; or, as lidars give
    them, the `points` of a mapping, whose boxes and vectors are left out.
    """

    def __init__(self, data_or_path: Any, **_: Any) -> None:
        self.data = data_or_path
        self.format = "obj"

    @classmethod
    def from_numpy(cls, data: Any, **_: Any) -> Object3D:
        """Of an array."""
        return cls(data)

    @classmethod
    def from_file(cls, data_or_path: Any, file_type: str | None = None, **_: Any) -> Object3D:
        """Of a path, or something to read from whose content is a `file_type`."""
        made = cls(data_or_path)
        made.format = file_type or made.format
        return made

    @classmethod
    def from_point_cloud(cls, points: Any, *_: Any, **__: Any) -> Object3D:
        """Of the points of a lidar."""
        return cls(points)

    def save(self, name: str, where: Where) -> None:
        """See `LoggedValue.save`."""
        data: Any = self.data.get("points") if isinstance(self.data, dict) else self.data
        if isinstance(data, str | os.PathLike):
            keep_copy(name, os.fspath(data), where)
        elif hasattr(data, "read"):
            content = data.read()
            ending = safe_name(str(self.format))
            keep_bytes(f"{name}.{ending}", content.encode() if isinstance(content, str) else content, where)
        else:
            point_cloud.PointCloud(_coloured(to_array(data))).save(name, where)


def _coloured(points: Any) -> Any:
    """Points whose fourth column is a category, each category in a colour of its own."""
    if points.ndim != 2 or points.shape[1] != 4:  # noqa: PLR2004 - x, y, z, category
        return points
    colours = np.array(_CATEGORIES, dtype=points.dtype)[points[:, 3].astype(int) % len(_CATEGORIES)]
    return np.concatenate([points[:, :3], colours], axis=1)


class Table(table.Table, Lenient):
    """See `rla_client.Table`."""

    def __init__(
        self, columns: Any = None, data: Any = None, rows: Any = None, dataframe: Any = None, **_: Any
    ) -> None:
        given: Any = next((found for found in (dataframe, data, rows) if found is not None), [])
        given = given if hasattr(given, "__len__") else list(given)
        if columns is None and not table.has_names(given):
            columns = ("Input", "Output", "Expected")
        super().__init__(columns, given)

    add_row = table.Table.add_data

    def add_column(self, name: str, data: Sequence[Any]) -> None:
        """Append a column."""
        self.data = self.data or [[] for _ in data]
        self.columns.append(name)
        for row, cell in zip(self.data, data, strict=True):
            row.append(cell)

    def get_column(self, name: str, convert_to: str | None = None) -> Any:
        """A column's cells; an array with `convert_to="numpy"`."""
        cells = [row[self.columns.index(name)] for row in self.data]
        return np.asarray(cells) if convert_to == "numpy" else cells

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Number and cells of each row."""
        return enumerate(self.data)

    def get_dataframe(self) -> Any:
        """As a pandas DataFrame."""
        import pandas as pd  # noqa: PLC0415 - slow to import

        return pd.DataFrame(self.data, columns=self.columns)


class Artifact(_Value, Lenient):
    """Files under a name; `log_artifact` copies them to the run: models to its checkpoints."""

    metadata: Any
    takes: ClassVar = {"name": ..., "type": ..., "description": None, "metadata": None}

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.metadata = dict(self.metadata or {})
        self.version, self.aliases = "v0", ["latest"]
        self.entries: dict[str, Path | bytes] = {}
        self._folder: Path | None = None

    def add_file(self, local_path: str | os.PathLike[str], name: str | None = None, **_: Any) -> None:
        """Add a file.

        Raises:
            ValueError: there is none.
        """
        path = Path(local_path)
        if not path.is_file():
            raise ValueError(f"path is not a file: {path}")
        self.entries[name or path.name] = path.absolute()

    def add_dir(self, local_path: str | os.PathLike[str], name: str | None = None, **_: Any) -> None:
        """Add all files below a folder.

        Raises:
            ValueError: there is none.
        """
        if not Path(local_path).is_dir():
            raise ValueError(f"path is not a directory: {local_path}")
        for path in sorted(Path(local_path).rglob("*")):
            if path.is_file():
                self.add_file(path, PurePath(name or "", path.relative_to(local_path)).as_posix())

    def add(self, obj: Any, name: str, **_: Any) -> None:
        """Add a table, as CSV; other objects are left out."""
        if isinstance(obj, Table):
            self.entries[f"{name}.csv"] = obj.csv()
        else:
            tell_unknown(f"Artifact.add of {type(obj).__name__}")

    @contextmanager
    def new_file(self, name: str, mode: str = "w", **_: Any) -> Iterator[Any]:
        """Write a file of the artifact."""
        file: Any = io.BytesIO() if "b" in mode else io.StringIO()
        yield file
        content = file.getvalue()
        self.entries[name] = content if isinstance(content, bytes) else content.encode()

    def wait(self, *_: Any, **__: Any) -> Artifact:
        """Nothing to wait for."""
        return self

    def download(self, root: str | None = None, **_: Any) -> str:
        """The folder with its files; copied to `root` if that is given.

        Raises:
            ValueError: it was not logged.
        """
        if self._folder is None:
            raise ValueError(f"artifact {self.name} was not logged")
        if root is not None:
            shutil.copytree(self._folder, root, dirs_exist_ok=True)
        return str(root or self._folder)

    def store(self, run: str) -> None:
        """Copy the files into the run of this id, in the folder of the next version.

        Raises:
            OSError: a file cannot be copied; then there is no such folder.
        """
        kind = CHECKPOINT if self.type in {"model", "checkpoint"} else OTHER_RESULTS
        parent = Path(exp_manager.folder_of(kind)) / "artifacts" / safe_name(self.name)
        self.version = f"v{len(list(parent.glob('v*')))}"
        folder = parent / self.version
        about = {name: plain_hyper_param(getattr(self, name)) for name in self.takes}
        about |= {"run": run, "aliases": self.aliases, "files": sorted(self.entries)}
        try:
            for name, entry in self.entries.items():
                put(folder / safe_name(name), entry)
            put(folder / "artifact.json", json.dumps(about, indent=1, default=str).encode())
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._folder = folder


def row_value(value: Any) -> Any:
    """A value as a row takes it, small arrays as lists; None for what does not go into a row."""
    if type(value) in PLAIN_TYPES:
        return value
    if isinstance(value, bool | int | float | str | bytes | dt.date | dt.timedelta):
        return to_plain(value)
    if isinstance(value, list | tuple):
        plain = [row_value(one) for one in value]
        kept = [one is not None or other is None for one, other in zip(plain, value, strict=True)]
        return plain if value and all(kept) else None
    lenient = isinstance(value, Unknown | Lenient)
    if lenient or not hasattr(value, "shape") or is_frame(value):
        return None
    cells = to_array(value)
    if cells.size > MAX_LISTED and cells.dtype.kind in "biuf":
        return None  # a histogram
    return to_plain(cells.reshape(-1)[0] if cells.size == 1 else cells.tolist())


def show(key: str, value: Any, step: float) -> None:
    """Keep what is not a number: a file of the results, an event of TensorBoard."""
    current = logger.get_current()
    if isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            show(f"{key}_{number}", entry, step)
    elif isinstance(value, Unknown):
        return
    elif isinstance(value, histogram.Histogram) and "tensorboard" in current.sinks:
        _send_histogram(key, value, step)
    elif isinstance(value, LoggedValue) or (not isinstance(value, Lenient) and is_media(value)):
        current.save_media(key, value, step)
    elif not isinstance(value, Lenient) and hasattr(value, "shape"):
        show(key, histogram.Histogram(value), step)
    else:
        tell_unknown(f"log of {type(value).__name__}")


def watcher(name: str, parameter: Any, what: str | None, every: int, joined: Joined) -> Any:
    """A hook of a tensor: each `every` gradients, histograms of what is watched."""
    calls = 0

    def look(gradient: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % every == 0:
            with joined.active():  # torch has threads of its own for gradients
                for group, tensor in (("gradients", gradient), ("parameters", parameter)):
                    if what in {group, "all"}:
                        counted = histogram.Histogram(tensor)
                        _send_histogram(f"{group}{name}", counted, time_step_holder.get_time())

    return look


def _send_histogram(name: str, value: histogram.Histogram, step: float) -> None:
    """As an event alone: scripts log one for each step, and each would be a file."""
    current = logger.get_current()
    if "tensorboard" not in current.sinks:
        return
    try:
        value.check()
        send_media_event(current, name, value, int(step))
    except RlaError as error:
        if name not in _warned:
            _warned.add(name)
            warn(f"wandb: the histogram {name} was not kept: {error}")


def pixels(data: Any) -> Any:
    """An image as the recorder takes it: a batch side by side, channels last, floats within 0…1."""
    if not hasattr(data, "shape"):
        return data
    tensor, found = hasattr(data, "detach"), to_array(data)
    if found.ndim == 4:  # noqa: PLR2004 - (batch, C, H, W) of tensors, (batch, H, W, C) of arrays
        found = np.concatenate(list(found), axis=2 if tensor else 1)
    if tensor and found.ndim == 3 and found.shape[0] in {1, 3, 4}:  # noqa: PLR2004 - (C, H, W)
        found = found.transpose(1, 2, 0)
    if found.dtype.kind in "iu" and found.size and found.min() >= 0 and found.max() <= 1:
        found = found.astype(np.uint8) * 255  # a mask
    if found.dtype.kind == "f" and found.size:
        least, greatest = float(np.nanmin(found)), float(np.nanmax(found))
        if least < 0 or (tensor and greatest > 1):
            found = (found - least) / ((greatest - least) or 1.0)
    return found


def put(target: Path, content: Path | bytes) -> None:
    """Write a file, or copy one; it appears whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        write_atomic(target, content, durable=False)
        return
    with replacing(target, durable=False) as partial:
        shutil.copy2(content, partial)


def forward_tensorboard(is_open: Callable[[], bool]) -> None:
    """From now on, events of torch's and tensorboardX's file writers are part of the open run, too."""
    for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        _forward(module, "FileWriter", "add_event", lambda original: (original, _send_event), is_open)


def forward_films(is_open: Callable[[], bool]) -> None:
    """From now on, what gymnasium's RecordVideo films is part of the open run, too."""
    _forward("gymnasium.wrappers", "RecordVideo", "stop_recording", lambda stop: (_send_film, stop), is_open)


def _forward(module: str, owner: str, method: str, calls: Any, is_open: Callable[[], bool]) -> None:
    """Have a method, where there is one, make several calls with its arguments while a run is open."""
    try:
        kind = getattr(importlib.import_module(module), owner)
        original = getattr(kind, method)
    except (ImportError, AttributeError):
        return
    if hasattr(original, "rla_forwards"):
        return

    def forward(*args: Any, **kwargs: Any) -> None:
        for call in calls(original) if is_open() else (original,):
            call(*args, **kwargs)

    forward.rla_forwards = True  # type: ignore[attr-defined]
    setattr(kind, method, forward)


def _send_event(_: Any, event: Any, *__: Any, **___: Any) -> None:
    current = logger.get_current()
    current.event(_shown(event, current).SerializeToString(), event.wall_time, event.step)
    rows = scalar_rows(current)
    if rows is not None and event.HasField("summary"):
        for tag, value in summary_scalars(event.summary):
            rows.add(tag, value, event.step, event.wall_time)


def _shown(event: Any, current: Any) -> Any:
    """The event with the run's secrets hidden in its texts."""
    values = event.summary.value if event.HasField("summary") else ()
    if not any(value.metadata.plugin_data.plugin_name == "text" for value in values):
        return event
    copy = type(event).FromString(event.SerializeToString())
    for value in copy.summary.value:
        for number, text in enumerate(value.tensor.string_val):
            value.tensor.string_val[number] = current.shown(text.decode("utf-8", "replace")).encode()
    return copy


def _send_film(recorder: Any) -> None:
    from rla_client.media.recorders import VideoRecorder  # noqa: PLC0415 - imports numpy

    if recorder.recorded_frames:
        fps = float(getattr(recorder, "frames_per_sec", None) or 30)
        name = f"videos/{safe_name(recorder._video_name)}.mp4"  # noqa: SLF001 - gymnasium's name of the file
        VideoRecorder.save(name, list(recorder.recorded_frames), fps=fps, cover=True)
