"""Table of the storages of a skeleton.

It keeps references, so that the bytes stay in place, and no address is reused, until they have been copied.
Storages are identified by address and length: tensors that share one also share it after loading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rla_client.checkpoint.torch_names import torch_names
from rla_client.contract.errors import ArgumentError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


# address (0 on a device), bytes, and what keeps them alive; on a device that is the storage itself
Storage = tuple[int, int, Any]


class StorageReference(NamedTuple):
    """Placeholder of a storage inside reduce tuples; the pickler writes it as a persistent id."""

    identity: tuple[str, Any, str, str, int]


class StorageTable:
    """The storages so far, in the order of their keys. Both picklers fill one.

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

    def refer(self, storage: torch.UntypedStorage, kind: type, itemsize: int) -> StorageReference:
        """Register a storage and return its placeholder.

        Raises:
            ArgumentError: the same bytes are saved as two types, which `.pt` files cannot represent.
        """
        if storage.device.type == "meta":
            raise ArgumentError("a storage on the meta device has no bytes to save; save the tensor")
        on_cpu = storage.device.type == "cpu"
        nbytes = storage.nbytes()
        number = self.note(storage.data_ptr(), nbytes, kind, storage, on_cpu=on_cpu)
        location = "cpu" if on_cpu else self.names.location_tag(storage)
        return StorageReference(("storage", kind, str(number), location, nbytes // itemsize))

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
        """Register an array's bytes as a storage of their own; None when torch has no such dtype.

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
        """Register an array's bytes as a storage of a kind, with items of so many bytes (0: the array's)."""
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


def is_foreign_error(error: Exception) -> bool:
    """True for a RuntimeError that is not about the content, such as a signal handler's."""
    known = (RuntimeError, RecursionError, NotImplementedError)
    return isinstance(error, RuntimeError) and type(error) not in known
