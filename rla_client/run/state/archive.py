"""Archive of a run (`archive_tester`).

It has the data that RLA pickled with its manager, as plain data. `<index>.json` has hyper-parameters, tracked
keys, custom data, dates and folders. Arrays and tensors of the custom data are in `<index>.pt`
(torch.load(weights_only=True) reads it), and the JSON names them. Without tensors neither writing nor reading
needs torch.
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
from rla_client.contract.filesystem.atomic_write import replacing, write_atomic
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.process.loaded_modules import loaded
from rla_client.run.state.custom_data import join_arrays

ARCHIVE_FORMAT = STATE_FORMAT = 1


def encode_archive(content: Mapping[str, Any], plain: object) -> bytes:
    """JSON of the archive, with the plain data of `split_custom`."""
    return json.dumps({"format": ARCHIVE_FORMAT, **content, "custom_data": plain}, indent=1).encode()


def pack_arrays(arrays: Mapping[str, Any]) -> bytes:
    """The `.pt` of arrays and tensors, empty of none; without tensors torch is not needed."""
    if not arrays:
        return b""
    from rla_client.checkpoint.array_file import encode_arrays, torch_array  # noqa: PLC0415 - imports numpy

    torch = loaded("torch")
    if torch is None or not any(isinstance(value, torch.Tensor) for value in arrays.values()):
        return encode_arrays({key: torch_array(value) for key, value in arrays.items()})
    tensors = {
        key: (value if isinstance(value, torch.Tensor) else torch.as_tensor(torch_array(value)))
        .detach()
        .cpu()
        for key, value in arrays.items()
    }
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()


def write_archive(path: str, text: bytes, tensors: bytes, written: Path | None = None) -> None:
    """Write the pair, the tensors first, so that the JSON never names missing ones.

    Args:
        path: of the JSON.
        text: its content.
        tensors: of `pack_arrays`.
        written: a file that has just been written with them.
    """
    beside = os.path.splitext(path)[0] + ".pt"
    if tensors and not (written is not None and _linked(written, beside)):
        write_atomic(beside, tensors, durable=False)
    write_atomic(path, text, durable=False)


def _linked(source: Path, path: str) -> bool:
    try:
        with replacing(path, durable=False) as temp:
            os.link(source, temp)
    except OSError:  # a file system without links, or no longer there
        return False
    return True


def load_custom_data(path: str, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Custom data of an archive of ours, arrays included."""
    joined = join_arrays(dict(plain), load_arrays(path))
    return joined if isinstance(joined, dict) else {}


def load_arrays(path: str) -> Mapping[str, Any]:
    """Arrays and tensors that lie beside the archive `path`; empty without any."""
    try:
        return read_arrays(Path(os.path.splitext(path)[0] + ".pt"))
    except (OSError, BrokenFileError):
        return {}


def read_arrays(path: Path) -> Mapping[str, Any]:
    """Arrays of one file."""
    with open_plain(path) as file:
        return unpack_arrays(file.read())


def unpack_arrays(data: bytes) -> Mapping[str, Any]:
    """Inverse of `pack_arrays`; without torch, values that need torch are missing."""
    if "torch" in sys.modules or importlib.util.find_spec("torch") is not None:
        from rla_client.checkpoint.loading import load_file  # noqa: PLC0415 - imports torch

        found = load_file(io.BytesIO(data))
        return found if isinstance(found, dict) else {}
    from rla_client.checkpoint.array_file import decode_arrays  # noqa: PLC0415 - imports numpy

    try:
        return decode_arrays(data)
    except ValueError:
        return {}
