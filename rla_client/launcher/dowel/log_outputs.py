"""dowel's outputs."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from rla_client import logger as rla_logger
from rla_client.contract.errors import extra
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.layout import PRINTED
from rla_client.contract.text.csv_lines import rows_text, split_rows, write_rows
from rla_client.launcher.dowel.table_input import Histogram, TabularInput, is_picture


def time_lead() -> str:
    """Local time, as dowel puts it before a text."""
    return datetime.now().strftime("%Y-%m-%d %H:%M:%S | ")  # noqa: DTZ005 - local, as in dowel


class LogOutput(ABC):
    """Destination of logged texts and rows."""

    @property
    def types_accepted(self) -> type | tuple[type, ...]:
        """Types that `record` accepts: str, TabularInput, or both."""
        return (str, TabularInput)

    @abstractmethod
    def record(self, data: object, prefix: str = "") -> None:
        """Accept text, with the current prefixes, or a TabularInput."""

    def dump(self, step: int | None = None) -> None:  # noqa: B027 - many have nothing to do
        """Write what was recorded."""

    def close(self) -> None:  # noqa: B027 - likewise
        """Close files."""


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
    """Standard output: prints texts instead of the logger, and rows if the logger does not.

    Args:
        with_timestamp: put the time before each line.
    """

    def __init__(self, with_timestamp: bool = True) -> None:
        super().__init__(sys.stdout, with_timestamp=with_timestamp)

    def record(self, data: object, prefix: str = "") -> None:
        """Print a text, or a row that the logger does not print."""
        if isinstance(data, str) or PRINTED.isdisjoint(rla_logger.get_current().sinks):
            super().record(data, prefix)


class TextOutput(_Lines):
    """A text file, overwritten.

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
    """A CSV file of rows, overwritten; later columns are added to the header.

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
        x_axis: key of the row that is the step; default: the step of `dump_all`.
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
        """Write the recorded values at their step."""
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
