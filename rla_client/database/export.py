"""Taking runs out: tables of runs or curves as csv, json lines or parquet, and TensorBoard folders."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.errors import ArgumentError, DatabaseError, extra
from rla_client.contract.files import replacing
from rla_client.contract.layout import LOG
from rla_client.contract.parsing import LINE_END, NewlineEnds

if TYPE_CHECKING:
    import pandas as pd

    from rla_client.database.records import Record

KEPT_LOGDIR_S = (
    30 * 86400.0
)  # a TensorBoard that looks at a folder of `rla tb --print` is older than that rarely
FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}


def write_table(frame: pd.DataFrame, path: Path, form: str | None) -> str:
    """Write a DataFrame whole or not at all.

    Args:
        frame: rows.
        path: the file; its folder exists.
        form: csv, jsonl or parquet; None goes by the file's ending.

    Returns:
        The form.

    Raises:
        ArgumentError: an unknown form.
        DatabaseError: parquet without a library for it.
    """
    chosen = form or FORMATS.get(path.suffix, "")
    if chosen not in FORMATS.values():
        message = f"the form of {path} is not known; end it in {', '.join(FORMATS)} or give --format"
        raise ArgumentError(message)
    with replacing(path, durable=False) as temp:
        if chosen == "csv":
            with temp.open("w", encoding="utf-8", newline="") as file:
                _with_tags_as_text(frame).to_csv(NewlineEnds(file), index=False, lineterminator=LINE_END)
        elif chosen == "jsonl":
            _write_jsonl(frame, temp)
        else:
            _write_parquet(frame, temp)
    return chosen


def _with_tags_as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Tags joined by commas, as a cell can hold them; none is an empty cell."""
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
    with extra("parquet", "parquet"):
        import pyarrow as pa  # noqa: F401 - pandas' own message does not name the extra
    plain.to_parquet(path, index=False)


def tensorboard_folders(data_root: Path, records: Sequence[Record]) -> dict[str, Path]:
    """Name shown in TensorBoard → event folder, for the runs that have one."""
    found = {}
    for record in records:
        folder = data_root / LOG / record.table / record.index / "tb"
        if os.path.isdir(folder):  # not one that may not be read
            found[f"{record.table}/{record.index}"] = folder
    return found


def fresh_logdir(now: float) -> Path:
    """A new folder for `make_logdir` in the user's cache; those of `KEPT_LOGDIR_S` ago go.

    Raises:
        OSError: it cannot be made.
    """
    import platformdirs

    try:
        cache = Path(platformdirs.user_cache_dir("rla")) / "tb"
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, "this user has no home, and HOME is not set") from error
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in cache.iterdir():
        with suppress(OSError):
            if now - old.lstat().st_mtime > KEPT_LOGDIR_S:
                shutil.rmtree(old)  # links are removed, never followed
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)), dir=cache))


def make_logdir(folders: dict[str, Path], target: Path, *, copy: bool) -> None:
    """A folder that TensorBoard can be pointed to.

    Args:
        folders: from `tensorboard_folders`.
        target: made; must not exist or be empty.
        copy: copy the event files; else link them.

    Raises:
        DatabaseError: the target holds something.
    """
    if target.exists() and any(target.iterdir()):
        message = f"{target} is not empty; choose another folder"
        raise DatabaseError(message)
    for name, folder in folders.items():
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if copy:
            shutil.copytree(folder, place)
        else:
            place.symlink_to(folder, target_is_directory=True)
