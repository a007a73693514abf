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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.files import open_plain, write_atomic
from rla_client.run.custom_values import join_arrays, split_arrays

ARCHIVE_FORMAT = 1


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
    from rla_client.checkpoint.array_file import encode_arrays, normal  # noqa: PLC0415 - imports numpy

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
        with open_plain(beside) as file:
            return unpack_arrays(file.read())
    except (OSError, BrokenFileError):
        return {}


def unpack_arrays(data: bytes) -> Mapping[str, Any]:
    """What `pack_arrays` made; without torch, what only torch can hold is missing."""
    if "torch" in sys.modules or importlib.util.find_spec("torch") is not None:
        from rla_client.checkpoint.files import load_file  # noqa: PLC0415 - imports torch

        found = load_file(io.BytesIO(data))
        return found if isinstance(found, dict) else {}
    from rla_client.checkpoint.array_file import decode_arrays  # noqa: PLC0415 - imports numpy

    try:
        return decode_arrays(data)
    except ValueError:
        return {}
