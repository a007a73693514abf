"""What users log and pass, as plain data: `to_plain` for rows, `plain_hyper_param` for parameters.

Nothing here imports numpy, torch, jax or tensorflow: their scalars and arrays are known by their
methods (`detach`, `item`, `tolist`, `numpy`). Results never share memory with the argument, so an
array that changes later does not change what was logged. Neither function ever raises: a value
that cannot be read becomes text that says so. `whole_number` checks an argument that is a count;
`summary_scalars` takes the numbers out of a Summary of TensorBoard's.
"""

from __future__ import annotations

import enum
import operator
import os
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from rla_client.contract.errors import ArgumentError

if TYPE_CHECKING:
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.proto.tensor_pb2 import TensorProto

PlainValue: TypeAlias = "bool | int | float | str | list[PlainValue] | None"
StandIn: TypeAlias = Callable[[Any, int], Any]
PlainParam: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"

MAX_DEPTH = 32  # of nested lists and dicts; deeper is shown as text (msgpack stops at 512)
MAX_INT_BITS = 8192  # decimal text of longer ones is refused by Python (4300 digits): shown as hex
MAX_PARAM_ITEMS = 65536  # of an array among the hyper-parameters; a larger one is shown as its repr

_WORD = 1 << 63
_EXACT = frozenset({float, bool, NoneType})
_NUMPY_NUMBERS = (
    "bool bool_ float16 float32 float64 int8 int16 int32 int64 longlong uint8 uint16 uint32 uint64 ulonglong"
)
_ITEM_NAMES = frozenset({("torch", "Tensor"), *(("numpy", name) for name in _NUMPY_NUMBERS.split())})
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ITEM_KINDS: set[type] = set()  # classes named above that were met: for them `item()` is the short way


def to_plain(value: object) -> PlainValue:
    r"""Turn one logged value into plain data, a copy of it as it is at the call.

    Scalars of numpy, torch, jax and tensorflow and arrays with one element become Python numbers
    (bool, int and float stay apart; NaN and infinities survive), larger arrays nested lists.
    Decimals and fractions become floats; complex numbers, dates, enums without a number or text of
    their own and anything else become text. Lone surrogates in text are written as `\udc80`.
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
        if (kind.__module__, kind.__name__) in _ITEM_NAMES and _count(value) == 1:
            _ITEM_KINDS.add(kind)
        return _plain(value, ())
    except Exception:  # noqa: BLE001 - foreign code (__str__, item, …) may raise anything
        return text_of(value)


def plain_hyper_param(value: object, stand_in: StandIn | None = None) -> PlainParam:
    """Turn hyper-parameters, nested in any way, into plain data that YAML and JSON can hold.

    Mappings, dataclasses, named tuples, attrs objects, Namespaces and OmegaConf become dicts with
    text keys (`key_names`), lists, tuples, deques and sets lists (sets sorted), numpy and torch values
    numbers or lists, paths text, enums their number or text if they are one and else their name,
    functions their name, other objects their repr without addresses, as runs are grouped by it. An object
    that contains itself is shown as `<cycle>`.

    Args:
        value: a parameter, or a mapping of them.
        stand_in: called with each value and how deep it lies; gives what is turned into plain data instead.
    """
    try:
        return _param(value, (), stand_in)
    except Exception:  # noqa: BLE001 - foreign code may raise anything; parameters are never fatal
        return text_of(value, repr)


def whole_number(value: object, name: str, least: int = 1) -> int:
    """The int that an argument is, which may be numpy's or torch's too.

    Raises:
        ArgumentError: it is none, or below `least`.
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
    """What `str` makes of anything, in text that UTF-8 can encode; never raises."""
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        return hex(value)
    try:
        return clean_text(show(value))
    except Exception:  # noqa: BLE001 - a user's __str__ or __repr__
        return f"<{clean_text(type(value).__name__)}: cannot be shown>"


def name_of(value: object, show: Callable[[Any], str] = str) -> str:
    """`text_of` with no address in memory: a function is `module.name`."""
    return text_of(value, lambda one: _without_address(one, show(one)))


