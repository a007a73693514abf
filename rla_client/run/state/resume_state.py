"""Resume state beside a checkpoint.

It has clock, random generators, moving averages and custom data. It is taken at `save_checkpoint` and stored
as plain msgpack in the checkpoint item under `.resume/<name>_<time-step>.state`. The agent adds `.marks.json`
with the length of each output at that moment. Arrays and pickles of more than MAX_STATE_BYTES are beside it
in `<name>_<time-step>.<order>.arrays`, a `.pt` to which the archive's is a link: of the same moment as the
model, whatever the archive has later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import CHECKPOINT, MAX_STATE_BYTES, RESUME_FOLDER, arrays_name
from rla_client.contract.spool.protocol import pack
from rla_client.run.current_logger import warn
from rla_client.run.run import Run
from rla_client.run.state.archive import STATE_FORMAT, read_arrays, unpack_arrays
from rla_client.run.state.random_state import capture_random_state

if TYPE_CHECKING:
    from rla_client.run.item import ItemFolders


def keep_resume_state(
    run: Run, plain: object, arrays: bytes, name: str, step: int, order: int
) -> Path | None:
    """Store the present state for the checkpoint `<name>_<step>`; a failure is only a warning.

    Args:
        run: the open one.
        plain: custom data of `split_custom`, and
        arrays: `pack_arrays` of its arrays.
        name: the checkpoint's series.
        step: its time-step.
        order: of its stamp.

    Returns:
        The file with the arrays, where they have one of their own.
    """
    if run.opening is None:
        return None
    state: dict[str, Any] = {
        "format": STATE_FORMAT,
        "order": order,
        "time_step": run.logger.clock.get_time(),
        "leaders": run.logger.clock.leaders,
        "random": capture_random_state(),
        "logger": run.logger.memory(),
        "custom_data": plain,
        "saved_by": run.opening.run,
    }
    stem = f"{name}_{step}"
    beside = arrays_name(stem, order) if len(arrays) > MAX_STATE_BYTES else None
    state |= {"arrays": arrays} if beside is None else {"arrays_beside": beside}
    try:
        content = pack(state)
        if len(content) > 2 * MAX_STATE_BYTES:
            content = pack({**state, "custom_data": {}, "arrays": b""})
    except UnicodeEncodeError as error:  # half of a surrogate pair
        warn(f"resume state not written: a key or text of the run is not text ({error.reason})")
        return None
    folder = Path(run.opening.root, run.opening.folders[CHECKPOINT])
    below = folder / RESUME_FOLDER
    try:
        below.mkdir(exist_ok=True)
        if beside is not None:
            write_atomic(below / beside, arrays, durable=False)
        write_atomic(below / f"{stem}.state", content, durable=False)
        for old in arrays_of(folder, stem):  # of an earlier save of that time-step, whose state is gone
            if old.name != beside:
                old.unlink(missing_ok=True)
    except OSError as error:
        warn(f"resume state not written: {error.strerror or error}")
        return None
    run.file(CHECKPOINT, f"{RESUME_FOLDER}/{stem}.state", content)
    return None if beside is None else below / beside


def arrays_of(folder: Path, stem: str) -> list[Path]:
    """Files with arrays beside the states of a checkpoint's time-step; `stem`: of the checkpoint's name."""
    names = re.compile(rf"{re.escape(stem)}\.[0-9]{{1,20}}\.arrays", re.DOTALL)
    below = folder / RESUME_FOLDER
    try:
        return [below / name for name in sorted(os.listdir(below)) if names.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_resume_arrays(
    state: Mapping[str, Any], item: ItemFolders, name: str, step: int | None
) -> Mapping[str, Any]:
    """Arrays of a resume state of `item`; empty, after a warning, where they are gone."""
    if state.get("arrays"):
        return unpack_arrays(state["arrays"])
    if not state.get("arrays_beside"):
        return {}
    path = Path(item.folder(CHECKPOINT), RESUME_FOLDER, arrays_name(f"{name}_{step}", state["order"]))
    try:
        return read_arrays(path)
    except (OSError, BrokenFileError) as error:
        warn(f"arrays and objects of the custom data are None, their file cannot be read: {path}: {error}")
        return {}


def read_resume_state(checkpoint_dir: str | os.PathLike[str], name: str, step: int) -> dict[str, Any] | None:
    """The state stored for a checkpoint, None without one."""
    path = Path(checkpoint_dir) / RESUME_FOLDER / f"{name}_{step}.state"
    try:
        content = msgpack.unpackb(read_small(path, 2 * MAX_STATE_BYTES), strict_map_key=False)
    except (OSError, ValueError, msgpack.UnpackException):
        return None
    return content if isinstance(content, dict) and content.get("format") == STATE_FORMAT else None
