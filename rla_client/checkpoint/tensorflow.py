"""Atomic checkpoints of TensorFlow 2 under RLA's names.

`tf.train.Checkpoint` writes `<prefix>.data-0000i-of-0000n` and `<prefix>.index` into a hidden folder; then
the data files get their names, and last the index `<name>-<time-step>.index`, without which readers ignore
them. TensorFlow serialises in the caller, so the step waits for it; the agent is not involved.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from rla_client.contract.checkpoint.checkpoint_age import SaveTime, oldest_first
from rla_client.contract.checkpoint.dropped_note import note_dropped
from rla_client.contract.errors import ArgumentError, BrokenFileError, NoCheckpointError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, fsync_file, fsync_folder, write_atomic
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.job.checkpoint_job import final_name
from rla_client.contract.layout import RESUME_FOLDER
from rla_client.contract.text.bounded_parsing import parse_json

_PREFIX = "ckpt"  # of TensorFlow's files, while they are written
_INDEX = ".index"


def _tensorflow() -> ModuleType:
    try:
        return importlib.import_module("tensorflow")
    except ImportError as error:
        message = (
            f"DL_FRAMEWORK: tensorflow makes checkpoints TensorFlow's, and it cannot be imported ({error}); "
            "set DL_FRAMEWORK: torch in rla_config.yaml, or pip install tensorflow"
        )
        raise ArgumentError(message) from error


def save_tensorflow(
    model_dict: Mapping[str, Any],
    folder: str | os.PathLike[str],
    name: str,
    time_step: int,
    var_prefix: str | None = None,
    *,
    max_to_keep: int | None = None,
) -> None:
    """Save trackable objects as `<name>-<time_step>`; durable on return.

    Args:
        model_dict: name → tf.Module, Keras model, optimizer, tf.Variable, or a list or dict of them.
        folder: the run's checkpoint folder.
        name: the series.
        time_step: the run's clock.
        var_prefix: only variables whose own name begins so.
        max_to_keep: newest ones (by time of the save) to keep of this name; None keeps all.

    Raises:
        ArgumentError: the name cannot be a file name, or nothing trackable is left to save.
        OSError: the disk refuses it; earlier checkpoints are unchanged.
    """
    tf = _tensorflow()
    final_name(name, time_step)
    objects = _select(model_dict, var_prefix)
    here = Path(folder)
    temp = here / f"{TEMP_PREFIX}{secrets.token_hex(8)}"
    temp.mkdir()
    try:
        try:
            tf.train.Checkpoint(**objects).write(str(temp / _PREFIX))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"model_dict cannot be saved by tf.train.Checkpoint: {error}") from error
        former = max((one.order or 0 for one in _list_tensorflow(here, name)), default=0)
        _put_in_place(temp, here, f"{name}-{time_step}", max(time.time_ns(), former + 1))
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    if max_to_keep is not None:
        for one in _list_tensorflow(here, name)[:-max_to_keep]:
            note_dropped(here, (entry for entry in os.listdir(here) if _is_part(entry, one.name)))
            _remove_tensorflow(here, one.name)
            _order_note(here, one.name).unlink(missing_ok=True)


def load_tensorflow(
    folder: str | os.PathLike[str],
    name: str,
    index: int | None = None,
    objects: Mapping[str, Any] | None = None,
    var_prefix: str | None = None,
) -> tuple[int, Any]:
    """The checkpoint of time-step `index`, or the one that was saved last.

    Args:
        folder: a run's checkpoint folder.
        name: the series.
        index: a time-step.
        objects: as given to `save_tensorflow`; they are restored in place.
        var_prefix: as given to `save_tensorflow`.

    Returns:
        (time-step, `objects`), or (time-step, {variable path: array}) without them.

    Raises:
        NoCheckpointError: there is none.
        ArgumentError: it lacks a variable of `objects`.
    """
    tf = _tensorflow()
    here = Path(folder)
    found = [entry for entry in _list_tensorflow(here, name) if index in {None, entry.time_step}]
    if not found:
        raise NoCheckpointError(f"no checkpoint {name!r} of TensorFlow in {here}")
    step, stem = found[-1].time_step, found[-1].name
    prefix = str(here / stem)
    if objects is not None:
        status = tf.train.Checkpoint(**_select(objects, var_prefix)).read(prefix)
        try:
            status.assert_existing_objects_matched()
        except AssertionError as error:
            raise ArgumentError(f"{prefix} does not hold all of these objects: {error}") from error
        status.expect_partial()
        return step, objects
    reader = tf.train.load_checkpoint(prefix)
    paths = [path for path in reader.get_variable_to_shape_map() if path != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    return step, {path: reader.get_tensor(path) for path in sorted(paths)}


def _select(model_dict: Mapping[str, Any], var_prefix: str | None) -> dict[str, Any]:
    if not isinstance(model_dict, Mapping) or not all(isinstance(key, str) for key in model_dict):
        raise ArgumentError(
            "with TensorFlow model_dict maps names to variables, modules, models or optimizers"
        )
    if not var_prefix:  # RLA's scripts give '' for all
        return dict(model_dict)
    chosen: dict[str, Any] = {}
    for key, value in model_dict.items():
        variables = value.variables if hasattr(value, "variables") else [value]
        if callable(variables):
            variables = variables()
        kept = [variable for variable in variables if _variable_name(variable).startswith(var_prefix)]
        if kept:
            chosen[key] = kept
    if not chosen:
        raise ArgumentError(f"no variable's name begins with var_prefix {var_prefix!r}")
    return chosen


def _variable_name(variable: object) -> str:
    return str(getattr(variable, "path", None) or getattr(variable, "name", ""))


def _put_in_place(temp: Path, here: Path, stem: str, order: int) -> None:
    names = sorted(os.listdir(temp), key=lambda entry: entry.endswith(_INDEX))  # the index comes last
    for entry in names:
        fsync_file(temp / entry)
    _remove_tensorflow(here, stem)
    note = _order_note(here, stem)
    note.parent.mkdir(exist_ok=True)
    write_atomic(note, json.dumps({"order": order}).encode())
    for entry in names:
        os.replace(temp / entry, here / f"{stem}{entry[len(_PREFIX) :]}")
    fsync_folder(here)


def _order_note(folder: Path, stem: str) -> Path:
    """Path of the note with a save's order, since these files have no stamp."""
    return folder / RESUME_FOLDER / f"{stem}.saved.json"


