"""Export of a DataFrame as a CSV, JSON lines or Parquet file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from rla_client.contract.errors import ArgumentError, extra
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.text.csv_lines import LINE_END, NewlineEnds

if TYPE_CHECKING:
    import pandas as pd


TableFormat: TypeAlias = Literal["csv", "jsonl", "parquet"]
FORMATS: dict[str, TableFormat] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
}  # by the ending of the file


def writable_format(path: Path, form: TableFormat | None) -> TableFormat:
    """Check the format of a file before any data is read.

    Args:
        path: the file to write.
        form: its format; None derives it from the ending.

    Raises:
        ArgumentError: the ending is unknown.
        MissingExtraError: Parquet needs a library that is not installed.
    """
    chosen = form or FORMATS.get(path.suffix)
    if chosen is None:
        message = f"the form of {path} is not known; end it in {', '.join(FORMATS)} or give --format"
        raise ArgumentError(message)
    if chosen == "parquet":
        with extra("parquet", "rla export FILE.parquet"):
            import pyarrow as pa  # noqa: F401 - pandas' own message does not name the extra
    return chosen


def write_table(frame: pd.DataFrame, path: Path, form: TableFormat) -> None:
    """Write a DataFrame atomically into an existing folder."""
    with replacing(path, durable=False) as temp:
        if form == "csv":
            with temp.open("w", encoding="utf-8", newline="") as file:
                _with_tags_as_text(frame).to_csv(NewlineEnds(file), index=False, lineterminator=LINE_END)
        elif form == "jsonl":
            _write_jsonl(frame, temp)
        else:
            _write_parquet(frame, temp)


def _with_tags_as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with tags joined by commas."""
    if "tags" not in frame.columns:
        return frame
    texts = [",".join(tags) if isinstance(tags, list) else tags for tags in frame["tags"]]
    changed: pd.DataFrame = frame.assign(tags=texts)
    return changed


def _write_jsonl(frame: pd.DataFrame, path: Path) -> None:
    names = list(frame.columns)
    with path.open("w", encoding="utf-8") as file:
        for row in frame.itertuples(index=False, name=None):
            cells = {name: _json_value(value) for name, value in zip(names, row, strict=True)}
            file.write(json.dumps(cells, ensure_ascii=False, default=str) + "\n")


def _json_value(value: object) -> object:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_parquet(frame: pd.DataFrame, path: Path) -> None:
    plain = frame.copy()
    for name in plain.columns:
        if plain[name].dtype == object:  # one column holds one type
            plain[name] = plain[name].map(
                lambda value: value if isinstance(value, str) else json.dumps(value, default=str)
            )
    plain.to_parquet(path, index=False)
