"""Reads the original's archive_tester pickles without executing them.

The original dumps its whole manager by dill. Unpickling that would import and call whatever
the file names. Here `pickletools.genops` splits the file into opcodes, and a small stack machine
builds plain containers from them. Wherever a pickle would import or call something, the machine
puts an inert `Placeholder` that only remembers the name, the arguments and the state. No name
of the file is ever imported, looked up or called: the only branches on names are the comparisons
in `pickle_values`, where dates, numpy numbers and deques are decoded from their bytes.

Bounds: a file over `MAX_PICKLE_BYTES` or with more than `MAX_OPCODES` is refused. Shared and
cyclic references cost nothing while reading; `pickle_values.to_plain` cuts them at a depth and a count.
"""

from __future__ import annotations

import os
import pickletools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.files import open_plain

MAX_PICKLE_BYTES = 256 << 20  # the original puts custom data (arrays, deques) into this file
MAX_OPCODES = 20_000_000  # at about 1 µs each


@dataclass(slots=True, eq=False)
class Placeholder:
    """What stands for an object that the pickle would import or make.

    Attributes:
        name: `module.attribute` as the file spells it; only text.
        args: arguments that a call would have got, empty for a bare name.
        state: attributes of the object, by name; other kinds of state under `""`.
        items: elements appended or set afterwards.
        called: whether it stands for an instance rather than for the name itself.
    """

    name: str
    args: tuple[Any, ...] = ()
    state: dict[Any, Any] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    called: bool = False

    def __repr__(self) -> str:
        return f"<{self.name}{' object' if self.called else ''}, not loaded>"


class _Mark:
    """The stack's mark."""


_MARK = _Mark()


def read_pickle(path: str | os.PathLike[str]) -> Any:  # noqa: ANN401 - any pickled value
    """Read one pickle file into containers, numbers, text and placeholders.

    Raises:
        BrokenFileError: it is no whole pickle, or too large.
        OSError: it cannot be opened.
    """
    with open_plain(path) as file:
        data = file.read(MAX_PICKLE_BYTES + 1)
    try:
        return parse_pickle(data)
    except (
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        struct.error,
        RecursionError,
    ) as error:
        raise BrokenFileError(os.fspath(path), f"no whole pickle ({error})") from error


def parse_pickle(data: bytes) -> Any:  # noqa: ANN401
    """Interpret the opcodes of a pickle; see `read_pickle`.

    Raises:
        ValueError, IndexError, KeyError, TypeError, AttributeError: the bytes are no whole pickle.
    """
    if len(data) > MAX_PICKLE_BYTES:
        message = f"larger than {MAX_PICKLE_BYTES >> 20} MiB"
        raise ValueError(message)
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count > MAX_OPCODES:
            message = f"more than {MAX_OPCODES} opcodes"
            raise ValueError(message)
        if opcode.name == "STOP":
            return machine.stack[-1]
        machine.step(opcode.name, argument)
    message = "it ends in the middle"
    raise ValueError(message)


