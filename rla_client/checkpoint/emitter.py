"""A skeleton pickle, written by hand.

It means what the C pickler would, three times as fast for thousands of tensors, as the pickler calls back
into Python some fifteen times per tensor. It knows exact types only: None, bool, int, float, str, dict,
OrderedDict, list, tuple, set, frozenset, plain tensors, parameters, arrays, and leaves (which hold no other
objects and are pickled by themselves). Anything else raises `Unusual`.

Memo numbers: 0…199 belong to leaves (each needs a handful and overwrites its predecessors'), 200…255 to the
names that every tensor needs, the rest to objects, so that what was one object before is one after loading.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.numpy_marks import ARRAY, NUMPY_MARK, SCALAR
from rla_client.checkpoint.opcodes import (
    CPU,
    FROM_TYPE,
    ORDERED,
    PARAMETER,
    PICKLE_PROTOCOL,
    REBUILD,
    REBUILD_NEW,
    STORAGE,
    TENSOR,
    Unusual,
    geometry_ops,
    int_op,
    key_op,
    storage_ops,
    text_op,
)
from rla_client.checkpoint.storage_table import Table, is_foreign_error

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


_FIRST_KIND = 210  # storage classes, in the order they are met; there are a dozen
_FIRST_ARRAY_KIND = 230  # the same of arrays: a tensor's come with further names
POOL_ITEMS = 256  # scalars of one storage
_NEW_KIND = 229  # the number of such storages' class
_FIRST_OBJECT = 256
_NO_HOOKS = b"h%c)RtR" % ORDERED
_MARKED_AGAIN = b"h%c(h%ch%c((h%ch%c%bh%c%btQ%b\x89h%c)R%b"  # all names defined before
_TRUE, _FALSE = b"\x88", b"\x89"
_get_object = struct.Struct("<cI").pack
_LONG_TEXT = 64  # shorter text is repeated rather than remembered
_LEAF_TYPES = (bytes, bytearray, complex)


def emit(content: object, table: Table) -> bytes:
    """Write `content` as a pickle of protocol 2; its storages are added to `table`.

    Raises:
        Unusual: the general pickler has to do it, with a fresh table.
    """
    emitter = _Emitter(table)
    try:
        emitter.write(content)
    except (RuntimeError, struct.error) as error:
        if is_foreign_error(error):
            raise
        raise Unusual(str(error)) from error
    emitter.out.append(b".")
    return b"".join(emitter.out)


class _Emitter:
    """One pickle in the making."""

    def __init__(self, table: Table) -> None:
        self.out = [b"\x80%c" % PICKLE_PROTOCOL]
        self._table = table
        names = self._names = table.names
        self._storage_classes, self._complex_dtypes = names.storage_classes, names.complex_dtypes
        self._strided = names.strided
        self._memo: dict[int, int] = {}
        self._next = _FIRST_OBJECT
        self._defined: dict[int, bytes] = {}
        self._kinds: dict[Any, int] = {}
        self._array_kinds: dict[Any, int] = {}
        self._pools: dict[Any, tuple[Any, int, int]] = {}  # by kind: array, key of its storage, items used
        self._in_key = 0  # depth of keys and sets around what is written
        self._writers: dict[type, Callable[[Any], None]] = {
            type(None): lambda _: self.out.append(b"N"),
            bool: lambda value: self.out.append(_TRUE if value else _FALSE),
            int: lambda value: self.out.append(int_op(value)),
            float: lambda value: self.out.append(struct.pack(">cd", b"G", value)),
            str: self._text,
            dict: self._dict,
            OrderedDict: self._ordered,
            list: self._list,
            tuple: self._tuple,
            set: lambda value: self._set(value, b"c__builtin__\nset\n"),
            frozenset: lambda value: self._set(value, b"c__builtin__\nfrozenset\n"),
            names.tensor: self._tensor,
            names.parameter: self._parameter,
        }
        if names.array is not None:
            self._writers[names.array] = self._array
        self._leaves = _LEAF_TYPES + names.leaf_types

    def write(self, value: object) -> None:
        """Append the opcodes that build `value`."""
        kind = type(value)
        writer = self._writers.get(kind)
        if writer is None:
            names = self._names
            if kind in names.leaf_exceptions:
                raise Unusual(kind.__name__)
            if names.scalar is not None and issubclass(kind, names.scalar):
                writer = self._scalar
            elif issubclass(kind, self._leaves):
                writer = self._leaf
            else:
                raise Unusual(kind.__name__)
            self._writers[kind] = writer
        writer(value)

    def _known(self, value: object) -> bool:
        """Write a reference if this object was written before."""
        number = self._memo.get(id(value))
        if number is None:
            return False
        self.out.append(_get_object(b"j", number))
        return True

    def _remember(self, value: object) -> None:
        number = self._memo[id(value)] = self._next
        self._next = number + 1
        self.out.append(_get_object(b"r", number))

    def _name(self, number: int, opcodes: bytes) -> bytes:
        """Opcodes for a name: its definition the first time, a reference from then on."""
        found = self._defined.get(number)
        if found is None:
            self._defined[number] = b"h%c" % number
            return opcodes + b"q%c" % number
        return found

    def _text(self, value: str) -> None:
        data = value.encode("utf-8", "surrogatepass")
        if len(data) <= _LONG_TEXT:
            self.out.append(text_op(data))
        elif not self._known(value):
            self.out.append(text_op(data))
            self._remember(value)

    def _leaf(self, value: object) -> None:
        if self._known(value):
            return
        self.out.append(pickle.dumps(value, 2)[2:-1])
        self._remember(value)

    def _dict(self, value: dict[Any, Any]) -> None:
        if self._known(value):
            return
        self.out.append(b"}")
        self._remember(value)
        self._items(value)

    def _items(self, value: dict[Any, Any]) -> None:
        if not value:
            return
        out, write = self.out, self.write
        out.append(b"(")
        for key, item in value.items():
            if type(key) is str:
                out.append(key_op(key))
            else:
                self._in_key += 1
                write(key)
                self._in_key -= 1
            write(item)
        out.append(b"u")

    def _ordered(self, value: OrderedDict[Any, Any]) -> None:
        if self._known(value):
            return
        self.out.append(self._empty_ordered())
        self._remember(value)
        self._items(value)
        state = vars(value)
        if state:
            self._dict(state)
            self.out.append(b"b")

    def _empty_ordered(self) -> bytes:
        return self._name(ORDERED, b"ccollections\nOrderedDict\n") + b")R"

    def _list(self, value: list[Any]) -> None:
        if self._known(value):
            return
        self.out.append(b"]")
        self._remember(value)
        if value:
            self.out.append(b"(")
            for item in value:
                self.write(item)
            self.out.append(b"e")

    def _tuple(self, value: tuple[Any, ...]) -> None:
        if not value:
            self.out.append(b")")
            return
        if not self._in_key and self._known(value):
            return
        self.out.append(b"(")
        for item in value:
            self.write(item)
        self.out.append(b"t")
        if self._in_key:
            return  # numpy's scalars in it are written in another way than where it is a value
        if id(value) in self._memo:
            raise Unusual("a tuple that holds itself")
        self._remember(value)

    def _set(self, value: set[Any] | frozenset[Any], name: bytes) -> None:
        if not self._in_key and self._known(value):
            return
        self.out.append(name + b"](")
        self._in_key += 1
        for item in value:
            self.write(item)
        self._in_key -= 1
        self.out.append(b"e\x85R")
        if not self._in_key:
            self._remember(value)

    def _tensor(self, tensor: torch.Tensor) -> None:
        number = self._memo.get(id(tensor))
        if number is not None:
            self.out.append(_get_object(b"j", number))
            return
        self._tensor_body(tensor, _TRUE if tensor.requires_grad else _FALSE)
        number = self._memo[id(tensor)] = self._next
        self._next = number + 1
        self.out.append(_get_object(b"r", number))

    def _tensor_body(self, tensor: torch.Tensor, requires_grad: bytes) -> None:
        """The hot part: some three microseconds, of which torch's own calls are a third."""
        dtype = tensor.dtype
        kind = self._storage_classes.get(dtype)
        if (
            kind is None
            or not tensor.is_cpu
            or tensor.layout is not self._strided
            or tensor.is_neg()
            or tensor.__dict__
            or (dtype in self._complex_dtypes and tensor.is_conj())
        ):
            raise Unusual("tensor")
        storage = tensor.untyped_storage()
        nbytes = storage.nbytes()
        key = self._table.note(storage.data_ptr(), nbytes, kind, tensor)
        shape = geometry_ops(tensor.storage_offset(), tensor.shape, tensor.stride())
        count = nbytes // tensor.itemsize
        named = self._kinds.get(kind)
        if named is None:
            self._rebuild(kind, key, count)
            self.out += (shape, requires_grad, self._empty_ordered(), b"tR")
        else:
            self.out += (storage_ops(named, key, count), shape, requires_grad, _NO_HOOKS)

    def _rebuild(self, kind: type, key: int, count: int) -> None:
        """`_rebuild_tensor_v2((` persistent id; the names are defined by whoever comes first."""
        number = self._kinds.get(kind)
        if number is not None:
            self.out.append(storage_ops(number, key, count))
            return
        number = self._kinds[kind] = _FIRST_KIND + len(self._kinds)
        self.out += (
            self._name(REBUILD, b"ctorch._utils\n_rebuild_tensor_v2\n") + b"((",
            self._name(STORAGE, text_op(b"storage")),
            self._name(number, f"c{kind.__module__}\n{kind.__name__}\n".encode()),
            text_op(b"%d" % key),
            self._name(CPU, text_op(b"cpu")),
            int_op(count) + b"tQ",
        )

    def _parameter(self, parameter: torch.nn.Parameter) -> None:
        if self._known(parameter):
            return
        self.out.append(self._name(PARAMETER, b"ctorch._utils\n_rebuild_parameter\n") + b"(")
        self._tensor_body(parameter, _FALSE)
        self.out.append(_TRUE if parameter.requires_grad else _FALSE)
        self.out.append(self._empty_ordered() + b"tR")
        self._remember(parameter)

    def _array(self, array: NDArray[Any]) -> None:
        if self._known(array):
            return
        noted, dtype = self._table.note_array(array), array.dtype
        if noted is not None:
            self._marked(ARRAY, *noted)
        elif dtype.str in self._names.new_array_kinds and not dtype.metadata:
            kind, key, count, shape, strides = self._table.note_bytes(array, self._names.byte_storage, 1)
            name = self._names.new_array_kinds[dtype.str]
            self._marked(ARRAY, kind, key, count, shape, strides, new=name)
        elif dtype.hasobject or dtype.fields or dtype.metadata:
            raise Unusual("array")
        else:
            self.out.append(pickle.dumps(array, 2)[2:-1])
        self._remember(array)

    def _scalar(self, value: Any) -> None:  # noqa: ANN401 - a scalar of numpy
        kind = self._names.array_kinds.get(value.dtype.str)
        if kind is None or self._in_key:
            self._leaf(value)
            return
        pool, key, used = self._pools.get(kind, (None, 0, POOL_ITEMS))
        if used == POOL_ITEMS:
            pool, used = self._names.zeros(POOL_ITEMS, value.dtype), 0
            key = self._table.note_bytes(pool, kind)[1]
        pool[used] = value
        self._pools[kind] = pool, key, used + 1
        self._marked(SCALAR, kind, key, POOL_ITEMS, (), (), offset=used)

    def _marked(  # noqa: PLR0913 - of one storage
        self, mark: str, kind: type, key: int, count: int, shape: tuple[int, ...], strides: tuple[int, ...],
        *, offset: int = 0, new: str = "",
    ) -> None:  # fmt: skip
        """A tensor that says in an attribute what of numpy it was; `new`: a dtype without a storage class."""
        number = self._array_kinds.get(kind)
        if number is not None and not new:
            self.out.append(
                _MARKED_AGAIN % (
                    FROM_TYPE, REBUILD, TENSOR, STORAGE, number, text_op(b"%d" % key), CPU, int_op(count),
                    geometry_ops(offset, shape, strides), ORDERED, _MARKS[mark],
                )
            )  # fmt: skip
            return
        if new:
            number, rebuild = _NEW_KIND, b"ctorch._utils\n_rebuild_tensor_v3\n"
        else:
            number, rebuild = (
                _FIRST_ARRAY_KIND + len(self._array_kinds),
                b"ctorch._utils\n_rebuild_tensor_v2\n",
            )
            self._array_kinds[kind] = number
        self.out += (
            self._name(FROM_TYPE, b"ctorch._tensor\n_rebuild_from_type_v2\n") + b"(",
            self._name(REBUILD_NEW if new else REBUILD, rebuild),
            self._name(TENSOR, b"ctorch\nTensor\n") + b"((",
            self._name(STORAGE, text_op(b"storage")),
            self._name(number, f"c{kind.__module__}\n{kind.__name__}\n".encode()),
            text_op(b"%d" % key),
            self._name(CPU, text_op(b"cpu")),
            int_op(count) + b"tQ",
            geometry_ops(offset, shape, strides) + _FALSE + self._empty_ordered(),
            f"ctorch\n{new}\n".encode() if new else b"",
            _MARKS[mark],
        )


_MARKS = {
    mark: b"t}" + text_op(NUMPY_MARK.encode()) + text_op(mark.encode()) + b"stR" for mark in (ARRAY, SCALAR)
}
