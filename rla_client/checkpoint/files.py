"""Checkpoint files in a database: which there are, and reading one back; those of TensorFlow also written.

A file is `<name>_<time-step>.pt`; older databases have `<name>-<time-step>.pt`. Loading goes
through `torch.load(weights_only=True)`, which rebuilds tensors, containers, numbers and arrays and
runs nothing from the file. What that refuses is loaded in full only where it is known to be of the run
that loads it, or the user vouches for the file (`trust=True`).

*Which may be unpickled in full*. Unpickling runs what a file names. A file counts as this user's own when
nobody else but root may change it or any folder that leads to it (the rule stands in `contract.paths`), and
when it did not come from the master or from a copied spool, which leave FOREIGN_MARK in the item's folder. A
checkpoint must also carry the stamp of the run that loads it: a fork or a chain copies files of other runs
beside those of its own. The user's word (`trust=True`) is above all of this.

*Arrays without torch*. Custom data of a run may hold arrays where torch is not installed, and importing it
for them would cost a second. So what torch.load reads is written and read by hand: torch's zip of stored
records, with a pickle of `{name: tensor}` whose few opcodes are the same for every array. Reading knows
these opcodes' names and no other.

*TensorFlow 2* has a format of its own, here under RLA's names, whole or not at all. `tf.train.Checkpoint`
writes `<prefix>.data-0000i-of-0000n` and `<prefix>.index`. It does so into a hidden folder; then the data
files take their names and the index, without which no reader looks at them, takes its own last:
`<name>-<time-step>.index`. TensorFlow serialises in the caller, so the step waits for it; nothing of it goes
through the agent.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import io
import json
import math
import os
import pathlib
import pickle
import re
import secrets
import shutil
import sys
import time
import types
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.pickling import (
    NUMPY_STORAGE_CLASSES,
    as_numpy,
    geometry,
    text,
    torch_module,
    torch_names,
    whole,
)
from rla_client.contract import paths
from rla_client.contract.checkpoints import (
    TORCH_FORMAT,
    SaveTime,
    TorchZip,
    is_foreign,
    note_dropped,
    noted_names,
    oldest_first,
    read_stamp,
    save_time,
)
from rla_client.contract.errors import (
    ArgumentError,
    BrokenFileError,
    NoCheckpointError,
    UntrustedCheckpointError,
)
from rla_client.contract.files import TEMP_PREFIX, fsync_file, fsync_folder, read_small, write_atomic
from rla_client.contract.jobs import final_name
from rla_client.contract.layout import RESUME_FOLDER
from rla_client.contract.parsing import parse_json

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_UNREADABLE = (EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError)
SAFE_TORCH = (2, 10)  # weights_only=True could be made to run code before (two CVEs)
_ARRAY_TYPES = {storage: name for name, storage in NUMPY_STORAGE_CLASSES.items()}
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
)  # of zipfile; the last: encrypted
_PREFIX = "ckpt"  # of TensorFlow's files, while they are written
_INDEX = ".index"


def list_checkpoints(
    folder: Path, name: str = "checkpoint", *, pruned: bool = False
) -> list[tuple[int, Path]]:
    """Checkpoints of one name, (time-step, path), in the order of their saves; [] without a folder.

    Where both spellings of one time-step exist, the newer spelling `name_N.pt` counts.

    Args:
        folder: the run's checkpoints.
        name: the series.
        pruned: also those that are on the master alone.
    """
    return _by_age(folder, _by_step(folder, name, pruned=pruned))


def _by_age(folder: Path, found: Mapping[int, Path]) -> list[tuple[int, Path]]:
    if len(found) < 2:  # noqa: PLR2004 - one is the newest whatever its stamp says
        return list(found.items())
    by_age = oldest_first(save_time(folder, path.name, step) for step, path in found.items())
    return [(one.time_step, found[one.time_step]) for one in by_age]


def _by_step(folder: Path, name: str, *, pruned: bool) -> dict[int, Path]:
    pattern = re.compile(rf"{re.escape(name)}([_-])(-?[0-9]{{1,19}})\.pt", re.DOTALL)
    found: dict[int, Path] = {}
    noted = noted_names(folder) if pruned else []
    try:
        entries = {entry.name for entry in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if pruned:  # before and after: a file may come back, or go, while we look
        entries.update(noted, noted_names(folder))
    for entry in sorted(entries):
        match = pattern.fullmatch(entry)
        if match is not None:
            step = int(match[2])
            if step not in found or match[1] == "_":
                found[step] = folder / entry
    return found


def find_checkpoint(folder: Path, name: str = "checkpoint", index: int | None = None) -> tuple[int, Path]:
    """The checkpoint of time-step `index`, or the one that was saved last; a pruned one is fetched.

    Raises:
        NoCheckpointError: there is none; the message says which there are.
        FetchError: it is on the master alone and does not come from there.
    """
    found = _by_step(folder, name, pruned=True)
    if index is None and found:
        index = _by_age(folder, found)[-1][0]
    if index is None or index not in found:
        there = ", ".join(map(str, sorted(found))) or "none"
        wanted = f"{name!r}" if index is None else f"{name!r} at time-step {index}"
        raise NoCheckpointError(f"no checkpoint {wanted} in {folder}; time-steps there: {there}")
    path = found[index]
    if not path.exists():
        from rla_client.stream.messenger import bring_back  # noqa: PLC0415 - rarely needed

        bring_back(path)
    return index, path


def load_file(
    path: Path | io.BytesIO, *, trust: bool = False, run: str = "", map_location: object = None
) -> Any:  # noqa: ANN401
    """Read one checkpoint.

    Args:
        path: a `.pt` file, or its content.
        trust: load also what needs code from the file, whoever wrote it.
        run: identity of the run that loads; what that run wrote here is loaded in full too.
        map_location: as in torch.load; by default tensors of a GPU that is not there come to the CPU.

    Raises:
        NoCheckpointError: there is no such file.
        BrokenFileError: it is cut short, or something else.
        UntrustedCheckpointError: it holds other objects than weights_only allows, and `trust` is False.
    """
    torch = torch_module()
    _check_version()
    if map_location is None and not torch.cuda.is_available():
        map_location = "cpu"
    try:
        with torch.serialization.safe_globals(_safe_globals()):
            return as_numpy(torch.load(path, map_location=map_location, weights_only=True))
    except FileNotFoundError as error:
        raise NoCheckpointError(f"there is no checkpoint {path}") from error
    except _UNREADABLE as error:
        if isinstance(path, Path) and not _is_whole(path):
            raise BrokenFileError(str(path), "it is no checkpoint, or not a whole one") from error
        if not isinstance(error, pickle.UnpicklingError):
            raise
        problem = None if trust else _why_not_own(path, run)
        if problem is not None:
            where = path if isinstance(path, Path) else "this file"
            raise UntrustedCheckpointError(
                f"{where} holds more than tensors, arrays and plain data: {_asked_for(error)}. Loading that "
                f"runs code which the file names, and {problem}. Pass trust=True if you trust whoever wrote "
                "that file, or save state_dict()s and plain data"
            ) from error
    return as_numpy(torch.load(path, map_location=map_location, weights_only=False))


def _is_whole(path: Path) -> bool:
    """Whether a file can be a checkpoint: torch's zip, or the pickle that its early releases wrote."""
    with open(path, "rb") as file:
        if file.read(1) == b"\x80":
            return True
        try:
            with zipfile.ZipFile(file) as found:
                return any(name.endswith("data.pkl") for name in found.namelist())
        except (OSError, ValueError, zipfile.BadZipFile):
            return False