def _without_address(value: object, text: str) -> str:
    bare = text if isinstance(value, str) else _ADDRESS.sub("", text)
    name = None if bare == text else getattr(value, "__qualname__", None)
    return full_name(value, name) if isinstance(name, str) else bare


def full_name(value: object, name: str) -> str:
    """`module.name` of a function, class or object."""
    module = getattr(value, "__module__", None)
    return f"{module if isinstance(module, str) else type(value).__module__}.{name}"


def key_names(keys: Iterable[object]) -> list[str]:
    """The texts that stand for the keys of a dict: names of enum members, else `name_of`; all different."""
    counts: dict[str, int] = {}
    for key in keys:
        stem = name = text_of(key.name) if isinstance(key, enum.Enum) else name_of(key)
        while name in counts:
            counts[stem] += 1
            name = f"{stem} #{counts[stem]}"
        counts[name] = 1
    return list(counts)


def _plain(value: object, path: tuple[int, ...]) -> PlainValue:  # noqa: PLR0911 - one line a kind
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
    return _number(value) if found is _NOT_AN_ARRAY else found  # type: ignore[return-value]


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
        return _plain(item, path)
    except Exception:  # noqa: BLE001 - one bad element must not turn the whole list into text
        return text_of(item)


_NOT_AN_ARRAY = object()


def _from_array(value: object, path: tuple[int, ...]) -> object:
    """Scalars and arrays of any library; `_NOT_AN_ARRAY` for anything else."""
    value = _on_host(value)
    if not callable(getattr(value, "item", None)) or not hasattr(value, "dtype"):
        return _NOT_AN_ARRAY
    array: Any = value
    kind = getattr(array.dtype, "kind", "")
    if kind in {"m", "M"}:  # item() of datetime64[ns] would be a bare count
        array = array.astype(str)
    if _count(array) != 1:
        return _list(array.tolist(), path)
    if hasattr(array, "mask"):  # item() of a masked value is what lies below the mask
        return _plain(array.ravel().tolist()[0], (*path, id(value)))
    item = array.item()
    if kind and kind in "fc" and not isinstance(item, float | complex):
        return float(item) if kind == "f" else str(item)  # longdouble gives itself
    return _plain(item, (*path, id(value))) if len(path) < MAX_DEPTH else text_of(item)


def _on_host(value: object) -> object:
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


def _count(array: Any) -> int:  # noqa: ANN401 - an array of any library
    numel = getattr(array, "numel", None)
    return int(numel()) if callable(numel) else int(array.size)


def _number(value: object) -> PlainValue:
    """Whatever says that it is a number (Decimal, Fraction, …); else text."""
    try:
        if hasattr(value, "__index__"):
            return _int(operator.index(value))
        if hasattr(value, "__float__"):
            return float(value)
    except (TypeError, ValueError, ArithmeticError):
        pass  # a Decimal sNaN, a fraction beyond any float
    return text_of(value)


def _param(value: object, path: tuple[int, ...], stand_in: StandIn | None) -> PlainParam:  # noqa: PLR0911 - one line a kind
    below = (*path, id(value))
    if stand_in is not None and id(value) not in path:
        value = stand_in(value, len(path))
    if isinstance(value, enum.Enum) and not isinstance(value, int | float | str):
        return text_of(value.name)
    if value is None or isinstance(value, int | float | str):
        return _plain(value, ())
    if isinstance(value, os.PathLike):
        return text_of(os.fspath(value))
    if isinstance(value, type) or len(path) >= MAX_DEPTH:
        return text_of(value, repr)
    if below[-1] in path:
        return "<cycle>"
    pairs = _pairs_of(value)
    if pairs is not None:
        names = key_names(key for key, _item in pairs)
        items = (_param_item(item, below, stand_in) for _key, item in pairs)
        return dict(zip(names, items, strict=True))
    if isinstance(value, AbstractSet):
        plain = [(item, _param_item(item, below, stand_in)) for item in value]
        return [shown for _item, shown in sorted(plain, key=_sort_key)]
    if isinstance(value, list | tuple) or type(value).__name__ in {"deque", "ListConfig"}:
        return [_param_item(item, below, stand_in) for item in value]  # type: ignore[attr-defined]
    return _param_leaf(value)


