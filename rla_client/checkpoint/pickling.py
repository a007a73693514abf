"""Capture of a checkpoint's content.

A content becomes a skeleton pickle and a list of storages. The skeleton equals `data.pkl` of `torch.save`:
the same pickle protocol (2, the one that `torch.load(weights_only=True)` reads in full), the same rebuild
functions, storages by persistent id. Plain strided tensors and parameters are reduced here, because torch's
own reducers take twice as long; every other tensor and object is reduced by its own `__reduce_ex__`.

Most contents are plain containers, tensors, arrays and numbers. `_PlainPickler` writes those, with few checks
of each object; numpy's arrays and scalars become marked tensors (numpy_marks.py). Where it meets anything
else, `_GeneralPickler` starts over: there the bytes of arrays whose dtype torch has become a storage.

Tensor bytes are neither kept nor copied here.
"""

from __future__ import annotations

import copyreg
import gc
import io
import pickle
import types
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from rla_client.checkpoint.numpy_marks import ARRAY, NUMPY_MARK, SCALAR
from rla_client.checkpoint.refused_shards import refuse_shard, sharded_types
from rla_client.checkpoint.storage_table import Captured, StorageReference, StorageTable, is_foreign_error
from rla_client.checkpoint.torch_names import torch_names
from rla_client.contract.errors import ArgumentError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


PICKLE_PROTOCOL = 2
POOL_ITEMS = 256  # scalars of one storage
_NATURAL = (bytearray, types.BuiltinFunctionType)  # the latter: how protocol 2 spells bytes
_CONTAINERS = (dict, list, tuple, set, frozenset)
_Thing = TypeVar("_Thing")


class Unusual(Exception):  # noqa: N818 - a turn in the road, not an error
    """The content has an object that only the general pickler can write."""