def restore(
    skeleton: bytes, bytes_of: Callable[[int, int], bytearray], map_location: object = None
) -> object:
    """Rebuild the content of a save of this very process whose file is not there yet.

    Args:
        skeleton: what `capture` made.
        bytes_of: a copy of the storage of a key, which has so many bytes.
        map_location: a device for all tensors; None leaves them where they were.
    """
    return as_numpy(_OwnUnpickler(skeleton, bytes_of, map_location).load())


class _OwnUnpickler(pickle.Unpickler):
    """Reads a pickle that this process wrote a moment ago."""

    def __init__(
        self, skeleton: bytes, bytes_of: Callable[[int, int], bytearray], map_location: object
    ) -> None:
        super().__init__(io.BytesIO(skeleton))
        self._map_location = map_location
        self._bytes_of = bytes_of
        self._loaded: dict[str, Any] = {}
        self._dtypes = {kind: dtype for dtype, kind in torch_names().typed_classes.items()}

    def persistent_load(self, pid: tuple[Any, ...]) -> torch.TypedStorage:
        torch = torch_module()
        _, kind, key, location, count = pid
        dtype = self._dtypes.get(kind, torch.uint8)
        if key not in self._loaded:
            size = count * dtype.itemsize
            tensor = torch.empty(0, dtype=torch.uint8)
            if size:
                tensor = torch.frombuffer(self._bytes_of(int(key), size), dtype=torch.uint8)
            self._loaded[key] = tensor.to(self._map_location or location).untyped_storage()
        return torch.storage.TypedStorage(wrap_storage=self._loaded[key], dtype=dtype, _internal=True)


