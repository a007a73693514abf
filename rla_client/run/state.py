"""What exact resume needs beside the model: clock, random generators, moving averages, custom data.

It is taken at `save_checkpoint` and lies as plain msgpack in the checkpoint item under
`.resume/<name>_<time-step>.state`. The agent adds `.marks.json`: how long each output was at that
moment.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack

from rla_client.contract.errors import ArgumentError
from rla_client.contract.files import read_small, write_atomic
from rla_client.contract.layout import CHECKPOINT, RESUME_FOLDER
from rla_client.contract.protocol import pack
from rla_client.run.current import get_current, warn
from rla_client.run.custom_values import pack_arrays, split_arrays
from rla_client.run.run import Run
from rla_client.stream.clock import time_step_holder

STATE_FORMAT = 1
MAX_STATE_BYTES = 4 << 20  # plain data and arrays each; custom data beyond is kept in the archive only


def capture_random_state() -> dict[str, Any]:
    """States of python's, numpy's and torch's (CUDA too) global generators, as plain data."""
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {"python": [version, list(internal), gauss]}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [name, keys.tobytes(), int(position), int(has_gauss), float(cached)]
    if torch is not None:
        state["torch"] = torch.get_rng_state().numpy().tobytes()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = [entry.numpy().tobytes() for entry in torch.cuda.get_rng_state_all()]
    return state


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Bring the generators back to a captured state."""
    if "python" in state:
        version, internal, gauss = state["python"]
        random.setstate((version, tuple(internal), gauss))
    if "numpy" in state:
        import numpy as np  # noqa: PLC0415 - it was in use when the state was taken

        name, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((name, np.frombuffer(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002
    if "torch" in state:
        import torch  # noqa: PLC0415

        torch.set_rng_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
        if "cuda" in state and torch.cuda.is_available():
            entries = [torch.frombuffer(bytearray(entry), dtype=torch.uint8) for entry in state["cuda"]]
            if len(entries) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(entries)


def keep_resume_state(run: Run, custom_data: Mapping[str, Any], name: str, step: int) -> None:
    """Store the present state for the checkpoint `<name>_<step>`; nothing here stops training."""
    if run.opening is None:
        return
    arrays: dict[str, Any] = {}
    try:
        plain = split_arrays(dict(custom_data), arrays, "")
    except ArgumentError:
        plain = {}
    state = {
        "format": STATE_FORMAT,
        "time_step": time_step_holder.get_time(),
        "random": capture_random_state(),
        "logger": get_current().memory(),
        "custom_data": plain,
    }
    if arrays and sum(int(value.nbytes) for value in arrays.values()) <= MAX_STATE_BYTES:
        state["arrays"] = pack_arrays(arrays)
    try:
        content = pack(state)
        if len(content) > 2 * MAX_STATE_BYTES:
            content = pack({**state, "custom_data": {}, "arrays": b""})
    except UnicodeEncodeError as error:  # half of a surrogate pair
        warn(f"resume state not written: a key or text of the run is not text ({error.reason})")
        return
    path = f"{RESUME_FOLDER}/{name}_{step}.state"
    folder = Path(run.opening.root, run.opening.folders[CHECKPOINT])
    try:
        (folder / RESUME_FOLDER).mkdir(exist_ok=True)
        write_atomic(folder / path, content, durable=False)
    except OSError as error:
        warn(f"resume state not written: {error.strerror or error}")
        return
    run.file(CHECKPOINT, path, content)


def read_resume_state(checkpoint_dir: str | os.PathLike[str], name: str, step: int) -> dict[str, Any] | None:
    """The state stored for a checkpoint, None without one."""
    path = Path(checkpoint_dir) / RESUME_FOLDER / f"{name}_{step}.state"
    try:
        content = msgpack.unpackb(read_small(path, 2 * MAX_STATE_BYTES), strict_map_key=False)
    except (OSError, ValueError, msgpack.UnpackException):
        return None
    return content if isinstance(content, dict) and content.get("format") == STATE_FORMAT else None
