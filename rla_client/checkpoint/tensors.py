"""The storages of one save, and the names of torch that a `.pt` file is made of.

A storage is told apart by address and length, so what shared one before shares one after loading.
The table holds a reference to every storage it has met, so that no address is met twice.

Copying captured storages to their addresses: the only part of a save that grows with its bytes.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

from rla_client.contract.errors import ArgumentError, extra
from rla_client.stream.arena import Arena
from rla_client.stream.memory import Copy, copy_memory

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

# dtypes whose storages have had a class of their own since the first torch; newer ones go by bytes
_REAL_STORAGE_CLASSES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
_QUANTIZED_STORAGE_CLASSES = {
    "quint8": "QUInt8Storage",
    "qint8": "QInt8Storage",
    "qint32": "QInt32Storage",
    "quint4x2": "QUInt4x2Storage",
    "quint2x4": "QUInt2x4Storage",
}
_COMPLEX_STORAGE_CLASSES = {"complex64": "ComplexFloatStorage", "complex128": "ComplexDoubleStorage"}
STORAGE_CLASSES = _REAL_STORAGE_CLASSES | _COMPLEX_STORAGE_CLASSES
NUMPY_STORAGE_CLASSES = {name: kind for name, kind in STORAGE_CLASSES.items() if name != "bfloat16"}
# address (0 on a device), bytes, and what keeps them alive; on a device that is the storage itself
Storage = tuple[int, int, Any]


class Reference:
    """Stands for a storage inside reduce tuples; the pickler writes it as a persistent id."""

    __slots__ = ("identity",)

    def __init__(self, identity: tuple[str, Any, str, str, int]) -> None:
        self.identity = identity


@dataclass(frozen=True, slots=True)
class TorchNames:
    """What is looked up in torch once."""

    tensor: Any
    parameter: Any
    strided: Any
    storage_classes: dict[Any, Any]
    typed_classes: dict[Any, Any]
    complex_dtypes: frozenset[Any]
    rebuild_tensor: Any
    rebuild_parameter: Any
    typed_storage: Any
    is_storage: Any
    location_tag: Any
    byte_storage: Any
    byte_kinds: frozenset[Any]  # two names of one type
    array: Any
    as_array: Any
    array_kinds: dict[str, Any]
    leaf_types: tuple[type, ...]
    leaf_exceptions: tuple[type, ...]


def torch_module() -> ModuleType:
    """The torch package, imported by whoever needs it first.

    Raises:
        MissingExtraError: it is not installed.
    """
    with extra("torch", "a checkpoint"):
        import torch  # noqa: PLC0415 - 1 s, and only who saves tensors has it

    found: ModuleType = torch
    return found


def _numpy_module() -> ModuleType | None:
    try:
        import numpy as np  # noqa: PLC0415
    except ImportError:  # torch works without
        return None
    return np


@cache
def torch_names() -> TorchNames:
    """What this torch calls the things that a `.pt` file is made of."""
    torch = torch_module()
    numpy = _numpy_module()
    names = STORAGE_CLASSES
    byte_storage = torch.serialization.normalize_storage_type(torch.UntypedStorage)
    return TorchNames(
        tensor=torch.Tensor,
        parameter=torch.nn.Parameter,
        strided=torch.strided,
        storage_classes=_by_dtype(torch, names),
        typed_classes=_by_dtype(torch, names | _QUANTIZED_STORAGE_CLASSES),
        complex_dtypes=frozenset(getattr(torch, dtype) for dtype in _COMPLEX_STORAGE_CLASSES),
        rebuild_tensor=torch._utils._rebuild_tensor_v2,  # noqa: SLF001 - the name is in every .pt file
        rebuild_parameter=torch._utils._rebuild_parameter,  # noqa: SLF001
        typed_storage=torch.storage.TypedStorage,
        is_storage=torch.is_storage,
        location_tag=torch.serialization.location_tag,
        byte_storage=byte_storage,
        byte_kinds=frozenset((byte_storage, torch.ByteStorage)),
        array=None if numpy is None else numpy.ndarray,
        as_array=None if numpy is None else numpy.asarray,
        array_kinds={} if numpy is None else _array_kinds(torch, numpy),
        leaf_types=(torch.Size, torch.dtype, torch.device, *(() if numpy is None else (numpy.generic,))),
        leaf_exceptions=() if numpy is None else (numpy.object_, numpy.void),
    )


def _by_dtype(torch: ModuleType, names: dict[str, str]) -> dict[Any, Any]:
    return {getattr(torch, dtype): getattr(torch, name) for dtype, name in names.items()}


def _array_kinds(torch: ModuleType, numpy: ModuleType) -> dict[str, Any]:
    """From numpy's spelling of a dtype in native byte order to torch's storage class."""
    return {numpy.dtype(dtype).str: getattr(torch, name) for dtype, name in NUMPY_STORAGE_CLASSES.items()}


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

    def refer(self, storage: torch.UntypedStorage, kind: type, itemsize: int) -> Reference:
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
        return Reference(("storage", kind, str(number), location, nbytes // itemsize))

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

    def note_array(self, array: NDArray[Any], kind: type) -> int:
        """Add a contiguous array's bytes as a storage of their own and return its key."""
        self.storages.append((array.ctypes.data if array.nbytes else 0, array.nbytes, array))
        self.kinds.append(kind)
        return len(self.storages) - 1