def _why_not_own(path: Path | io.BytesIO, run: str) -> str | None:
    return checkpoint_problem(path, run) if isinstance(path, Path) else "nobody vouches for it"


def _asked_for(error: Exception) -> str:
    """The class or function that a refused pickle names."""
    text = str(error)
    named = re.search(r"GLOBAL ([\w.]+)|find class ([\w.]+)", text)
    if named is not None:
        return f"it asks for {named[1] or named[2]}"
    return text.splitlines()[0][:200] if text else type(error).__name__


@cache
def _check_version() -> None:
    torch = torch_module()
    version = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if version < SAFE_TORCH:
        warnings.warn(
            f"torch {torch.__version__} is older than 2.10: a crafted checkpoint can run code in spite of "
            "weights_only=True (CVE-2025-32434, CVE-2026-24747). Load only files that you made, or upgrade",
            RuntimeWarning,
            stacklevel=3,
        )


@cache
def _safe_globals() -> list[Any]:
    """What arrays, scalars and plain data are rebuilt with. None of it runs anything from the file."""
    plain = [bytes, complex, frozenset, range, slice, Decimal, Fraction]
    plain += [argparse.Namespace, types.SimpleNamespace, pathlib.PosixPath, pathlib.PurePosixPath]
    plain += [dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone]
    try:
        import numpy as np  # noqa: PLC0415
        import numpy.dtypes  # noqa: PLC0415
    except ImportError:
        return plain
    rebuild = np.zeros(0).__reduce__()[0]
    scalar = np.float64(0).__reduce__()[0]
    allowed: list[Any] = [*plain, np.asarray, np.ndarray, np.dtype]  # bytes: how pickle 2 spells b""
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):  # numpy 1, numpy 2
        allowed += [(rebuild, f"{module}._reconstruct"), (scalar, f"{module}.scalar")]
    kinds = {type(np.dtype(code)) for code in "?bBhHiIlLqQefdgFDGSUVMm"}
    return allowed + sorted(kinds, key=str)


def checkpoint_problem(path: Path, run: str) -> str | None:
    """Why a checkpoint is not what the run with this identity wrote here; None when it is."""
    stamp = read_stamp(path)
    if not run or stamp is None or stamp.run != run:
        return "it was not written by this run"
    return file_problem(path)


def file_problem(path: Path) -> str | None:
    """Why a file is not this user's own; None when it is."""
    if is_foreign(path):
        return "it came from another machine"
    problem = paths.file_problem(os.path.abspath(path))
    return None if problem is None else problem.what


# -- arrays without torch ---------------------------------------------------------------------------


def normal(array: NDArray[Any]) -> NDArray[Any]:
    """An array of native byte order and of a type that torch has, else of the nearest such.

    Unsigned numbers of more than 8 bits become signed ones of the same bits.
    """
    import numpy as np  # noqa: PLC0415 - whoever has an array has it

    if array.dtype.name in NUMPY_STORAGE_CLASSES and array.dtype.isnative:
        return np.ascontiguousarray(array).reshape(array.shape)
    kind = array.dtype.kind
    if kind == "u":
        native = array.astype(array.dtype.newbyteorder("="))
        return native.view(f"int{8 * array.dtype.itemsize}")
    if array.dtype.newbyteorder("=").name in NUMPY_STORAGE_CLASSES:
        return array.astype(array.dtype.newbyteorder("="))
    return array.astype("complex128" if kind == "c" else "float64")


