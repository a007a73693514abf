"""Safe pickle reader without imports.

The original dumps its whole manager by dill. Plain unpickling would import and call everything that the file
names. Here `pickle.Unpickler` gets, for every name, an inert placeholder class that only stores the name, the
arguments and the state. The only branches on names are the comparisons in `to_plain`, where dates, numpy
numbers and deques are decoded from their bytes. Files over `MAX_PICKLE_BYTES`, with more than `MAX_OPCODES`,
with more than `MAX_NAMES` or with memo numbers that would only take memory are refused. Shared and cyclic
references cost nothing while reading; `to_plain` limits them by depth and count.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import struct
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain

MAX_PLAIN_DEPTH = 50
MAX_PLAIN_NODES = 1_000_000
_NUMPY_FORMATS = {
    "f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q",
    "u1": "B", "u2": "H", "u4": "I", "u8": "Q", "b1": "?",
}  # fmt: skip
MAX_PICKLE_BYTES = 256 << 20  # the original puts custom data (arrays, deques) into this file
MAX_OPCODES = 20_000_000  # at about 1 µs each
MAX_NAMES = 10_000  # each is a class; the original's manager names a few dozen
_MEMO_SLACK = 256  # memo numbers are consecutive
_MEMO_OPCODES = frozenset(["PUT", "BINPUT", "LONG_BINPUT"])


class _Named(type):
    """Metaclass whose classes, the placeholders, have the name they represent."""

    name = ""

    def __repr__(cls) -> str:
        return f"<{cls.name}, not loaded>"


class Placeholder(metaclass=_Named):
    """Placeholder of an object that the pickle would make; each name has a subclass.

    Attributes:
        name: `module.attribute` as the file spells it; only text.
        args: arguments that the call would have got.
        state: attributes of the object, by name; other kinds of state under `""`.
        items: elements appended or set afterwards.
    """

    name: str
    args: tuple[Any, ...]
    state: dict[Any, Any]
    items: list[Any]

    def __new__(cls, *args: object, **_keywords: object) -> Placeholder:  # noqa: PYI034 - no Self in 3.10
        """Keep the arguments; `__init__` is not called for all opcodes."""
        made = super().__new__(cls)
        made.args, made.state, made.items = args, {}, []
        return made

    def __init__(self, *args: object, **keywords: object) -> None:
        """Does nothing: `__new__` has stored the arguments."""

    def __setstate__(self, state: object) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.state.update(part)
            elif part is not None:
                self.state[""] = state

    def __setitem__(self, key: object, value: object) -> None:
        self.items.append((key, value))

    def append(self, value: object) -> None:
        """As the opcodes call it."""
        self.items.append(value)

    add = append

    def extend(self, values: Iterable[object]) -> None:
        """As the opcodes call it."""
        self.items.extend(values)

    def __repr__(self) -> str:
        return f"<{self.name} object, not loaded>"


class _Reader(pickle.Unpickler):
    """Unpickler that resolves every name to a placeholder."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), fix_imports=False, encoding="latin-1")  # text as Python 2 wrote it
        self._classes: dict[str, type[Placeholder]] = {}

    def find_class(self, module: str, name: str) -> type[Placeholder]:
        full = f"{module}.{name}"
        if full not in self._classes:
            if len(self._classes) == MAX_NAMES:
                raise ValueError(f"more than {MAX_NAMES} names")
            self._classes[full] = _Named("Placeholder", (Placeholder,), {"name": full})  # type: ignore[assignment]
        return self._classes[full]

    def persistent_load(self, identity: object) -> Placeholder:
        return self.find_class("pickle", "persistent_id")(identity)


def read_pickle(path: str | os.PathLike[str]) -> Any:  # noqa: ANN401 - any pickled value
    """Read one pickle file into containers, numbers, text and placeholders.

    Raises:
        BrokenFileError: it is no complete pickle, or too large.
        OSError: it cannot be opened.
    """
    with open_plain(path) as file:
        data = file.read(MAX_PICKLE_BYTES + 1)
    try:
        return parse_pickle(data)
    except ValueError as error:
        raise BrokenFileError(os.fspath(path), f"no whole pickle ({error})") from error


