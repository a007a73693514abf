"""Safe loading of checkpoint files.

It uses `torch.load(weights_only=True)`, which rebuilds tensors, containers, numbers and arrays and runs no
code from the file. A file that it refuses is unpickled in full only where the loading run wrote it
(pickle_trust.py), or the user vouches for the file (`trust=True`).
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import pathlib
import pickle
import re
import types
import warnings
import zipfile
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.numpy_marks import as_numpy
from rla_client.checkpoint.pickle_trust import checkpoint_problem
from rla_client.checkpoint.pickling import capture_generally
from rla_client.checkpoint.refused_shards import names_shards, not_whole
from rla_client.checkpoint.torch_names import torch_module, torch_names
from rla_client.contract.errors import (
    BrokenFileError,
    NoCheckpointError,
    RlaError,
    ShardedContentError,
    UntrustedCheckpointError,
)

if TYPE_CHECKING:
    import torch


_UNREADABLE = (EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError)
SAFE_TORCH = (2, 10)  # weights_only=True could be made to run code before (two CVEs)


def load_file(
    path: Path | io.BytesIO, *, trust: bool = False, run: str = "", map_location: object = None
) -> Any:  # noqa: ANN401
    """Read one checkpoint.

    Args:
        path: a `.pt` file, or its content.
        trust: load also objects that need code from the file, whoever wrote it.
        run: identity of the loading run, whose own files here are loaded in full too.
        map_location: as in torch.load; by default tensors of a GPU that is not there come to the CPU.

    Raises:
        NoCheckpointError: there is no such file.
        BrokenFileError: it is truncated, or no checkpoint.
        UntrustedCheckpointError: it holds other objects than weights_only allows, and `trust` is False.
        ShardedContentError: it holds one rank's part of tensors that lie on several.
    """
    _check_version()
    sharded = names_shards(path)
    try:
        content = _load(path, trust=trust, run=run, map_location=map_location)
        if sharded:
            capture_generally(content)  # its reducer sees every tensor, and refuses those
    except ShardedContentError as error:
        raise not_whole(path, error.what) from error
    except RuntimeError as error:
        if not sharded or isinstance(error, RlaError):
            raise
        raise not_whole(path, f"a ShardedTensor ({error})") from error  # needs the process group of its save
    return content


def _load(path: Path | io.BytesIO, *, trust: bool, run: str, map_location: object) -> Any:  # noqa: ANN401
    """See `load_file`."""
    torch = torch_module()
    if map_location is None and not torch.cuda.is_available():
        map_location = "cpu"
    begin = path.tell() if isinstance(path, io.BytesIO) else 0
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
    if isinstance(path, io.BytesIO):
        path.seek(begin)
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
    """Rebuild the content of a save of this very process whose file does not exist yet.

    Args:
        skeleton: of `capture`.
        bytes_of: a copy of the storage of a key, which has so many bytes.
        map_location: a device for all tensors; None leaves them where they were.
    """
    return as_numpy(_OwnUnpickler(skeleton, bytes_of, map_location).load())


class _OwnUnpickler(pickle.Unpickler):
    """Unpickler for a pickle of this very process."""

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
    """Functions that rebuild arrays, scalars and plain data. None of them runs code from the file."""
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