def encode_arrays(arrays: Mapping[str, Any]) -> bytes:
    """The file of arrays that are `normal`."""
    import numpy as np  # noqa: PLC0415

    buffer = io.BytesIO()
    kept = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays.values()]
    entries = b"".join(
        text(name.encode("utf-8", "surrogatepass")) + _tensor(number, array)
        for number, (name, array) in enumerate(zip(arrays, kept, strict=True))
    )
    with TorchZip(buffer) as file:
        for record, data in (
            ("data.pkl", b"\x80\x02}(" + entries + b"u."),
            ("byteorder", sys.byteorder.encode()),
            *((f"data/{number}", array.tobytes()) for number, array in enumerate(kept)),
            ("version", TORCH_FORMAT),
        ):
            file.add(record, len(data), [data])
    return buffer.getvalue()


def _tensor(number: int, array: NDArray[Any]) -> bytes:
    """Opcodes that rebuild one tensor of storage `number`."""
    strides = tuple(step // array.itemsize for step in array.strides) if array.size else _strides(array.shape)
    storage = (
        b"((" + text(b"storage") + b"ctorch\n" + NUMPY_STORAGE_CLASSES[array.dtype.name].encode() + b"\n"
        + text(b"%d" % number) + text(b"cpu") + whole(array.size) + b"tQ"
    )  # fmt: skip
    view = geometry(0, tuple(array.shape), strides) + b"\x89"
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + storage + view + b"ccollections\nOrderedDict\n)RtR"


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(max(side, 1) for side in shape[at + 1 :]) for at in range(len(shape)))


def decode_arrays(data: bytes) -> dict[str, Any]:
    """The arrays of a file, also of one that torch wrote of plain tensors.

    Raises:
        ValueError: it is no such file, or holds something else.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            top = next(name for name in file.namelist() if name.endswith("/data.pkl"))[: -len("/data.pkl")]
            found = _ArrayReader(file, top).load()
    except (
        *_DAMAGED,
        pickle.UnpicklingError,
        StopIteration,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        raise ValueError(f"no file of arrays: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("no file of arrays: it holds no dict")  # noqa: TRY004 - as for any other content
    return found


class _ArrayReader(pickle.Unpickler):
    def __init__(self, file: zipfile.ZipFile, top: str) -> None:
        super().__init__(io.BytesIO(file.read(f"{top}/data.pkl")))
        self._file = file
        self._top = top

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if module == "torch" and name in _ARRAY_TYPES:
            return _ARRAY_TYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is not read without torch")

    def persistent_load(self, pid: Any) -> NDArray[Any]:  # noqa: ANN401
        import numpy as np  # noqa: PLC0415

        _, dtype, key, _, _ = pid
        return np.frombuffer(bytearray(self._file.read(f"{self._top}/data/{int(key)}")), dtype)


def _rebuild(
    storage: NDArray[Any], offset: int, shape: Sequence[int], strides: Sequence[int], *_: object
) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415

    if any(side < 0 for side in (offset, *shape, *strides)):
        raise pickle.UnpicklingError("a tensor of negative size")
    last = offset + sum((side - 1) * step for side, step in zip(shape, strides, strict=True))
    if math.prod(shape) and last >= storage.size:
        raise pickle.UnpicklingError("a tensor beyond its storage")
    if not math.prod(shape):
        return np.empty(tuple(shape), storage.dtype)
    steps = tuple(step * storage.itemsize for step in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(shape), steps)


# -- TensorFlow -------------------------------------------------------------------------------------


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
        OSError: the disk did not take it; what was there before is untouched.
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
    """Where the order of a save is noted: these files take no stamp."""
    return folder / RESUME_FOLDER / f"{stem}.saved.json"


def _list_tensorflow(folder: Path, name: str) -> list[SaveTime]:
    """Each whole checkpoint, in the order of their saves; the names are without an ending."""
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
    """Index first: data without an index is nobody's checkpoint."""
    (folder / f"{stem}{_INDEX}").unlink(missing_ok=True)
    for entry in os.listdir(folder):
        if entry.startswith(f"{stem}.data-"):
            (folder / entry).unlink(missing_ok=True)
