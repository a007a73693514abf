"""archive_tester: what RLA pickled of its manager, as plain data.

`<index>.json` holds hyper-parameters, tracked keys, custom data, dates and folders. Arrays and
tensors among the custom data lie in `<index>.pt` (torch.load(weights_only=True) reads it), and the
JSON names them. Without tensors among them neither writing nor reading needs torch. Objects that
are neither are refused when they are added.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rla_client.errors import ArgumentError
from rla_client.storage import write_atomic

ARCHIVE_FORMAT = 1
ARRAY_KEY = "__rla_array__"
DEQUE_KEY = "__rla_deque__"
_PLAIN = (type(None), bool, int, float, str)


def split_arrays(value: object, arrays: dict[str, Any], path: str) -> Any:  # noqa: ANN401 - plain data of any shape
    """Plain data of a custom value; arrays and tensors go into `arrays` under their path.

    Raises:
        ArgumentError: it holds an object that is neither plain data nor an array.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {str(key): split_arrays(entry, arrays, f"{path}/{key}") for key, entry in value.items()}
    if isinstance(value, deque):
        entries = [split_arrays(entry, arrays, f"{path}/{i}") for i, entry in enumerate(value)]
        return {DEQUE_KEY: value.maxlen, "items": entries}
    if isinstance(value, (list, tuple)):
        return [split_arrays(entry, arrays, f"{path}/{i}") for i, entry in enumerate(value)]
    kind = array_kind(value)
    if kind == "tensorflow":
        value, kind = value.numpy(), "numpy"  # type: ignore[attr-defined]
    if kind == "scalar":
        return value.item()  # type: ignore[attr-defined]
    if kind is not None:
        arrays[path] = value
        plain = {ARRAY_KEY: path, "kind": kind}
        return plain if kind == "torch" else plain | {"dtype": value.dtype.name}  # type: ignore[attr-defined]
    message = (
        f"custom data {path!r} holds a {type(value).__name__}, which is neither plain data nor an array; "
        "keep it with save_checkpoint, or give plain data made of it"
    )
    raise ArgumentError(message)


def array_kind(value: object) -> str | None:
    """`numpy`, `torch`, `tensorflow` or `scalar` (a numpy one), None for anything else."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(value, (tensorflow.Tensor, tensorflow.Variable)):
        return "tensorflow"
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
        return "scalar"
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
        return "numpy"
    return None


def join_arrays(value: Any, arrays: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The inverse of `split_arrays`; arrays that are missing become None."""
    if isinstance(value, dict):
        if ARRAY_KEY in value:
            found = arrays.get(value[ARRAY_KEY])
            return _as_numpy(found, value) if value.get("kind") == "numpy" and found is not None else found
        if DEQUE_KEY in value:
            return deque((join_arrays(entry, arrays) for entry in value["items"]), maxlen=value[DEQUE_KEY])
        return {key: join_arrays(entry, arrays) for key, entry in value.items()}
    if isinstance(value, list):
        return [join_arrays(entry, arrays) for entry in value]
    return value


def _as_numpy(found: Any, described: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a tensor or an array
    """The array that was kept, of the type it had; types that no file holds stay what they became."""
    array = found.numpy() if hasattr(found, "detach") else found
    dtype = str(described.get("dtype", array.dtype.name))
    return (
        array.view(dtype) if dtype in {"uint16", "uint32", "uint64"} and dtype != array.dtype.name else array
    )


def encode_archive(content: Mapping[str, Any], custom_data: Mapping[str, Any]) -> tuple[bytes, bytes | None]:
    """JSON of the archive, and the `.pt` beside it when there are arrays."""
    arrays: dict[str, Any] = {}
    plain = split_arrays(dict(custom_data), arrays, "")
    text = json.dumps({"format": ARCHIVE_FORMAT, **content, "custom_data": plain}, indent=1)
    if not arrays:
        return text.encode(), None
    return text.encode(), pack_arrays(arrays)


def pack_arrays(arrays: Mapping[str, Any]) -> bytes:
    """The `.pt` of arrays and tensors; without tensors torch is not needed."""
    from rla_client.array_file import encode_arrays, normal  # noqa: PLC0415 - imports numpy

    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(value, torch.Tensor) for value in arrays.values()):
        return encode_arrays({key: normal(value) for key, value in arrays.items()})
    tensors = {
        key: (value if isinstance(value, torch.Tensor) else torch.as_tensor(normal(value))).detach().cpu()
        for key, value in arrays.items()
    }
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()


def write_archive(path: str, text: bytes, tensors: bytes | None) -> None:
    """Write the pair; the tensors first, so that the JSON never names what is not there."""
    beside = os.path.splitext(path)[0] + ".pt"
    if tensors is not None:
        write_atomic(beside, tensors, durable=False)
    write_atomic(path, text, durable=False)


def load_custom_data(path: str, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Custom data of an archive of ours, arrays included."""
    joined = join_arrays(dict(plain), load_arrays(path))
    return joined if isinstance(joined, dict) else {}


def load_arrays(path: str) -> Mapping[str, Any]:
    """Arrays and tensors that lie beside the archive `path`; empty without any."""
    beside = Path(os.path.splitext(path)[0] + ".pt")
    try:
        return unpack_arrays(beside.read_bytes())
    except OSError:
        return {}


def unpack_arrays(data: bytes) -> Mapping[str, Any]:
    """What `pack_arrays` made; without torch, what only torch can hold is missing."""
    if "torch" in sys.modules or importlib.util.find_spec("torch") is not None:
        from rla_client.checkpoint_files import load_file  # noqa: PLC0415 - imports torch

        found = load_file(io.BytesIO(data))
        return found if isinstance(found, dict) else {}
    from rla_client.array_file import decode_arrays  # noqa: PLC0415 - imports numpy

    try:
        return decode_arrays(data)
    except ValueError:
        return {}
