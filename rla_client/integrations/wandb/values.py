"""Values that can be logged, as classes of wandb's names.

A value goes into a cell of the row, a file of the results, or TensorBoard's events.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rla_client import logger
from rla_client.contract.errors import RlaError
from rla_client.integrations.wandb.tensor_histograms import send_histogram
from rla_client.integrations.wandb.unknown_names import Lenient, Unknown, tell_unknown
from rla_client.media.logged_media import audio, histogram, html, image, point_cloud, table, video
from rla_client.media.logged_media.logged_value import LoggedValue, Where, ending_of, is_frame, to_array
from rla_client.media.result_file import keep_bytes, keep_copy
from rla_client.media.row_media import is_media, safe_name
from rla_client.stream.values import to_plain

_CATEGORIES = (  # colours, Tableau's ten
    (31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189),
    (140, 86, 75), (227, 119, 194), (127, 127, 127), (188, 189, 34), (23, 190, 207),
)  # fmt: skip
MAX_LISTED = 32  # elements of an array that stays a list; of a larger one a histogram is kept, as in wandb
RESERVED = frozenset({"time-step", "timestamp"})  # columns that each row has
PLAIN_TYPES = frozenset({float, int, bool, str})


class Error(RlaError):
    """What wandb calls its errors."""


class UsageError(Error):
    """A call that cannot be meant."""


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
    """See `rla_client.Video`; frames have the shape (T, C, H, W), a batch of films one dimension more.

    The films of a batch are one with all of them beside each other, as in wandb.
    """

    def __init__(
        self, data_or_path: Any, caption: str | None = None, fps: float | None = None,
        format: str | None = None, **_: Any,  # noqa: A002 - wandb's name
    ) -> None:  # fmt: skip
        del caption
        super().__init__(data_or_path, fps or 4, format if format in {"gif", "webm", "ogg"} else "mp4")

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`."""
        return f".{self._film_format}" if hasattr(self.data, "shape") else super().ending

    @property
    def _film_format(self) -> str:
        return "gif" if self.format == "gif" else "mp4"

    def save(self, name: str, where: Where) -> None:
        """See `rla_client.Video.save`."""
        if not hasattr(self.data, "shape"):
            super().save(name, where)
            return
        frames = to_array(self.data)
        film = _one_film(frames) if frames.ndim == 5 else frames  # noqa: PLR2004 - (batch, T, C, H, W)
        video.Video(film.transpose(0, 2, 3, 1), self.fps, self._film_format).save(name, where)


def _one_film(films: Any) -> Any:
    """Films as one of the shape (T, C, H, W), in rows; what is left of the last row is black."""
    count, *shape = films.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / max(columns, 1))
    full = np.zeros((rows * columns, *shape), films.dtype)
    full[:count] = films
    length, channels, height, width = shape
    grid = full.reshape(rows, columns, *shape).transpose(2, 3, 0, 4, 1, 5)
    return grid.reshape(length, channels, rows * height, columns * width)


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

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`."""
        return (
            f".{safe_name(str(self.format))}" if hasattr(self.data, "read") else ending_of(self.data, ".ply")
        )

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

    default_columns = ("Input", "Output", "Expected")

    def __init__(
        self, columns: Any = None, data: Any = None, rows: Any = None, dataframe: Any = None, **_: Any
    ) -> None:
        given: Any = next((found for found in (dataframe, data, rows) if found is not None), [])
        given = given if hasattr(given, "__len__") else list(given)
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
        send_histogram(key, value, step)
    elif isinstance(value, LoggedValue) or (not isinstance(value, Lenient) and is_media(value)):
        current.save_media(key, value, step)
    elif not isinstance(value, Lenient) and hasattr(value, "shape"):
        show(key, histogram.Histogram(value), step)
    else:
        tell_unknown(f"log of {type(value).__name__}")


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


def sort_values(data: Mapping[str, Any], prefix: str, values: dict[str, Any], others: dict[str, Any]) -> None:
    """Put what a row takes into `values`, the rest into `others`; the later of two with one name counts."""
    for key, value in data.items():
        if not (prefix or isinstance(key, str)):
            raise TypeError("Key values passed to `wandb.log` must be strings.")
        name = f"{prefix}{key}" if prefix else key
        if type(value) not in PLAIN_TYPES and isinstance(value, Mapping):
            sort_values(value, f"{name}.", values, others)
            continue
        name = f"_{name}" if name in RESERVED else name
        values.pop(name, None)
        others.pop(name, None)
        plain = value if type(value) in PLAIN_TYPES else row_value(value)
        if plain is not None:
            values[name] = plain
        elif value is not None:
            others[name] = value