def parse_pickle(data: bytes) -> object:
    """The value of a pickle; see `read_pickle`.

    Raises:
        ValueError: the bytes are no complete pickle, or over a bound.
    """
    if len(data) > MAX_PICKLE_BYTES:
        raise ValueError(f"larger than {MAX_PICKLE_BYTES >> 20} MiB")
    try:
        _check_opcodes(data)
        return _Reader(data).load()
    except ValueError:
        raise
    except (
        pickle.UnpicklingError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        MemoryError,
        struct.error,
        RecursionError,
    ) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _check_opcodes(data: bytes) -> None:
    """Refuse what would take much more memory than its bytes, before anything is built."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count > MAX_OPCODES:
            raise ValueError(f"more than {MAX_OPCODES} opcodes")
        if opcode.name in _MEMO_OPCODES and int(str(argument)) > count + _MEMO_SLACK:
            raise ValueError(f"memo number {argument}")


def _as_bytes(raw: object) -> Any:  # noqa: ANN401
    """Bytes as Python 2 wrote them (text), or as Python 3 does below protocol 3 (`_codecs.encode`)."""
    if isinstance(raw, Placeholder) and raw.name in {"_codecs.encode", "__builtin__.bytes"}:
        raw = raw.args[0] if raw.args else ""
    return raw.encode("latin-1") if isinstance(raw, str) else raw


def _date(made: Placeholder) -> datetime:
    raw = _as_bytes(made.args[0])
    year, month, day, hour, minute, second = struct.unpack(">HBBBBB", raw[:7])
    return datetime(year, month & 0x7F, day, hour, minute, second, int.from_bytes(raw[7:10], "big"))  # noqa: DTZ001


def _numpy_format(dtype: Placeholder) -> str:
    """Of one number, for `struct`."""
    order = ">" if dtype.state.get("", (0, "<"))[1] == ">" else "<"
    return order + _NUMPY_FORMATS[dtype.args[0].lstrip("<>=|")]


def _numpy_scalar(made: Placeholder) -> object:
    dtype, raw = made.args
    return struct.unpack(_numpy_format(dtype), _as_bytes(raw))[0]


def _numpy_array(made: Placeholder) -> object:
    """Nested lists of an array's numbers, from the state (version, shape, dtype, fortran, bytes)."""
    _, shape, dtype, fortran, raw = made.state[""]
    numbers = struct.iter_unpack(_numpy_format(dtype), _as_bytes(raw))
    values: list[Any] = [number for (number,) in numbers]
    sizes = shape[:0:-1] if not fortran else shape[:-1]
    for size in sizes:
        values = [values[start : start + size] for start in range(0, len(values), size)]
    if fortran and len(shape) > 1:
        return f"<array of shape {tuple(shape)} in Fortran order>"
    return values if shape else values[0]


_PLAIN: dict[str, Callable[[Placeholder], Any]] = {
    "datetime.datetime": _date,
    "numpy.core.multiarray.scalar": _numpy_scalar,
    "numpy._core.multiarray.scalar": _numpy_scalar,
    "numpy.core.multiarray._reconstruct": _numpy_array,
    "numpy._core.multiarray._reconstruct": _numpy_array,
    "collections.deque": lambda made: list(made.items),
    "collections.OrderedDict": lambda made: dict(made.items),
    "collections.defaultdict": lambda made: dict(made.items),
}


def to_plain(value: object) -> Any:  # noqa: ANN401
    """Convert the result of `read_pickle` into JSON-like data; unknown objects become their description.

    Raises:
        ValueError: there are more than `MAX_PLAIN_NODES` values.
    """
    return _plain(value, MAX_PLAIN_DEPTH, [MAX_PLAIN_NODES])


def _plain(value: object, depth: int, budget: list[int]) -> object:  # noqa: PLR0911 - one case a line
    budget[0] -= 1
    if budget[0] < 0:
        raise ValueError(f"more than {MAX_PLAIN_NODES} values")
    if isinstance(value, bool | int | float | str | datetime | None):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, Placeholder):
        known = _PLAIN.get(value.name)
        if known is None:
            return repr(value)
        try:
            return _plain(known(value), depth - 1, budget)
        except (KeyError, IndexError, TypeError, AttributeError, struct.error, OverflowError):
            return repr(value)
    if isinstance(value, dict):
        return {str(key): _plain(item, depth - 1, budget) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth - 1, budget) for item in value]
    if isinstance(value, type):
        return repr(value)  # a bare name
    return f"<{len(value)} bytes>" if isinstance(value, bytes | bytearray) else f"<{type(value).__name__}>"