class _ReducedPart:
    """Placeholder of an object within a reduce value; pickled as the call that makes it."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:  # noqa: ANN401 - torch's function
        self._reduced = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


class _Kinds(dict[Any, Any]):
    """A dispatch table that requests the reducer of a kind at its first object."""

    def __init__(self, reducer_of: Callable[[type], Any]) -> None:
        super().__init__()
        self._reducer_of = reducer_of

    def __missing__(self, kind: type) -> Any:  # noqa: ANN401 - a reducer
        self[kind] = reducer = self._reducer_of(kind)
        return reducer


class _PlainPickler(pickle.Pickler):
    """The C pickler for contents of plain containers, tensors, arrays and numbers.

    `dump` raises Unusual where it meets anything else.
    """

    def __init__(self, file: io.BytesIO, table: StorageTable) -> None:
        super().__init__(file, protocol=PICKLE_PROTOCOL)
        self._table = table
        names = self._names = table.names
        self._storage_classes, self._complex_dtypes = names.storage_classes, names.complex_dtypes
        self._strided, self._rebuild_tensor = names.strided, names.rebuild_tensor
        self._pools: dict[Any, tuple[Any, StorageReference, int]] = {}  # by kind: array, storage, items used
        self.dispatch_table = self._reducers()
        self.dispatch_table[names.tensor] = self._reduce_tensor
        self.dispatch_table[names.parameter] = self._reduce_parameter
        if names.array is not None:
            self.dispatch_table[names.array] = self._reduce_array

    def persistent_id(self, obj: object) -> object:
        return obj.identity if type(obj) is StorageReference else None

    def dump(self, content: object) -> None:
        """Write `content`, and release all references: this object and its reducers form a cycle."""
        try:
            super().dump(content)
            if self._pools and _has_numpy_keys(content):
                raise Unusual("a key of numpy")
        finally:
            self.clear_memo()
            del self.dispatch_table

    def _reducers(self) -> dict[Any, Any]:
        reducers = _Kinds(self._reducer_of)
        reducers[OrderedDict] = OrderedDict.__reduce__
        return reducers

    def _reducer_of(self, kind: type) -> Any:  # noqa: ANN401 - a reducer
        """Reducer of a further kind.

        Raises:
            KeyError: by its own `__reduce_ex__`.
            Unusual: it may hold anything.
        """
        names = self._names
        if names.scalar is not None and issubclass(kind, names.scalar) and kind not in names.leaf_exceptions:
            return self._reduce_scalar
        if kind is complex:
            return copyreg.dispatch_table[kind]
        if kind in _NATURAL or kind in names.leaf_types or issubclass(kind, type):
            raise KeyError(kind)
        raise Unusual(kind.__name__)

    def _reduce_tensor(self, tensor: torch.Tensor) -> str | tuple[Any, ...]:
        """Reduce a plain tensor; the hot path, some five microseconds with the pickler's own."""
        dtype, on_cpu = tensor.dtype, tensor.is_cpu
        kind = self._storage_classes.get(dtype)
        if (
            kind is None
            or tensor.layout is not self._strided
            or not (on_cpu or tensor.is_cuda)
            or tensor.is_neg()
            or tensor.__dict__
            or (dtype in self._complex_dtypes and tensor.is_conj())
            or tensor.is_nested
        ):  # more than a strided view of one storage
            return self._reduce_special(tensor)
        storage = tensor.untyped_storage()
        if on_cpu:
            nbytes = storage.nbytes()
            key = self._table.note(storage.data_ptr(), nbytes, kind, tensor)
            reference = StorageReference(("storage", kind, str(key), "cpu", nbytes // tensor.itemsize))
        else:
            reference = self._table.refer(storage, kind, tensor.itemsize)
        view = (reference, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        return self._rebuild_tensor, (*view, tensor.requires_grad, OrderedDict())

    def _reduce_parameter(self, parameter: torch.nn.Parameter) -> str | tuple[Any, ...]:
        if parameter.__dict__:
            return self._reduce_special(parameter)
        arguments: tuple[Any, ...] = (parameter.data, parameter.requires_grad, OrderedDict())
        return self._names.rebuild_parameter, arguments

    def _reduce_special(self, tensor: torch.Tensor) -> str | tuple[Any, ...]:
        """Reduce a tensor that is more than a view of its storage.

        Raises:
            Unusual: it may hold anything.
        """
        raise Unusual(f"a special {type(tensor).__name__}")

    def _reduce_array(self, array: NDArray[Any]) -> str | tuple[Any, ...]:
        names, dtype = self._names, array.dtype
        noted = self._table.note_array(array)
        if noted is not None:
            kind, key, count, shape, strides = noted
            reference = StorageReference(("storage", kind, str(key), "cpu", count))
            return self._marked(ARRAY, names.rebuild_tensor, (reference, 0, shape, strides))
        if dtype.str in names.new_array_kinds and not dtype.metadata:
            kind, key, count, shape, strides = self._table.note_bytes(array, names.byte_storage, 1)
            reference = StorageReference(("storage", kind, str(key), "cpu", count))
            view = (reference, 0, shape, strides)
            return self._marked(ARRAY, names.rebuild_new, view, names.new_array_kinds[dtype.str])
        if dtype.hasobject or dtype.fields or dtype.metadata:
            raise Unusual("array")
        reduced: str | tuple[Any, ...] = array.__reduce_ex__(PICKLE_PROTOCOL)
        return reduced

    def _reduce_scalar(self, value: Any) -> str | tuple[Any, ...]:  # noqa: ANN401 - a scalar of numpy
        kind = self._names.array_kinds.get(value.dtype.str)
        if kind is None:
            reduced: str | tuple[Any, ...] = value.__reduce_ex__(PICKLE_PROTOCOL)
            return reduced
        found = self._pools.get(kind)
        if found is None or found[2] == POOL_ITEMS:
            pool = self._names.zeros(POOL_ITEMS, value.dtype)
            key = self._table.note_bytes(pool, kind)[1]
            found = pool, StorageReference(("storage", kind, str(key), "cpu", POOL_ITEMS)), 0
        pool, reference, used = found
        pool[used] = value
        self._pools[kind] = pool, reference, used + 1
        return self._marked(SCALAR, self._names.rebuild_tensor, (reference, used, (), ()))

    def _marked(
        self,
        mark: str,
        rebuild: Any,  # noqa: ANN401 - a function of torch
        view: tuple[Any, ...],
        *dtype: Any,  # noqa: ANN401 - of torch
    ) -> tuple[Any, ...]:
        """A tensor with an attribute for its former numpy type."""
        names = self._names
        arguments: tuple[Any, ...] = (*view, False, OrderedDict(), *dtype)
        return names.rebuild_from_type, (rebuild, names.tensor, arguments, {NUMPY_MARK: mark})


def _has_numpy_keys(content: object) -> bool:
    """Whether a scalar of numpy is a key or in a set, where a marked tensor would not be restored."""
    scalar = torch_names().scalar
    seen: set[int] = set()

    def visit(value: object, *, in_key: bool) -> bool:
        if not isinstance(value, _CONTAINERS):
            return in_key and isinstance(value, scalar)
        if id(value) in seen and not in_key:
            return False
        seen.add(id(value))
        if isinstance(value, dict):
            keys = any(visit(key, in_key=True) for key in value)
            return keys or any(visit(item, in_key=in_key) for item in value.values())
        in_key = in_key or isinstance(value, (set, frozenset))
        return any(visit(item, in_key=in_key) for item in value)

    return visit(content, in_key=False)


class _GeneralPickler(_PlainPickler):
    """The C pickler with our reducers for tensors and arrays, for any picklable content."""

    def __init__(self, file: io.BytesIO, table: StorageTable) -> None:
        super().__init__(file, table)
        self._alive: list[Any] = []  # what reducers made: ids and addresses must not be used twice
        self._typed, self._is_storage = self._names.typed_storage, self._names.is_storage
        self._sharded = sharded_types()

    def persistent_id(self, obj: object) -> object:
        if type(obj) is StorageReference:
            return obj.identity
        if isinstance(obj, self._sharded):
            refuse_shard(obj)
        if isinstance(obj, self._typed):
            kind = self._names.typed_classes.get(obj.dtype)
            if kind is None:
                raise ArgumentError(f"a TypedStorage of {obj.dtype} cannot be saved; save the tensor")
            untyped = obj._untyped_storage  # noqa: SLF001 - `untyped()` warns that users should not
            return self._table.refer(untyped, kind, obj.dtype.itemsize).identity
        if self._is_storage(obj):
            return self._table.refer(obj, self._names.byte_storage, 1).identity
        return None

    def _reducers(self) -> dict[Any, Any]:
        return copyreg.dispatch_table.copy()

    def _reduce_special(self, tensor: torch.Tensor) -> str | tuple[Any, ...]:
        if type(tensor) is self._names.parameter:
            refuse_shard(tensor)
        reduced: str | tuple[Any, ...] = tensor.__reduce_ex__(PICKLE_PROTOCOL)
        return self._keep(reduced)

    def _reduce_parameter(self, parameter: torch.nn.Parameter) -> str | tuple[Any, ...]:
        return self._keep(super()._reduce_parameter(parameter))

    def _reduce_array(self, array: NDArray[Any]) -> str | tuple[Any, ...]:
        noted = self._table.note_array(array)
        if noted is None:
            reduced: str | tuple[Any, ...] = array.__reduce_ex__(PICKLE_PROTOCOL)
            return self._keep(reduced)
        kind, key, count, shape, strides = noted
        reference = StorageReference(("storage", kind, str(key), "cpu", count))
        arguments: tuple[Any, ...] = (reference, 0, shape, strides, False, OrderedDict())
        tensor = _ReducedPart(self._rebuild_tensor, arguments)
        return self._names.as_array, (self._keep(tensor),)

    def _keep(self, thing: _Thing) -> _Thing:
        self._alive.append(thing)
        return thing


def capture(content: object) -> Captured:
    """Split `content` into skeleton and storages. The bytes are not copied: copy them before they change.

    Raises:
        ArgumentError: something in it cannot be pickled.
        ShardedContentError: of a tensor in it this rank holds a part.
    """
    collecting = gc.isenabled()
    gc.disable()  # thousands of tuples would trigger it several times in vain
    try:
        with suppress(Unusual):
            return capture_plain(content)
        return capture_generally(content)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        if is_foreign_error(error):
            raise
        raise ArgumentError(
            f"this content cannot be saved: {error}. Save plain data, tensors, state_dict()s, or objects "
            "whose class pickle can find by name"
        ) from error
    finally:
        if collecting:
            gc.enable()


def capture_plain(content: object) -> Captured:
    """The fast path, for plain containers, tensors, arrays and numbers.

    Raises:
        Unusual: it holds something else.
    """
    try:
        return _dump(_PlainPickler, content)
    except RuntimeError as error:
        if is_foreign_error(error):
            raise
        raise Unusual(str(error)) from error


def capture_generally(content: object) -> Captured:
    """The general path, for anything picklable. Errors are pickle's own."""
    return _dump(_GeneralPickler, content)


def _dump(pickler: type[_PlainPickler], content: object) -> Captured:
    table = StorageTable()
    file = io.BytesIO()
    pickler(file, table).dump(content)
    return Captured(file.getvalue(), table.storages)
