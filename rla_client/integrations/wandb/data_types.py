"""What can be logged beside numbers, artifacts, and names of wandb's that have no meaning here."""

from __future__ import annotations

import io
import json
import os
import shutil
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rla_client.contract.csv_lines import write_rows
from rla_client.contract.errors import RlaError
from rla_client.contract.files import replacing, write_atomic
from rla_client.contract.layout import CHECKPOINT, OTHER_RESULTS, component_problem
from rla_client.manager import exp_manager
from rla_client.run.run import warn
from rla_client.stream.values import plain_hyper_param, to_plain

_warned: set[str] = set()


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
        """Warn."""
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


class Media(_Value):
    """What `data` holds: an array, a file's path, or what the library has."""

    @property
    def data(self) -> Any:
        """As it was given."""
        given = self.data_or_path
        return given.data if isinstance(given, Media) else given


class Image(Media):
    """An array, PIL image, matplotlib figure or file; a batch of images is shown side by side.

    Boxes, masks and classes are not drawn. Floats that are negative, and tensors beyond 1, are scaled to the
    range from their least to their greatest value, as wandb does.
    """

    takes: ClassVar = {"data_or_path": ..., "mode": None, "caption": None}


class Video(Media):
    """An array of frames, shape (T, C, H, W), or a file."""

    takes: ClassVar = {"data_or_path": ..., "caption": None, "fps": 4, "format": "mp4"}


class Audio(Media):
    """Samples, float in -1…1 or whole numbers, or a file."""

    takes: ClassVar = {"data_or_path": ..., "sample_rate": 44100, "caption": None}


class Histogram(_Value):
    """Values, or counts with the edges of their bins."""

    takes: ClassVar = {"sequence": None, "np_histogram": None, "num_bins": 64}


class Html(_Value):
    """Text of a page, a file's path, or something that is read."""

    takes: ClassVar = {"data": ...}


class Table(_Value, Lenient):
    """Rows under names; kept as CSV."""

    columns: Any
    data: Any
    takes: ClassVar = {
        "columns": ("Input", "Output", "Expected"),
        "data": None,
        "rows": (),
        "dataframe": None,
    }

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        found = next((found for found in (self.dataframe, self.data) if found is not None), self.rows)
        if is_frame(found):
            self.columns, found = list(found.columns), found.to_numpy().tolist()
        self.columns, self.data = list(self.columns), [list(row) for row in found]

    def add_data(self, *row: Any) -> None:
        """Append a row.

        Raises:
            ValueError: it has another number of cells.
        """
        if len(row) != len(self.columns):
            raise ValueError(f"this table has {len(self.columns)} columns, got {len(row)} cells")
        self.data.append(list(row))

    add_row = add_data

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

    def csv(self) -> bytes:
        """As a file; an image in a cell becomes a file of the results, and the cell its name."""
        text = io.StringIO(newline="")
        write_rows(text, [self.columns, *([_cell(cell) for cell in row] for row in self.data)])
        return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(cell: Any) -> Any:
    if not isinstance(cell, Image):
        return to_plain(cell)
    if isinstance(cell.data, str | os.PathLike):
        return os.fspath(cell.data)
    from rla_client.media.recorders import ImgRecorder  # noqa: PLC0415 - where images are logged

    return os.path.basename(ImgRecorder.save(f"table-{os.urandom(4).hex()}", pixels(cell.data)))


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


# -- what they hold, as arrays and files ------------------------------------------------------------


def is_frame(value: Any) -> bool:
    """Whether it is a DataFrame."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def to_array(values: Any) -> Any:
    """What numpy makes of an array, a list or a tensor."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.float() if "bfloat16" in str(values.dtype) else values
    return np.asarray(values)


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


def safe_name(name: object) -> str:
    """A relative path without parts that cannot be a file's name."""
    parts = [part for part in str(name).replace("\\", "/").split("/") if part and not component_problem(part)]
    return "/".join(parts) or "unnamed"


def put(target: Path, content: Path | bytes) -> None:
    """Write a file, or copy one; it appears whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        write_atomic(target, content, durable=False)
        return
    with replacing(target, durable=False) as partial:
        shutil.copy2(content, partial)
