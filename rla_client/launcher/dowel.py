"""dowel's `tabular`, `logger` on top of `rla_client.logger`.

    with tabular.prefix("evaluation/"):
        tabular.record("return", 12.5)
    logger.log("text")
    logger.log(tabular)      # these values go into the next row
    logger.dump_all(epoch)   # the row

Runners log `tabular` and dump the row after each epoch themselves. An experiment has its outputs already,
through the agent. Those that a user adds to `logger` are for files beside them, and for programs without an
experiment; this process writes them, at once: any object with `types_accepted`, `record`, `dump` and
`close`.
"""

from __future__ import annotations

import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from rla_client import logger as rla_logger
from rla_client.contract.errors import ArgumentError, extra
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.layout import PRINTED
from rla_client.contract.process.loaded_modules import loaded
from rla_client.contract.text.csv_lines import rows_text, split_rows, write_rows
from rla_client.stream.rare_warnings import warn_rarely

__all__ = [
    "CsvOutput",
    "DowelLogger",
    "Histogram",
    "LogOutput",
    "StdOutput",
    "TabularInput",
    "TensorBoardOutput",
    "TextOutput",
    "logger",
    "tabular",
]
DEFAULT_X_AXIS = "TotalEnvSteps"


class Histogram:
    """Values whose distribution TensorBoard shows.

    Args:
        values: numbers, of any shape.
    """

    def __init__(self, values: Iterable[float]) -> None:
        import numpy as np  # noqa: PLC0415

        self.values = np.asarray(values, dtype=np.float64).ravel()


def is_picture(value: object) -> bool:
    """Whether a value goes to TensorBoard only: a Histogram or a matplotlib figure."""
    if isinstance(value, Histogram):
        return True
    figure = loaded("matplotlib.figure")
    return figure is not None and isinstance(value, figure.Figure)


class Prefixed:
    """Puts prefixes, which nest, before what it is given: keys, or lines of text."""

    def __init__(self) -> None:
        self._prefixes: list[str] = []

    @contextmanager
    def prefix(self, prefix: str) -> Iterator[None]:
        """Put `prefix` before what is given in the block."""
        self.push_prefix(prefix)
        try:
            yield
        finally:
            self.pop_prefix()

    def push_prefix(self, prefix: str) -> None:
        """Put `prefix` before what is given from now on."""
        self._prefixes.append(prefix)

    def pop_prefix(self) -> None:
        """Take the last prefix away."""
        self._prefixes.pop()


