"""Conversion of logged values into plain data.

It does not import numpy, torch, jax or tensorflow: their scalars and arrays are recognized by their methods
(`detach`, `item`, `tolist`, `numpy`). Results never share memory with the argument, so a later change of an
array does not change the logged value. An unreadable value becomes text that says so; only an array that is
too large for a row is refused, before it is copied.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, TypeAlias

from rla_client.contract.errors import ArgumentError, FrameTooLargeError
from rla_client.contract.spool.protocol import MAX_FRAME_BYTES

PlainValue: TypeAlias = "bool | int | float | str | list[PlainValue] | None"
MAX_DEPTH = 32  # of nested lists and dicts; deeper ones become text (msgpack stops at 512)
MAX_INT_BITS = 8192  # Python refuses decimal text of longer ones (4300 digits): these become hex
_WORD = 1 << 63
_EXACT = frozenset({float, bool, NoneType})
_NUMPY_NUMBERS = (
    "bool bool_ float16 float32 float64 int8 int16 int32 int64 longlong uint8 uint16 uint32 uint64 ulonglong"
)
_ITEM_NAMES = frozenset({("torch", "Tensor"), *(("numpy", name) for name in _NUMPY_NUMBERS.split())})
_ITEM_KINDS: set[type] = set()  # classes of the names above: for them `item()` is the fast path


def to_plain(value: object) -> PlainValue:
    r"""Convert one logged value into plain data, a copy at the time of the call.

    Scalars of numpy, torch, jax and tensorflow and arrays with one element become Python numbers
    (bool, int and float stay apart; NaN and infinities survive), larger arrays nested lists.
    Decimals and fractions become floats; complex numbers, dates, enums without a number or text of
    their own and anything else become text. Lone surrogates in text are written as `\udc80`.

    Raises:
        FrameTooLargeError: an array has more elements than a row has bytes; each takes one at least.
    """
    kind = type(value)
    if kind in _EXACT:
        return value  # type: ignore[return-value] # exact types, checked above
    if kind is int and -_WORD < value < _WORD:  # type: ignore[operator]
        return value  # type: ignore[return-value]
    try:
        if kind in _ITEM_KINDS:
            item = value.item()  # type: ignore[attr-defined]
            if type(item) in _EXACT or type(item) is int:
                return item  # type: ignore[no-any-return]
    except Exception:  # noqa: BLE001 - several elements, or no data; the long way sorts it out
        _ITEM_KINDS.discard(kind)
    try:
        if (kind.__module__, kind.__name__) in _ITEM_NAMES and element_count(value) == 1:
            _ITEM_KINDS.add(kind)
        return plain_of(value, ())
    except FrameTooLargeError:
        raise
    except Exception:  # noqa: BLE001 - foreign code (__str__, item, …) may raise anything
        return text_of(value)


def whole_number(value: object, name: str, least: int = 1) -> int:
    """An argument as an int; it may be numpy's or torch's too.

    Raises:
        ArgumentError: it is no integer, or below `least`.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least:
        raise ArgumentError(f"{name} is a whole number of at least {least}; got {value!r}")
    return number


def clean_text(text: str) -> str:
    """The same text as an exact `str` that UTF-8 can encode."""
    text = str.__str__(text)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def text_of(value: object, show: Callable[[Any], str] = str) -> str:
    """`str` of anything, as text that UTF-8 can encode; never raises."""
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        return hex(value)
    try:
        return clean_text(show(value))
    except Exception:  # noqa: BLE001 - a user's __str__ or __repr__
        return f"<{clean_text(type(value).__name__)}: cannot be shown>"


def plain_of(value: object, path: tuple[int, ...]) -> PlainValue:  # noqa: PLR0911 - one line a kind
    """A value as plain data; `path` has the ids of the containers around it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _int(value)
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list | tuple):
        return _list(value, path)
    if isinstance(value, complex | enum.Enum | bytes | type):
        return text_of(value)
    found = _from_array(value, path)
    return number_or_text(value) if found is _NOT_AN_ARRAY else found  # type: ignore[return-value]


def _int(value: int) -> int | str:
    if value.bit_length() > MAX_INT_BITS:
        return hex(value)
    return int.__pos__(value)


def _list(value: Iterable[object], path: tuple[int, ...]) -> PlainValue:
    if len(path) >= MAX_DEPTH or id(value) in path:
        return "..."
    below = (*path, id(value))
    return [_plain_item(item, below) for item in value]


def _plain_item(item: object, path: tuple[int, ...]) -> PlainValue:
    try:
        return plain_of(item, path)
    except FrameTooLargeError:
        raise
    except Exception:  # noqa: BLE001 - one bad element must not turn the whole list into text
        return text_of(item)


_NOT_AN_ARRAY = object()


def _from_array(value: object, path: tuple[int, ...]) -> object:
    """Scalars and arrays of any library; `_NOT_AN_ARRAY` for anything else."""
    value = on_host(value)
    if not callable(getattr(value, "item", None)) or not hasattr(value, "dtype"):
        return _NOT_AN_ARRAY
    array: Any = value
    kind = getattr(array.dtype, "kind", "")
    if kind in {"m", "M"}:  # item() of datetime64[ns] would be a bare count
        array = array.astype(str)
    count = element_count(array)
    if count > MAX_FRAME_BYTES:
        raise FrameTooLargeError(
            f"an array of {count} values is too large for a row; log rla_client.Histogram of it, or write it"
            " to a file in exp_manager.results_dir"
        )
    if count != 1:
        return _list(array.tolist(), path)
    if hasattr(array, "mask"):  # item() of a masked value is the value below the mask
        return plain_of(array.ravel().tolist()[0], (*path, id(value)))
    item = array.item()
    if kind and kind in "fc" and not isinstance(item, float | complex):
        return float(item) if kind == "f" else str(item)  # longdouble returns itself
    return plain_of(item, (*path, id(value))) if len(path) < MAX_DEPTH else text_of(item)


def on_host(value: object) -> object:
    """Strip the gradient; a tensorflow value becomes a numpy one, a sparse tensor a dense one."""
    target: Any = value
    if callable(getattr(target, "detach", None)):
        target = target.detach()
        if getattr(target, "is_sparse", False) or "sparse" in str(getattr(target, "layout", "")):
            target = target.to_dense()
    elif (
        not hasattr(target, "item") and hasattr(target, "dtype") and callable(getattr(target, "numpy", None))
    ):
        target = target.numpy()
    return target


def element_count(array: Any) -> int:  # noqa: ANN401 - an array of any library
    """Elements of an array."""
    numel = getattr(array, "numel", None)
    return int(numel()) if callable(numel) else int(array.size)


def number_or_text(value: object) -> PlainValue:
    """A value of a number type (Decimal, Fraction, …) as a number; else its text."""
    try:
        if hasattr(value, "__index__"):
            return _int(operator.index(value))
        if hasattr(value, "__float__"):
            return float(value)
    except (TypeError, ValueError, ArithmeticError):
        pass  # a Decimal sNaN, a fraction beyond any float
    return text_of(value)
