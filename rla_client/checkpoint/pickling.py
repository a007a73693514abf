"""From a user's content to a skeleton pickle and a list of storages, fast and without copying.

The skeleton is what `torch.save` would write as `data.pkl`: the same pickle protocol (2, the one that
`torch.load(weights_only=True)` reads in full), the same rebuild functions, storages by persistent id. Plain
strided tensors and parameters are reduced here, because torch's own reducers take twice as long; every other
tensor (sparse, quantized, conjugated, subclass, new dtypes) and every other object is reduced by its own
`__reduce_ex__`. The bytes of arrays whose dtype torch knows travel as a storage.

Arrays and scalars of numpy in lists, tuples and as values of dicts are written as tensors with an attribute
(NUMPY_MARK) that says what they were: `torch.load(weights_only=True)` reads them without this package, and
`as_numpy` makes them again what they were. Scalars of one dtype share storages of POOL_ITEMS. Within other
objects, where nobody could find them again, arrays become `numpy.asarray(<tensor>)`; as keys and in sets, and
where torch has no such dtype, they stay as numpy pickles them.

Nothing here keeps or copies tensor bytes; `Captured.storages` holds references, so that the bytes stay
where they are, and no address is met twice, until they have been copied. Storages are told apart by
address and length: what shared one before shares one after loading.

`emit` is the fast way to a skeleton: it writes by hand what the C pickler would mean, three times as fast
for thousands of tensors, as the pickler calls back into Python some fifteen times per tensor. It knows
exact types only: None, bool, int, float, str, dict, OrderedDict, list, tuple, set, frozenset, plain tensors,
parameters, arrays, and leaves (which hold no other objects and are pickled by themselves). Anything else
raises `Unusual`, and `capture` takes the general way.

Memo numbers: 0…199 belong to leaves (each needs a handful and overwrites its predecessors'), 200…255 to
the names that every tensor needs, the rest to objects, so that what was one object before is one after
loading. Only opcodes that `torch.load(weights_only=True)` reads are used; POP is not among them, so a name
is defined where it is first needed.
"""

from __future__ import annotations

import copyreg
import gc
import importlib
import io
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rla_client.contract.errors import ArgumentError, extra

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

PICKLE_PROTOCOL = 2
_REBUILD, _STORAGE, _CPU, _ORDERED, _PARAMETER, _FROM_TYPE, _TENSOR, _REBUILD_NEW = range(200, 208)
_FIRST_KIND = 210  # storage classes, in the order they are met; there are a dozen
_FIRST_ARRAY_KIND = 230  # the same of arrays: a tensor's come with further names
NUMPY_MARK = "_rla_numpy"  # attribute of a tensor that was an array or a scalar of numpy
ARRAY, SCALAR = "array", "scalar"
POOL_ITEMS = 256  # scalars of one storage
_NEW_KIND = 229  # the number of such storages' class
_NEW_KINDS = ("uint16", "uint32", "uint64")  # dtypes of torch without a storage class
_FIRST_OBJECT = 256
_NO_HOOKS = b"h%c)RtR" % _ORDERED
_MARKED_AGAIN = b"h%c(h%ch%c((h%ch%c%bh%c%btQ%b\x89h%c)R%b"  # all names defined before
_TRUE, _FALSE = b"\x88", b"\x89"
_get_object = struct.Struct("<cI").pack
_INT32 = 1 << 31
_LONG_TEXT = 64  # shorter text is repeated rather than remembered
_LEAF_TYPES = (bytes, bytearray, complex)
# dtypes whose storages have had a class of their own since the first torch; newer ones go by bytes
_REAL_STORAGE_CLASSES = {
    "float64": "DoubleStorage", "float32": "FloatStorage", "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage", "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage",
    "int8": "CharStorage", "uint8": "ByteStorage", "bool": "BoolStorage",
}  # fmt: skip
_QUANTIZED_STORAGE_CLASSES = {
    "quint8": "QUInt8Storage", "qint8": "QInt8Storage", "qint32": "QInt32Storage",
    "quint4x2": "QUInt4x2Storage", "quint2x4": "QUInt2x4Storage",
}  # fmt: skip
_COMPLEX_STORAGE_CLASSES = {"complex64": "ComplexFloatStorage", "complex128": "ComplexDoubleStorage"}
STORAGE_CLASSES = _REAL_STORAGE_CLASSES | _COMPLEX_STORAGE_CLASSES
NUMPY_STORAGE_CLASSES = {name: kind for name, kind in STORAGE_CLASSES.items() if name != "bfloat16"}
# address (0 on a device), bytes, and what keeps them alive; on a device that is the storage itself
Storage = tuple[int, int, Any]
_Thing = TypeVar("_Thing")