class TabularInput(Prefixed):
    """Values of the row in the making, under prefixes that nest."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, Any] = {}

    def record(self, key: str, val: object) -> None:
        """Set a value; the key gets the prefixes in force."""
        self._values["".join(self._prefixes) + str(key)] = val

    def record_misc_stat(self, key: str, values: Iterable[float], placement: str = "back") -> None:
        """Set average, standard deviation, median, minimum and maximum of `values` (none: NaN).

        Args:
            key: name of what was measured.
            values: the measurements.
            placement: `back` gives `ReturnAverage`, `front` gives `AverageReturn`.

        Raises:
            ArgumentError: another placement.
        """
        import numpy as np  # noqa: PLC0415

        if placement not in {"back", "front"}:
            raise ArgumentError(f"placement is 'back' or 'front', got {placement!r}")
        data = np.asarray(list(values), dtype=np.float64)
        reductions: dict[str, Callable[[Any], Any]] = {
            "Average": np.mean,
            "Std": np.std,
            "Median": np.median,
            "Min": np.min,
            "Max": np.max,
        }
        for word, reduce in reductions.items():
            name = f"{key}{word}" if placement == "back" else f"{word}{key}"
            self.record(name, float(reduce(data)) if data.size else float("nan"))

    def clear(self) -> None:
        """Forget the values."""
        self._values.clear()

    def mark(self, key: object = None) -> None:
        """Nothing: a user's outputs tell dowel with this, and the next ones, what they have taken."""

    mark_str = mark_all = disable_warnings = mark

    @property
    def as_dict(self) -> dict[str, Any]:
        """A copy of the values."""
        return dict(self._values)

    @property
    def as_primitive_dict(self) -> dict[str, Any]:
        """A copy of those values that have a place in a table: no histograms, no figures."""
        return {key: value for key, value in self._values.items() if not is_picture(value)}

    def __str__(self) -> str:
        from rla_client.contract.text.row_table import format_table  # noqa: PLC0415 - for outputs of the user only

        return format_table(self.as_primitive_dict)

    def swap(self, values: dict[str, Any], prefixes: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Put other contents in and give the former: nested experiments do not mix their rows."""
        former = self._values, self._prefixes
        self._values, self._prefixes = values, prefixes
        return former

    def __reduce__(self) -> str | tuple[object, ...]:
        # by name: a snapshot of code that uses it must not bring a copy of its own
        return "tabular" if self is tabular else (TabularInput, ())


tabular = TabularInput()


class DowelLogger(Prefixed):
    """Text with prefixes, rows, and outputs beside those of the experiment."""

    def __init__(self) -> None:
        super().__init__()
        self._pictures: dict[str, Any] = {}
        self._outputs: list[LogOutput] = []
        self._warned: dict[str, float] = {}
        self.x_axis = DEFAULT_X_AXIS

    def log(self, data: object) -> None:
        """Write text behind time and prefixes, or put the values of a TabularInput into the next row."""
        prefix = "".join(self._prefixes)
        for output in self._outputs:
            if isinstance(data, output.types_accepted):
                self._have(output, partial(output.record, data, prefix=prefix))
        if not isinstance(data, TabularInput):
            lead = time_lead() + prefix
            echo = not self.has_output_type(StdOutput)
            rla_logger.get_current().log(data, echo=echo, lead=lead)
            return
        for key, value in data.as_dict.items():
            if is_picture(value):
                self._pictures[key] = value
            else:
                rla_logger.record_tabular(key, value)

    def dump_all(self, step: int | None = None) -> dict[str, Any]:
        """Write the row. Its time-step is the value under the x axis, else `step`."""
        at = rla_logger.getkvs().get(self.x_axis, step)
        if isinstance(at, (int, float)) and math.isfinite(at):
            rla_logger.set_time(at)
        if self._pictures:
            self._send_pictures()
        for output in self._outputs:
            self._have(output, partial(output.dump, step))
        return rla_logger.dump_tabular()

    def _send_pictures(self) -> None:
        pictures, self._pictures = self._pictures, {}
        if "tensorboard" not in rla_logger.get_current().sinks:
            return
        writer = rla_logger.get_tbx_writer()
        for key, value in pictures.items():
            if isinstance(value, Histogram):
                writer.add_histogram(key, value.values)
            else:
                writer.add_figure(key, value)

    def add_output(self, output: LogOutput) -> None:
        """Give everything that is logged from now on to `output` too.

        Raises:
            ArgumentError: it is a class, or has no `record` and `dump`.
        """
        fit = all(callable(getattr(output, name, None)) for name in ("record", "dump", "close"))
        if isinstance(output, type) or not fit:
            raise ArgumentError(f"add_output takes an output with record, dump and close; got {output!r}")
        self._outputs.append(output)

    def has_output_type(self, output_type: type) -> bool:
        """Whether an output of that type was added."""
        return any(isinstance(output, output_type) for output in self._outputs)

    def remove_output_type(self, output_type: type) -> None:
        """Close and forget added outputs of a type. The experiment's own stay."""
        for output in [output for output in self._outputs if isinstance(output, output_type)]:
            self._outputs.remove(output)
            self._have(output, output.close)

    def remove_all(self) -> None:
        """Close and forget all added outputs. The experiment's own stay."""
        self.remove_output_type(object)

    def reset_output(self, output: LogOutput) -> None:
        """Put `output` in the place of added ones of its type."""
        self.remove_output_type(type(output))
        self.add_output(output)

    def dump_output_type(self, output_type: type, step: int | None = None) -> None:
        """Have added outputs of a type write what they were given."""
        for output in self._outputs:
            if isinstance(output, output_type):
                self._have(output, partial(output.dump, step))

    def _have(self, output: LogOutput, write: Callable[[], None]) -> None:
        """Write by an output of the user's; a disk that refuses does not end the training."""
        try:
            write()
        except OSError as error:
            name = type(output).__name__
            warn_rarely(self._warned, name, "output %s lost what it was given: %s", name, error)

    def disable_warnings(self) -> None:
        """Nothing: dowel's word; what nobody takes is no reason for a warning here."""

    def swap(self, contents: Contents) -> Contents:
        """Use other prefixes, pictures, outputs and x axis and give the former."""
        former = self._prefixes, self._pictures, self._outputs, self.x_axis
        self._prefixes, self._pictures, self._outputs, self.x_axis = contents
        return former

    def __reduce__(self) -> str | tuple[object, ...]:
        return "logger" if self is logger else (DowelLogger, ())


def time_lead() -> str:
    """What dowel puts before a text: the local time."""
    return datetime.now().strftime("%Y-%m-%d %H:%M:%S | ")  # noqa: DTZ005 - local, as in dowel


class LogOutput(ABC):
    """Something that takes what is logged."""

    @property
    def types_accepted(self) -> type | tuple[type, ...]:
        """What `record` is called with: str, TabularInput, or both."""
        return (str, TabularInput)

    @abstractmethod
    def record(self, data: object, prefix: str = "") -> None:
        """Take text, with the prefixes in force, or a TabularInput."""

    def dump(self, step: int | None = None) -> None:  # noqa: B027 - many have nothing to do
        """Write what was taken."""

    def close(self) -> None:  # noqa: B027 - likewise
        """Let go of files."""


class _Lines(LogOutput):
    """Text lines and tables, on a text stream."""

    def __init__(self, stream: TextIO, *, with_timestamp: bool) -> None:
        self._stream = stream
        self._stamps = with_timestamp

    def record(self, data: object, prefix: str = "") -> None:
        """Write a line with time and prefix, or a table."""
        if isinstance(data, str):
            lead = time_lead() if self._stamps else ""
            self._stream.write(f"{lead}{prefix}{data}\n")
        else:
            self._stream.write(f"{data}")
        self._stream.flush()


class StdOutput(_Lines):
    """Standard output. It prints texts in the logger's place, and rows where the logger does not.

    Args:
        with_timestamp: put the time before each line.
    """

    def __init__(self, with_timestamp: bool = True) -> None:
        super().__init__(sys.stdout, with_timestamp=with_timestamp)

    def record(self, data: object, prefix: str = "") -> None:
        """Print a text, or a row that the logger does not."""
        if isinstance(data, str) or PRINTED.isdisjoint(rla_logger.get_current().sinks):
            super().record(data, prefix)


class TextOutput(_Lines):
    """A text file, written anew.

    Args:
        file_name: its path; folders above it are made.
        with_timestamp: put the time before each line.
    """

    def __init__(self, file_name: str | os.PathLike[str], with_timestamp: bool = True) -> None:
        path = Path(file_name)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - `close` does
        super().__init__(file, with_timestamp=with_timestamp)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class _Rows(LogOutput):
    @property
    def types_accepted(self) -> type:
        """Rows only."""
        return TabularInput


class CsvOutput(_Rows):
    """A CSV file of rows, written anew; columns that come later are added to the header.

    Args:
        file_name: its path; folders above it are made.
    """

    def __init__(self, file_name: str | os.PathLike[str]) -> None:
        self._path = Path(file_name)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._columns: list[str] = []
        self._path.write_bytes(b"")

    def record(self, data: Any, prefix: str = "") -> None:  # noqa: ANN401
        """Append a row."""
        del prefix
        row: dict[str, Any] = data.as_primitive_dict
        if not row:
            return
        new = sorted(key for key in row if key not in self._columns)
        if new:
            self._widen(new)
        with open(self._path, "a", newline="", encoding="utf-8") as file:
            write_rows(file, [[row.get(key, "") for key in self._columns]])

    def _widen(self, new: list[str]) -> None:
        with open(self._path, newline="", encoding="utf-8") as file:
            rows = split_rows(file.read())[1:]
        self._columns += new
        rows = [[*row, *[""] * (len(self._columns) - len(row))] for row in rows]
        write_atomic(self._path, rows_text([self._columns, *rows]).encode(), durable=False)


class TensorBoardOutput(_Rows):
    """An event file of its own, written by tensorboardX.

    Args:
        log_dir: its folder.
        x_axis: key of the row that is the step; by default what `dump_all` was given.
    """

    def __init__(self, log_dir: str | os.PathLike[str], x_axis: str | None = None) -> None:
        with extra("tensorboard", "TensorBoardOutput"):
            from tensorboardX import SummaryWriter  # noqa: PLC0415 - slow to import

        self._writer = SummaryWriter(os.fspath(log_dir))
        self._x_axis = x_axis
        self._taken: dict[str, Any] = {}

    def record(self, data: Any, prefix: str = "") -> None:  # noqa: ANN401
        """Keep a row."""
        del prefix
        self._taken.update(data.as_dict)

    def dump(self, step: int | None = None) -> None:
        """Write the kept values at their step."""
        taken, self._taken = self._taken, {}
        at = taken.get(self._x_axis, step) if self._x_axis is not None else step
        for key, value in taken.items():
            if isinstance(value, Histogram):
                self._writer.add_histogram(key, value.values, at)
            elif is_picture(value):
                self._writer.add_figure(key, value, at)
            elif not isinstance(value, str):
                self._writer.add_scalar(key, value, at)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


Contents: TypeAlias = tuple[list[str], dict[str, Any], list[LogOutput], str]

logger = DowelLogger()
