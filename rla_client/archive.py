"""archive_tester: what RLA pickled of its manager, as plain data.

`<index>.json` holds hyper-parameters, tracked keys, custom data, dates and folders. Arrays and
tensors among the custom data lie in `<index>.pt` (torch.load(weights_only=True) reads it), and the
JSON names them. Objects that are neither are refused when they are added.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections import deque
from collections.abc import Mapping
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
    if kind == "scalar":
        return value.item()  # type: ignore[attr-defined]
    if kind is not None:
        arrays[path] = value
        return {ARRAY_KEY: path, "kind": kind}
    message = (
        f"custom data {path!r} holds a {type(value).__name__}, which is neither plain data nor an array; "
        "keep it with save_checkpoint, or give plain data made of it"
    )
    raise ArgumentError(message)


def array_kind(value: object) -> str | None:
    """`numpy`, `torch` or `scalar` (a numpy one), None for anything else."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
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
            return found.numpy() if value.get("kind") == "numpy" and found is not None else found
        if DEQUE_KEY in value:
            return deque((join_arrays(entry, arrays) for entry in value["items"]), maxlen=value[DEQUE_KEY])
        return {key: join_arrays(entry, arrays) for key, entry in value.items()}
    if isinstance(value, list):
        return [join_arrays(entry, arrays) for entry in value]
    return value


def encode_archive(content: Mapping[str, Any], custom_data: Mapping[str, Any]) -> tuple[bytes, bytes | None]:
    """JSON of the archive, and the `.pt` beside it when there are arrays."""
    arrays: dict[str, Any] = {}
    plain = split_arrays(dict(custom_data), arrays, "")
    text = json.dumps({"format": ARCHIVE_FORMAT, **content, "custom_data": plain}, indent=1)
    if not arrays:
        return text.encode(), None
    import torch  # noqa: PLC0415 - only with arrays

    tensors = {key: torch.as_tensor(value).detach().cpu() for key, value in arrays.items()}
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return text.encode(), buffer.getvalue()


def write_archive(path: str, text: bytes, tensors: bytes | None) -> None:
    """Write the pair; the tensors first, so that the JSON never names what is not there."""
    beside = os.path.splitext(path)[0] + ".pt"
    if tensors is not None:
        write_atomic(beside, tensors, durable=False)
    write_atomic(path, text, durable=False)


def load_custom_data(path: str, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Custom data of an archive of ours, arrays included."""
    beside = os.path.splitext(path)[0] + ".pt"
    arrays: Mapping[str, Any] = {}
    if os.path.exists(beside):
        from pathlib import Path  # noqa: PLC0415

        from rla_client.checkpoint_files import load_file  # noqa: PLC0415 - imports torch

        arrays = load_file(Path(beside))
    joined = join_arrays(dict(plain), arrays)
    return joined if isinstance(joined, dict) else {}
