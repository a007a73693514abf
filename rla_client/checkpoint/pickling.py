"""The capture of a user's content: a skeleton pickle, a list of storages.

The skeleton is what `torch.save` would write as `data.pkl`: the same pickle protocol (2, the one that
`torch.load(weights_only=True)` reads in full), the same rebuild functions, storages by persistent id. Plain
strided tensors and parameters are reduced here, because torch's own reducers take twice as long; every
other tensor and object is reduced by its own `__reduce_ex__`. The bytes of arrays whose dtype torch knows
travel as a storage. `emitter.py` is the fast way; where it does not know something, C's pickler does it.

Nothing here keeps or copies tensor bytes.
"""

from __future__ import annotations

import copyreg
import gc
import io
import pickle
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from rla_client.checkpoint.emitter import emit
from rla_client.checkpoint.opcodes import PICKLE_PROTOCOL, Unusual
from rla_client.checkpoint.shards import refuse_shard, sharded_types
from rla_client.checkpoint.storage_table import Captured, StorageReference, Table, is_foreign_error
from rla_client.contract.errors import ArgumentError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


_Thing = TypeVar("_Thing")


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
        self._sharded = sharded_types()
        self.dispatch_table = copyreg.dispatch_table.copy()
        self.dispatch_table[names.tensor] = self._reduce_tensor
        self.dispatch_table[names.parameter] = self._reduce_parameter
        if names.array is not None:
            self.dispatch_table[names.array] = self._reduce_array

    def persistent_id(self, obj: object) -> object:
        if type(obj) is StorageReference:
            return obj.identity
        if isinstance(obj, self._sharded):
            refuse_shard(obj)
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
            refuse_shard(parameter)
            reduced: str | tuple[Any, ...] = parameter.__reduce_ex__(PICKLE_PROTOCOL)
            return self._keep(reduced)
        arguments: tuple[Any, ...] = (parameter.data, parameter.requires_grad, OrderedDict())
        return self._keep((self._table.names.rebuild_parameter, arguments))

    def _reduce_array(self, array: NDArray[Any]) -> str | tuple[Any, ...]:
        noted = self._table.note_array(array)
        if noted is None:
            return self._keep(array.__reduce_ex__(PICKLE_PROTOCOL))
        kind, key, count, shape, strides = noted
        reference = StorageReference(("storage", kind, str(key), "cpu", count))
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
        ShardedContentError: of a tensor in it this rank holds a part.
    """
    collecting = gc.isenabled()
    gc.disable()  # thousands of tuples would set it off several times, for nothing
    try:
        with suppress(Unusual):
            table = Table()
            return Captured(emit(content, table), table.storages)
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


def capture_generally(content: object) -> Captured:
    """The way that takes anything that pickles. Errors are pickle's own."""
    table = Table()
    file = io.BytesIO()
    _Pickler(file, table).dump(content)
    return Captured(file.getvalue(), table.storages)