def is_plain(tensor: torch.Tensor, names: TorchNames) -> bool:
    """True for a tensor that is a strided view of one storage and nothing besides."""
    return (
        tensor.layout is names.strided
        and (tensor.is_cpu or tensor.is_cuda)
        and not tensor.is_neg()
        and not tensor.__dict__
        and not (tensor.dtype in names.complex_dtypes and tensor.is_conj())
        and not tensor.is_nested
    )


def array_arguments(array: NDArray[Any], table: Table) -> tuple[Any, ...] | None:
    """Arguments of `_rebuild_tensor_v2` for an array's bytes; None when torch has no such dtype."""
    names = table.names
    kind = names.array_kinds.get(array.dtype.str)
    if kind is None or array.dtype.metadata:
        return None
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        array = array.copy(order="C")
    itemsize = array.itemsize
    count = array.nbytes // itemsize
    key = str(table.note_array(array, kind))
    reference = Reference(("storage", kind, key, "cpu", count))
    strides = tuple(stride // itemsize for stride in array.strides)
    return reference, 0, tuple(array.shape), strides, False, OrderedDict()


def copy_storages(storages: Sequence[Storage], addresses: Sequence[int]) -> None:
    """Copy each storage to its address; large amounts by several threads, devices by torch."""
    jobs: list[Copy] = []
    devices: dict[str, Any] = {}
    for (address, nbytes, owner), to in zip(storages, addresses, strict=True):
        if address:
            jobs.append((to, address, nbytes))
        elif nbytes:
            _start_copy_from_device(owner, nbytes, to)
            devices[str(owner.device)] = owner.device
    copy_memory(jobs)
    for device in devices.values():
        torch_module().accelerator.current_stream(device).synchronize()


def write_storage(file: BinaryIO, storage: Storage) -> int:
    """Write the bytes of a storage from where they are; those of a device are brought to memory.

    Raises:
        OSError: the disk did not take them.
    """
    address, nbytes, owner = storage
    if nbytes and not address:
        owner = owner.cpu()  # held until they are written
        address = owner.data_ptr()
    return file.write((ctypes.c_ubyte * nbytes).from_address(address))


def _start_copy_from_device(owner: torch.UntypedStorage, nbytes: int, to: int) -> None:
    """Queue one copy over the bus; the caller waits for the device's stream once for all of them."""
    torch = torch_module()
    target = torch.frombuffer((ctypes.c_ubyte * nbytes).from_address(to), dtype=torch.uint8)
    source = torch.empty(0, dtype=torch.uint8, device=owner.device).set_(owner)
    target.copy_(source, non_blocking=True)


def pin_memory(arena: Arena) -> None:
    """Let CUDA copy straight into an arena. Where it cannot, copies take the slower way by themselves."""
    if arena.on_close is not None:
        return
    torch = torch_module()
    arena.on_close = _nothing
    if not torch.cuda.is_available():
        return
    runtime, address = torch.cuda.cudart(), arena.address
    if int(runtime.cudaHostRegister(address, arena.total, 0)) == 0:
        arena.on_close = lambda: runtime.cudaHostUnregister(address)


def _nothing() -> None:
    """What an arena that CUDA did not take does when it is closed."""
