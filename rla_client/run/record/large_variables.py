"""Memory report of a program's largest variables."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from rla_client.contract.errors import MissingExtraError
from rla_client.run.current_logger import get_current, info, warn

LARGE_MEMORY_TAG = "large_memory"
MIN_LARGE_BYTES = 1 << 20  # smallest reported size of a variable
MAX_LARGE_VARIABLES = 10
SAMPLED_ITEMS = 1000  # elements that are measured; a longer container's size is extrapolated
MAX_SIZE_DEPTH = 8


def print_large_memory_variable(write: Callable[[str], object] = print, *, depth: int = 1) -> dict[str, str]:
    """Write one line for each of the largest local and global variables, the largest first.

    Args:
        write: takes a line of text, for example `logger.info`.
        depth: whose variables: 1 for those of the direct caller; a wrapper passes 2.

    Returns:
        Name → size as text, as written.
    """
    frame = sys._getframe(depth)  # noqa: SLF001 - what inspect.currentframe() calls, without the import
    outer = {name: value for name, value in frame.f_globals.items() if name not in frame.f_locals}
    told = {}
    for name, size in large_variables({**frame.f_locals, **outer}):
        told[name] = size_text(size)
        write(f"{name:>30}: {told[name]:>8}")
    return told


def large_variables(namespace: Mapping[str, object]) -> list[tuple[str, int]]:
    """Name and bytes of the at most MAX_LARGE_VARIABLES largest objects, the largest first.

    Objects below MIN_LARGE_BYTES are left out. Arrays and tensors count with their data (also on a GPU),
    containers and objects with their content. Shared content counts for each; an object with several names is
    listed under its first.
    """
    sizes = []
    known: set[int] = set()
    for name, value in list(namespace.items()):
        if not name.startswith("__") and id(value) not in known:
            known.add(id(value))
            sizes.append((name, int(_size(value, set(), 0))))
    sizes.sort(key=lambda pair: -pair[1])
    return [pair for pair in sizes[:MAX_LARGE_VARIABLES] if pair[1] >= MIN_LARGE_BYTES]


def size_text(size: float) -> str:
    """Bytes as text with one decimal: `3.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


_NOT_COUNTED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def _size(value: object, seen: set[int], depth: int) -> float:
    """Bytes of `value` and its content, without objects that were counted already."""
    if isinstance(value, _NOT_COUNTED) or id(value) in seen:
        return 0
    seen.add(id(value))
    try:
        data = _data_bytes(value, seen)
        if data is not None:
            return data
        own = sys.getsizeof(value)
        return own + _held_size(value, seen, depth + 1) if depth < MAX_SIZE_DEPTH else own
    except Exception:  # noqa: BLE001 - foreign __getattr__, __len__, …; what cannot be measured is 0
        return 0


def _data_bytes(value: Any, seen: set[int]) -> int | None:  # noqa: ANN401
    """Bytes of an array's, tensor's or data frame's data; None for anything else."""
    if hasattr(value, "untyped_storage"):
        storage = value.untyped_storage()
        key = hash(("storage", storage.data_ptr()))
        if key in seen and storage.data_ptr():
            return 0
        seen.add(key)
        return int(storage.nbytes())
    if hasattr(value, "memory_usage"):
        usage = value.memory_usage(deep=False)
        return int(getattr(usage, "sum", lambda: usage)())
    if not isinstance(getattr(value, "nbytes", None), int):
        return None
    base = getattr(value, "base", None)
    if base is not None and hasattr(base, "nbytes"):
        return int(_size(base, seen, MAX_SIZE_DEPTH))  # a view keeps all of its base alive
    return int(value.nbytes)


def _held_size(value: object, seen: set[int], depth: int) -> float:
    if isinstance(value, str | bytes | bytearray | int | float | complex):
        return 0
    if isinstance(value, Mapping):
        return _sampled(value.keys(), seen, depth) + _sampled(value.values(), seen, depth)
    if isinstance(value, list | tuple | set | frozenset) or type(value).__name__ == "deque":
        return _sampled(value, seen, depth)
    held = getattr(value, "__dict__", None)
    return _size(held, seen, depth) if isinstance(held, dict) else 0


def _sampled(items: Any, seen: set[int], depth: int) -> float:  # noqa: ANN401
    count = len(items)
    if count <= SAMPLED_ITEMS:
        return sum(_size(item, seen, depth) for item in list(items))
    measured = sum(_size(item, seen, depth) for _, item in zip(range(SAMPLED_ITEMS), items, strict=False))
    return measured * count / SAMPLED_ITEMS


def tell_large_memory_variables(depth: int) -> dict[str, str]:
    """Log the largest variables of a caller (over 1 MiB, with their content): name → size.

    They also become the text `large_memory` in TensorBoard, where that is an output.

    Args:
        depth: whose variables: 2 for those of the caller, 3 for those of its caller.
    """
    told = print_large_memory_variable(info, depth=depth)
    current = get_current()
    if told and "tensorboard" in current.sinks:
        table = "".join(f"| {name} | {size} |\n" for name, size in told.items())
        try:
            from rla_client.run.record.summary_writer import tbx_writer  # noqa: PLC0415 - tensorboardX is slow to import
        except MissingExtraError as error:
            warn(f"no table of large variables in TensorBoard: {error}")
            return told
        tbx_writer(current).add_text(LARGE_MEMORY_TAG, f"| variable | size |\n| --- | --- |\n{table}")
    return told