def _list_tensorflow(folder: Path, name: str) -> list[SaveTime]:
    """Each complete checkpoint, in the order of saves; the names are without an ending."""
    pattern = re.compile(rf"({re.escape(name)}[_-](-?[0-9]{{1,19}})){re.escape(_INDEX)}")
    try:
        matches = [pattern.fullmatch(entry) for entry in os.listdir(folder)]
    except FileNotFoundError:
        return []
    return oldest_first(
        SaveTime(match[1], int(match[2]), _mtime_ns(folder / match[0]), _noted_order(folder, match[1]))
        for match in matches
        if match is not None
    )


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _noted_order(folder: Path, stem: str) -> int | None:
    try:
        found = parse_json(read_small(_order_note(folder, stem)))
    except (OSError, ValueError, BrokenFileError):
        return None
    order = found.get("order") if isinstance(found, dict) else None
    return order if isinstance(order, int) else None


def _is_part(entry: str, stem: str) -> bool:
    return entry == f"{stem}{_INDEX}" or entry.startswith(f"{stem}.data-")


def _remove_tensorflow(folder: Path, stem: str) -> None:
    """Remove a checkpoint, the index first, since data without an index are no checkpoint."""
    (folder / f"{stem}{_INDEX}").unlink(missing_ok=True)
    for entry in os.listdir(folder):
        if entry.startswith(f"{stem}.data-"):
            (folder / entry).unlink(missing_ok=True)