class Unusual(Exception):  # noqa: N818 - a turn in the road, not an error
    """The content holds something that only the general pickler can write."""


class _Reference(NamedTuple):
    """Stands for a storage inside reduce tuples; the pickler writes it as a persistent id."""

    identity: tuple[str, Any, str, str, int]


def torch_module() -> ModuleType:
    """The torch package, imported by whoever needs it first.

    Raises:
        MissingExtraError: it is not installed.
    """
    with extra("torch", "a checkpoint"):
        return importlib.import_module("torch")  # 1 s, and only who saves tensors has it


class TorchNames:
    """What this torch calls the things that a `.pt` file is made of, looked up once."""

    def __init__(self) -> None:
        torch = torch_module()
        self.tensor = torch.Tensor
        self.parameter = torch.nn.Parameter
        self.strided = torch.strided
        self.storage_classes = _by_dtype(torch, STORAGE_CLASSES)
        self.typed_classes = _by_dtype(torch, STORAGE_CLASSES | _QUANTIZED_STORAGE_CLASSES)
        self.complex_dtypes = frozenset(getattr(torch, dtype) for dtype in _COMPLEX_STORAGE_CLASSES)
        self.rebuild_tensor = torch._utils._rebuild_tensor_v2  # noqa: SLF001 - the name is in every .pt file
        self.rebuild_parameter = torch._utils._rebuild_parameter  # noqa: SLF001
        self.typed_storage = torch.storage.TypedStorage
        self.is_storage = torch.is_storage
        self.location_tag = torch.serialization.location_tag
        self.byte_storage = torch.serialization.normalize_storage_type(torch.UntypedStorage)
        self.byte_kinds = frozenset((self.byte_storage, torch.ByteStorage))  # two names of one type
        self.leaf_types: tuple[type, ...] = (torch.Size, torch.dtype, torch.device)
        self.leaf_exceptions: tuple[type, ...] = ()
        self.array: Any = None
        self.scalar: Any = None
        self.array_kinds: dict[str, Any] = {}  # by numpy's spelling of a dtype in native byte order
        self.new_array_kinds: dict[str, str] = {}  # the same of those without a storage class: torch's names
        with suppress(ImportError):  # torch works without
            import numpy as np  # noqa: PLC0415

            self.array, self.as_array = np.ndarray, np.asarray
            for dtype, name in NUMPY_STORAGE_CLASSES.items():
                self.array_kinds[np.dtype(dtype).str] = getattr(torch, name)
            for dtype in _NEW_KINDS:
                if hasattr(torch, dtype):
                    self.new_array_kinds[np.dtype(dtype).str] = dtype
            self.scalar, self.zeros = np.generic, np.zeros
            self.leaf_exceptions = (np.object_, np.void)


@cache
def torch_names() -> TorchNames:
    """The names of the torch that is installed."""
    return TorchNames()


def _by_dtype(torch: ModuleType, names: dict[str, str]) -> dict[Any, Any]:
    return {getattr(torch, dtype): getattr(torch, name) for dtype, name in names.items()}