class _Machine:
    """Stack and memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:  # noqa: ANN401
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        else:
            handler = _HANDLERS.get(name)
            if handler is None:
                message = f"opcode {name} is not known"
                raise ValueError(message)
            handler(self, argument)

    def to_mark(self) -> list[Any]:
        for position in range(len(self.stack) - 1, -1, -1):
            if self.stack[position] is _MARK:
                items = self.stack[position + 1 :]
                del self.stack[position:]
                return items
        message = "a mark is missing"
        raise ValueError(message)

    def pop(self) -> Any:  # noqa: ANN401
        return self.stack.pop()

    def get(self, argument: Any) -> None:  # noqa: ANN401
        self.stack.append(self.memo[int(argument)])

    def put(self, argument: Any) -> None:  # noqa: ANN401
        self.memo[int(argument)] = self.stack[-1]

    def memoize(self, _: object) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def append(self, _: object) -> None:
        value = self.pop()
        _extend(self.stack[-1], [value])

    def appends(self, _: object) -> None:
        values = self.to_mark()
        _extend(self.stack[-1], values)

    def set_item(self, _: object) -> None:
        value, key = self.pop(), self.pop()
        _set(self.stack[-1], key, value)

    def set_items(self, _: object) -> None:
        flat = self.to_mark()
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            _set(self.stack[-1], key, value)

    def make_tuple(self, size: int) -> None:
        items = tuple(self.stack[-size:])
        if len(items) != size or _MARK in items:
            message = "a tuple lacks elements"
            raise ValueError(message)
        del self.stack[-size:]
        self.stack.append(items)

    def make_dict(self, _: object) -> None:
        flat = self.to_mark()
        made: dict[Any, Any] = {}
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            _set(made, key, value)
        self.stack.append(made)

    def global_name(self, argument: str) -> None:
        self.stack.append(Placeholder(argument.replace(" ", ".", 1)))

    def stack_global(self, _: object) -> None:
        attribute, module = self.pop(), self.pop()
        self.stack.append(Placeholder(f"{module}.{attribute}"))

    def reduce(self, _: object) -> None:
        arguments, target = self.pop(), self.pop()
        self.stack.append(_instance(target, arguments))

    def new_object_ex(self, _: object) -> None:
        self.pop()
        self.reduce(None)

    def build(self, _: object) -> None:
        state = self.pop()
        _set_state(self.stack[-1], state)

    def instance(self, argument: str) -> None:
        arguments = tuple(self.to_mark())
        self.stack.append(_instance(Placeholder(argument.replace(" ", ".", 1)), arguments))

    def old_object(self, _: object) -> None:
        items = self.to_mark()
        self.stack.append(_instance(items[0], tuple(items[1:])))

    def persistent(self, argument: object) -> None:
        self.stack.append(Placeholder("persistent_id", (argument,), called=True))

    def persistent_binary(self, _: object) -> None:
        self.persistent(self.pop())

    def drop(self, _: object) -> None:
        self.pop()

    def drop_to_mark(self, _: object) -> None:
        self.to_mark()

    def duplicate(self, _: object) -> None:
        self.stack.append(self.stack[-1])

    def nothing(self, _: object) -> None:
        """Framing and protocol opcodes change nothing."""


_LITERALS = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
        "FLOAT",
        "BINFLOAT",
    ]
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
    "NEXT_BUFFER": lambda: Placeholder("out-of-band buffer", called=True),
}
_HANDLERS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    **dict.fromkeys(("PROTO", "FRAME", "READONLY_BUFFER"), _Machine.nothing),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), _Machine.appends),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _Machine.reduce),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), _Machine.persistent),
    "MEMOIZE": _Machine.memoize,
    "APPEND": _Machine.append,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.to_mark())),
    "TUPLE1": lambda machine, _: machine.make_tuple(1),
    "TUPLE2": lambda machine, _: machine.make_tuple(2),
    "TUPLE3": lambda machine, _: machine.make_tuple(3),
    "LIST": lambda machine, _: machine.stack.append(machine.to_mark()),
    "FROZENSET": lambda machine, _: machine.stack.append(machine.to_mark()),
    "DICT": _Machine.make_dict,
    "GLOBAL": _Machine.global_name,
    "STACK_GLOBAL": _Machine.stack_global,
    "NEWOBJ_EX": _Machine.new_object_ex,
    "BUILD": _Machine.build,
    "INST": _Machine.instance,
    "OBJ": _Machine.old_object,
    "PERSID": _Machine.persistent,
    "BINPERSID": _Machine.persistent_binary,
    "POP": _Machine.drop,
    "POP_MARK": _Machine.drop_to_mark,
    "DUP": _Machine.duplicate,
}


def _key(key: Any) -> Any:  # noqa: ANN401
    """A dict key that is sure to be hashable."""
    return key if isinstance(key, str | int | float | bytes | None) else repr(key)[:200]


def _set(target: Any, key: Any, value: Any) -> None:  # noqa: ANN401
    if isinstance(target, dict):
        target[_key(key)] = value
    else:
        target.items.append((key, value))


def _extend(target: Any, values: list[Any]) -> None:  # noqa: ANN401
    if isinstance(target, list):
        target.extend(values)
    elif isinstance(target, set):
        target.update(_key(value) for value in values)
    else:
        target.items.extend(values)


def _set_state(target: Any, state: Any) -> None:  # noqa: ANN401
    if not isinstance(target, Placeholder):
        return
    parts = state if isinstance(state, tuple) else (state,)
    for part in parts:
        if isinstance(part, dict):
            target.state.update(part)
        elif part is not None:
            target.state[""] = state


def _instance(target: Any, arguments: Any) -> Any:  # noqa: ANN401
    args = arguments if isinstance(arguments, tuple) else (arguments,)
    name = target.name if isinstance(target, Placeholder) else type(target).__name__
    return Placeholder(name, args, called=True)