def _param_item(value: object, path: tuple[int, ...], stand_in: StandIn | None) -> PlainParam:
    try:
        return _param(value, path, stand_in)
    except Exception:  # noqa: BLE001 - one bad parameter must not turn the others into text
        return text_of(value, repr)


def _param_leaf(value: object) -> PlainParam:
    if getattr(value, "size", 0) is not None and hasattr(value, "dtype"):
        array = _on_host(value)
        if hasattr(array, "item") and _count(array) > MAX_PARAM_ITEMS:
            return text_of(value, repr)
        return _plain(value, ())
    if hasattr(value, "__index__") or (hasattr(value, "__float__") and hasattr(value, "__add__")):
        return _number(value)
    return name_of(value, repr)


def _sort_key(pair: tuple[object, PlainParam]) -> tuple[str, float, str]:
    item, shown = pair
    if isinstance(item, int | float):
        return type(item).__name__, float(item), ""
    return type(item).__name__, 0.0, text_of(shown, repr)


def _pairs_of(value: object) -> list[tuple[object, object]] | None:  # noqa: PLR0911 - one line a kind
    """Name and value of whatever holds parameters by name; None for anything else."""
    config = _omegaconf(value)
    if config is not None:
        return list(config.items()) if isinstance(config, dict) else None
    if isinstance(value, Mapping):
        return list(value.items())
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name, None)) for field in fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    attrs = getattr(type(value), "__attrs_attrs__", None)
    if attrs is not None:
        return [(field.name, getattr(value, field.name, None)) for field in attrs]
    if isinstance(value, SimpleNamespace) or _is_namespace(type(value)):
        return list(vars(value).items())
    return None


def _is_namespace(kind: type) -> bool:
    return any(base.__module__ == "argparse" and base.__name__ == "Namespace" for base in kind.__mro__)


def _omegaconf(value: object) -> object:
    """Content of an OmegaConf object, see `resolved`; None for anything else."""
    module = sys.modules.get("omegaconf")
    return resolved(value) if module is not None and module.OmegaConf.is_config(value) else None


def resolved(config: Any) -> Any:  # noqa: ANN401 - an OmegaConf, of a package that need not be installed
    """The content of an OmegaConf as plain containers; what cannot be resolved stays as its text says it."""
    conf = sys.modules["omegaconf"].OmegaConf
    try:
        return conf.to_container(config, resolve=True)
    except Exception:  # noqa: BLE001 - a missing key, or whatever a user's resolver raises
        found = conf.to_container(config, resolve=False)
    for key in (
        list(found) if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ()
    ):
        with suppress(Exception):  # of this one, which keeps its text
            value = config[key]
            found[key] = resolved(value) if conf.is_config(value) else value
    return found


def summary_scalars(summary: Summary, plugins: dict[str, str] | None = None) -> Iterator[tuple[str, float]]:
    """Tag and number of each scalar of a Summary, as `simple_value` or as TF 2's tensors.

    Args:
        summary: a Summary message.
        plugins: tag to plugin name, kept between calls: metadata may come with a tag's first value only.
    """
    known = {} if plugins is None else plugins
    for value in summary.value:
        kind = value.WhichOneof("value")
        plugin = known.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
        if kind == "simple_value":
            yield value.tag, value.simple_value
        elif kind == "tensor" and plugin == "scalars":
            number = _tensor_number(value.tensor)
            if number is not None:
                yield value.tag, number


def _tensor_number(tensor: TensorProto) -> float | None:
    """The number in a tensor of one element; None for what is not a scalar."""
    formats = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}  # DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64
    if tensor.tensor_content:
        form = formats.get(tensor.dtype)
        if form is None or len(tensor.tensor_content) != struct.calcsize(form):
            return None
        return float(struct.unpack(form, tensor.tensor_content)[0])
    for values in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(values) == 1:
            return float(values[0])
    return None