class Table:
    """The storages met so far, in the order of their keys. Shared by both picklers.

    Attributes:
        storages: what to copy.
        numbers: key of the storage at (address, bytes).
        kinds: class of torch under which the storage of a key was met first.
    """

    __slots__ = ("kinds", "names", "numbers", "storages")

    def __init__(self) -> None:
        self.names = torch_names()
        self.storages: list[Storage] = []
        self.numbers: dict[tuple[int, int], int] = {}
        self.kinds: list[Any] = []

    def refer(self, storage: torch.UntypedStorage, kind: type, itemsize: int) -> _Reference:
        """Note a storage and return what stands for it.

        Raises:
            ArgumentError: the same bytes are saved as two types, which `.pt` files cannot say.
        """
        if storage.device.type == "meta":
            raise ArgumentError("a storage on the meta device has no bytes to save; save the tensor")
        on_cpu = storage.device.type == "cpu"
        nbytes = storage.nbytes()
        number = self.note(storage.data_ptr(), nbytes, kind, storage, on_cpu=on_cpu)
        location = "cpu" if on_cpu else self.names.location_tag(storage)
        return _Reference(("storage", kind, str(number), location, nbytes // itemsize))

    def note(self, address: int, nbytes: int, kind: type, owner: object, *, on_cpu: bool = True) -> int:
        """Key of the storage at an address; empty ones share nothing.

        Raises:
            ArgumentError: as for `refer`.
        """
        number = self.numbers.get((address, nbytes)) if nbytes else None
        if number is None:
            number = self.numbers[address, nbytes] = len(self.storages)
            self.storages.append((address if on_cpu else 0, nbytes, owner))
            self.kinds.append(kind)
        elif self.kinds[number] is not kind and not {self.kinds[number], kind} <= self.names.byte_kinds:
            raise ArgumentError(
                "two tensors to save see the same memory as different types, which a .pt file cannot hold; "
                "save a .clone() of one of them"
            )
        return number

    def note_array(
        self, array: NDArray[Any]
    ) -> tuple[type, int, int, tuple[int, ...], tuple[int, ...]] | None:
        """Note an array's bytes as a storage of their own; None when torch has no such dtype.

        Returns:
            The storage's kind, key and number of elements; shape and strides of the array, in elements.
        """
        kind = self.names.array_kinds.get(array.dtype.str)
        if kind is None or array.dtype.metadata:
            return None
        return self.note_bytes(array, kind)

    def note_bytes(
        self, array: NDArray[Any], kind: type, item_bytes: int = 0
    ) -> tuple[type, int, int, tuple[int, ...], tuple[int, ...]]:
        """The same as a storage of a given kind, whose items have so many bytes (0: as the array's)."""
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            array = array.copy(order="C")
        self.storages.append((array.ctypes.data if array.nbytes else 0, array.nbytes, array))
        self.kinds.append(kind)
        strides = tuple(stride // array.itemsize for stride in array.strides)
        count = array.nbytes // (item_bytes or array.itemsize)
        return kind, len(self.storages) - 1, count, tuple(array.shape), strides


@dataclass(frozen=True, slots=True)
class Captured:
    """A skeleton and the storages it names, in the order of their keys."""

    skeleton: bytes
    storages: list[Storage]

    @property
    def on_device(self) -> bool:
        """True when some bytes are not in this process's memory."""
        return any(address == 0 and nbytes for address, nbytes, _ in self.storages)

    @property
    def sizes(self) -> list[int]:
        """Bytes of each storage."""
        return [nbytes for _, nbytes, _ in self.storages]


class _ArrayBytes:
    """Stands for the tensor over an array's bytes; pickled as `_rebuild_tensor_v2(...)`."""

    def __init__(self, rebuild: Any, arguments: tuple[Any, ...]) -> None:  # noqa: ANN401 - torch's function
        self._reduced = rebuild, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


class _Pickler(pickle.Pickler):
    """The C pickler with our reducers for tensors and arrays: takes anything that pickles."""

    def __init__(self, file: io.BytesIO, table: Table) -> None:
        super().__init__(file, protocol=PICKLE_PROTOCOL)
        self._table = table
        self._alive: list[Any] = []  # what reducers made: ids and addresses must not be used twice
        names = table.names
        self._typed, self._is_storage = names.typed_storage, names.is_storage
        self.dispatch_table = copyreg.dispatch_table.copy()
        self.dispatch_table[names.tensor] = self._reduce_tensor
        self.dispatch_table[names.parameter] = self._reduce_parameter
        if names.array is not None:
            self.dispatch_table[names.array] = self._reduce_array

    def persistent_id(self, obj: object) -> object:
        if type(obj) is _Reference:
            return obj.identity
        if isinstance(obj, self._typed):
            kind = self._table.names.typed_classes.get(obj.dtype)
            if kind is None:
                raise ArgumentError(f"a TypedStorage of {obj.dtype} cannot be saved; save the tensor")
            untyped = obj._untyped_storage  # noqa: SLF001 - `untyped()` warns that users should not
            return self._table.refer(untyped, kind, obj.dtype.itemsize).identity
        if self._is_storage(obj):
            return self._table.refer(obj, self._table.names.byte_storage, 1).identity
        return None

    def _reduce_tensor(self, tensor: torch.Tensor) -> str | tuple[Any, ...]:
        names = self._table.names
        kind = names.storage_classes.get(tensor.dtype)
        if (
            kind is None
            or tensor.layout is not names.strided
            or not (tensor.is_cpu or tensor.is_cuda)
            or tensor.is_neg()
            or tensor.__dict__
            or (tensor.dtype in names.complex_dtypes and tensor.is_conj())
            or tensor.is_nested
        ):  # more than a strided view of one storage
            reduced: str | tuple[Any, ...] = tensor.__reduce_ex__(PICKLE_PROTOCOL)
            return self._keep(reduced)
        reference = self._table.refer(tensor.untyped_storage(), kind, tensor.itemsize)
        view = (reference, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        return names.rebuild_tensor, (*view, tensor.requires_grad, OrderedDict())

    def _reduce_parameter(self, parameter: torch.nn.Parameter) -> str | tuple[Any, ...]:
        if parameter.__dict__:
            reduced: str | tuple[Any, ...] = parameter.__reduce_ex__(PICKLE_PROTOCOL)
            return self._keep(reduced)
        arguments: tuple[Any, ...] = (parameter.data, parameter.requires_grad, OrderedDict())
        return self._keep((self._table.names.rebuild_parameter, arguments))

    def _reduce_array(self, array: NDArray[Any]) -> str | tuple[Any, ...]:
        noted = self._table.note_array(array)
        if noted is None:
            return self._keep(array.__reduce_ex__(PICKLE_PROTOCOL))
        kind, key, count, shape, strides = noted
        reference = _Reference(("storage", kind, str(key), "cpu", count))
        arguments: tuple[Any, ...] = (reference, 0, shape, strides, False, OrderedDict())
        names = self._table.names
        return names.as_array, (self._keep(_ArrayBytes(names.rebuild_tensor, arguments)),)

    def _keep(self, thing: _Thing) -> _Thing:
        self._alive.append(thing)
        return thing


def capture(content: object) -> Captured:
    """Take `content` apart. The bytes stay where they are; copy them before anything changes them.

    Raises:
        ArgumentError: something in it cannot be pickled.
    """
    collecting = gc.isenabled()
    gc.disable()  # thousands of tuples would set it off several times, for nothing
    try:
        with suppress(Unusual):
            table = Table()
            return Captured(emit(content, table), table.storages)
        return capture_generally(content)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        if _is_anothers(error):
            raise
        raise ArgumentError(
            f"this content cannot be saved: {error}. Save plain data, tensors, state_dict()s, or objects "
            "whose class pickle can find by name"
        ) from error
    finally:
        if collecting:
            gc.enable()


def _is_anothers(error: Exception) -> bool:
    """True for a RuntimeError that neither Python nor torch raises for a content: a signal handler's, say."""
    known = (RuntimeError, RecursionError, NotImplementedError)
    return isinstance(error, RuntimeError) and type(error) not in known


def capture_generally(content: object) -> Captured:
    """The way that takes anything that pickles. Errors are pickle's own."""
    table = Table()
    file = io.BytesIO()
    _Pickler(file, table).dump(content)
    return Captured(file.getvalue(), table.storages)


def emit(content: object, table: Table) -> bytes:
    """Write `content` as a pickle of protocol 2; its storages are added to `table`.

    Raises:
        Unusual: the general pickler has to do it, with a fresh table.
    """
    emitter = _Emitter(table)
    try:
        emitter.write(content)
    except (RuntimeError, struct.error) as error:
        if _is_anothers(error):
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
            int: lambda value: self.out.append(whole(value)),
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
            self.out.append(text(data))
        elif not self._known(value):
            self.out.append(text(data))
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
                out.append(key_text(key))
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
        return self._name(_ORDERED, b"ccollections\nOrderedDict\n") + b")R"

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
        shape = geometry(tensor.storage_offset(), tensor.shape, tensor.stride())
        count = nbytes // tensor.itemsize
        named = self._kinds.get(kind)
        if named is None:
            self._rebuild(kind, key, count)
            self.out += (shape, requires_grad, self._empty_ordered(), b"tR")
        else:
            self.out += (storage_reference(named, key, count), shape, requires_grad, _NO_HOOKS)

    def _rebuild(self, kind: type, key: int, count: int) -> None:
        """`_rebuild_tensor_v2((` persistent id; the names are defined by whoever comes first."""
        number = self._kinds.get(kind)
        if number is not None:
            self.out.append(storage_reference(number, key, count))
            return
        number = self._kinds[kind] = _FIRST_KIND + len(self._kinds)
        self.out += (
            self._name(_REBUILD, b"ctorch._utils\n_rebuild_tensor_v2\n") + b"((",
            self._name(_STORAGE, text(b"storage")),
            self._name(number, f"c{kind.__module__}\n{kind.__name__}\n".encode()),
            text(b"%d" % key),
            self._name(_CPU, text(b"cpu")),
            whole(count) + b"tQ",
        )

    def _parameter(self, parameter: torch.nn.Parameter) -> None:
        if self._known(parameter):
            return
        self.out.append(self._name(_PARAMETER, b"ctorch._utils\n_rebuild_parameter\n") + b"(")
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
                    _FROM_TYPE, _REBUILD, _TENSOR, _STORAGE, number, text(b"%d" % key), _CPU, whole(count),
                    geometry(offset, shape, strides), _ORDERED, _MARKS[mark],
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
            self._name(_FROM_TYPE, b"ctorch._tensor\n_rebuild_from_type_v2\n") + b"(",
            self._name(_REBUILD_NEW if new else _REBUILD, rebuild),
            self._name(_TENSOR, b"ctorch\nTensor\n") + b"((",
            self._name(_STORAGE, text(b"storage")),
            self._name(number, f"c{kind.__module__}\n{kind.__name__}\n".encode()),
            text(b"%d" % key),
            self._name(_CPU, text(b"cpu")),
            whole(count) + b"tQ",
            geometry(offset, shape, strides) + _FALSE + self._empty_ordered(),
            f"ctorch\n{new}\n".encode() if new else b"",
            _MARKS[mark],
        )


def as_numpy(content: Any) -> Any:  # noqa: ANN401
    """Loaded content with what was numpy's before as numpy's again, in lists, tuples and dicts."""
    return _Unmarking().visit(content)


class _Unmarking:
    """One pass over a content. Dicts and lists are changed in place: what was one object stays one."""

    def __init__(self) -> None:
        self._tensor = torch_names().tensor
        self._seen: dict[int, tuple[Any, Any]] = {}  # by id: what was there, which so stays alive; and is now

    def visit(self, value: Any) -> Any:  # noqa: ANN401
        kind = type(value)
        if kind not in {self._tensor, dict, OrderedDict, list, tuple}:
            return value
        known = self._seen.get(id(value))
        if known is not None:
            return known[1]
        if kind is self._tensor:
            found = value
            if NUMPY_MARK in value.__dict__:
                found = value.cpu().numpy()
                found = found[()] if value.__dict__[NUMPY_MARK] == SCALAR else found
        elif kind is tuple:
            entries = [self.visit(entry) for entry in value]
            same = all(new is old for new, old in zip(entries, value, strict=True))
            found = value if same else tuple(entries)
        else:
            self._seen[id(value)] = value, value
            self._visit_entries(value)
            found = value
        self._seen[id(value)] = value, found
        return found

    def _visit_entries(self, value: Any) -> None:  # noqa: ANN401
        entries = list(enumerate(value) if isinstance(value, list) else value.items())
        for place, entry in entries:
            new = self.visit(entry)
            if new is not entry:
                value[place] = new
        if isinstance(value, OrderedDict) and vars(value):
            self._visit_entries(vars(value))


def text(data: bytes) -> bytes:
    """BINUNICODE of UTF-8 bytes."""
    return struct.pack("<cI", b"X", len(data)) + data


_MARKS = {mark: b"t}" + text(NUMPY_MARK.encode()) + text(mark.encode()) + b"stR" for mark in (ARRAY, SCALAR)}


@lru_cache(maxsize=1 << 15)
def key_text(key: str) -> bytes:
    """BINUNICODE of a dict key; the same ones come with every checkpoint."""
    return text(key.encode("utf-8", "surrogatepass"))


def whole(value: int) -> bytes:
    """The shortest opcode for an integer."""
    if 0 <= value < 256:  # noqa: PLR2004 - one byte
        return b"K%c" % value
    if -_INT32 <= value < _INT32:
        return struct.pack("<ci", b"J", value)
    data = pickle.encode_long(value)
    if len(data) > 255:  # noqa: PLR2004 - LONG4, which weights_only does not read
        raise Unusual("integer")
    return b"\x8a%c" % len(data) + data


@lru_cache(maxsize=1 << 15)
def geometry(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """Offset, shape and strides of a tensor; models repeat a few of them."""
    return b"%b(%bt(%bt" % (whole(offset), b"".join(map(whole, shape)), b"".join(map(whole, strides)))


@lru_cache(maxsize=1 << 15)
def storage_reference(kind: int, key: int, count: int) -> bytes:
    """`_rebuild_tensor_v2((` persistent id of a storage, all names defined before."""
    return b"h%c((h%ch%c%bh%c%btQ" % (_REBUILD, _STORAGE, kind, text(b"%d" % key), _CPU, whole(count))
