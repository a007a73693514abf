"""From a user's content to a skeleton pickle and a list of storages, fast and without copying.

The skeleton is what `torch.save` would write as `data.pkl`: the same pickle protocol (2, the one
that `torch.load(weights_only=True)` reads in full), the same rebuild functions, storages by
persistent id. Plain strided tensors and parameters are reduced here, because torch's own reducers
take twice as long; every other tensor (sparse, quantized, conjugated, subclass, new dtypes) and
every other object is reduced by its own `__reduce_ex__`. Arrays of numpy whose dtype torch knows
become `numpy.asarray(<tensor>)`: their bytes travel as a storage, and `torch.load` gives an array
back (weights_only needs `numpy.asarray` on its list; `rla_client.checkpoint.saver.load_file` sees to it).

Nothing here keeps or copies tensor bytes; `Captured.storages` holds references, so that the bytes
stay where they are until they have been copied. Storages are told apart by address and length:
what shared one before shares one after loading.
"""

from __future__ import annotations

import copyreg
import gc
import io
import pickle
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from rla_client.checkpoint.emitter import Unusual, emit
from rla_client.checkpoint.tensors import Reference, Storage, Table, array_arguments, is_plain
from rla_client.contract.errors import ArgumentError

PICKLE_PROTOCOL = 2


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

    __slots__ = ("arguments",)

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments


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
        self.dispatch_table[_ArrayBytes] = self._reduce_array_bytes
        if names.array is not None:
            self.dispatch_table[names.array] = self._reduce_array

    def persistent_id(self, obj: Any) -> Any:  # noqa: ANN401 - called with everything
        if type(obj) is Reference:
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

    def _reduce_tensor(self, tensor: Any) -> Any:  # noqa: ANN401
        names = self._table.names
        kind = names.storage_classes.get(tensor.dtype)
        if kind is None or not is_plain(tensor, names):
            return self._keep(tensor.__reduce_ex__(PICKLE_PROTOCOL))
        reference = self._table.refer(tensor.untyped_storage(), kind, tensor.itemsize)
        shape, stride = tuple(tensor.shape), tensor.stride()
        arguments: tuple[Any, ...]
        arguments = (reference, tensor.storage_offset(), shape, stride, tensor.requires_grad, OrderedDict())
        return names.rebuild_tensor, arguments

    def _reduce_parameter(self, parameter: Any) -> Any:  # noqa: ANN401
        if parameter.__dict__:
            return self._keep(parameter.__reduce_ex__(PICKLE_PROTOCOL))
        data = parameter.data
        return self._keep(
            (self._table.names.rebuild_parameter, (data, parameter.requires_grad, OrderedDict()))
        )

    def _reduce_array(self, array: Any) -> Any:  # noqa: ANN401
        arguments = array_arguments(array, self._table)
        if arguments is None:
            return self._keep(array.__reduce_ex__(PICKLE_PROTOCOL))
        return self._table.names.as_array, (self._keep(_ArrayBytes(arguments)),)

    def _reduce_array_bytes(self, data: _ArrayBytes) -> Any:  # noqa: ANN401
        return self._table.names.rebuild_tensor, data.arguments

    def _keep(self, thing: Any) -> Any:  # noqa: ANN401
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
        try:
            table = Table()
            return Captured(emit(content, table), table.storages)
        except Unusual:
            return capture_generally(content)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError, NotImplementedError) as error:
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
