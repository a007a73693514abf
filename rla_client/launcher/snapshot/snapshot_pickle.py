"""Pickle of a snapshot, made with one copy of the tensors.

A snapshot file is one pickle (protocol 5) that `cloudpickle.load` reads, and a footer
(rla_client/contract/job/snapshot_footer.py). `encode` pickles, and keeps only the address of every large
buffer (an array, a tensor's storage); `Pieces.copy_to` then assembles the file at an address, in one copy
by several threads. Storages of plain tensors are written as buffers, and tensors that share a storage
share it again after loading. Storages of a GPU are loaded to it, or to the CPU if there is no such GPU.
Other tensors are pickled by torch.

Classes and functions of the launcher's own file (`__main__`) are pickled by name and by value. If the same
file runs when the snapshot is loaded, its own are used, so that a resumed launcher and its restored
objects share them and their globals; otherwise they are made from the value.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import io
import mmap
import os
import pickle
import sys
import types
from typing import TYPE_CHECKING, Any, BinaryIO

import cloudpickle

from rla_client.checkpoint.refused_shards import refuse_shard, sharded_types
from rla_client.checkpoint.storage_copy import copy_storages
from rla_client.contract.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy.typing import NDArray
    from typing_extensions import Buffer


PROTOCOL = 5
REFERENCE_MIN_BYTES = 1 << 16  # smaller buffers are copied at once; pickle itself cuts there
FIRST_BYTES = 1 << 16
DEVICES = ("cpu", "cuda")  # devices with storages that are written as bytes
SPARE = 1.125  # room for a state that grows, so that the next snapshot needs no new pages


class Pieces:
    """A file as the pickler writes it: small parts, and addresses of large ones.

    Attributes:
        size: size in bytes.
        on_device: whether parts are in a GPU's memory.
    """

    def __init__(self) -> None:
        self.size = 0
        self.on_device = False
        self._small: list[tuple[int, bytes]] = []
        self._large: list[tuple[int, tuple[int, int, Any]]] = []
        self._gathered = bytearray()
        self._devices: dict[int, Any] = {}

    def write(self, data: Buffer) -> int:
        """Add `data`. Large data must not change until it is copied."""
        view = data.raw() if isinstance(data, pickle.PickleBuffer) else memoryview(data)
        if view.nbytes < REFERENCE_MIN_BYTES:
            self._gathered += view
        else:
            self._cut()
            address = _address(view)
            owner = self._devices.get(address)
            storage = (address, view.nbytes, view) if owner is None else (0, view.nbytes, owner)
            self._large.append((self.size, storage))
            self.size += view.nbytes
        return view.nbytes

    def stand_in(self, storage: torch.UntypedStorage) -> NDArray[Any]:
        """A buffer to pickle in place of a device's storage; its memory is never used."""
        import numpy as np  # noqa: PLC0415

        buffer = np.empty(storage.nbytes(), dtype=np.uint8)
        self._devices[_address(buffer.data)] = storage
        self.on_device = True
        return buffer

    def finish(self, footer: bytes = b"") -> None:
        """Add the footer, as the last part."""
        self._gathered += footer
        self._cut()

    def copy_to(self, address: int) -> None:
        """Assemble the file at `address`, which has room for `size` bytes."""
        for offset, part in self._small:
            ctypes.memmove(address + offset, part, len(part))
        storages = [storage for _, storage in self._large]
        copy_storages(storages, [address + offset for offset, _ in self._large])

    def write_to(self, file: BinaryIO) -> None:
        """Write the file, without an intermediate copy unless parts are on a GPU."""
        if self.on_device:
            memory = CopyTarget()
            memory.take(self)
            memory.write_to(file)
            return
        parts: dict[int, Any] = dict(self._small)
        parts.update((offset, view) for offset, (_, _, view) in self._large)
        file.writelines(parts[offset] for offset in sorted(parts))

    def to_bytes(self) -> bytes:
        """Content of the file."""
        memory = io.BytesIO()
        self.write_to(memory)
        return memory.getvalue()

    def _cut(self) -> None:
        if self._gathered:
            self._small.append((self.size, bytes(self._gathered)))
            self.size += len(self._gathered)
            self._gathered.clear()


class CopyTarget:
    """Memory for one file, mapped once and reused."""

    def __init__(self) -> None:
        # private: resizing a shared anonymous map ends the process with SIGBUS
        self._memory = mmap.mmap(-1, FIRST_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.size = 0

    def take(self, pieces: Pieces) -> None:
        """Copy a finished file in."""
        if pieces.size > len(self._memory):  # moves pages, copies nothing
            self._memory.resize(max(int(pieces.size * SPARE), 2 * len(self._memory)))
        with memoryview(self._memory) as whole:
            pieces.copy_to(_address(whole))
        self.size = pieces.size

    def write_to(self, file: BinaryIO) -> None:
        """Write the copied content into `file`."""
        with memoryview(self._memory) as whole, whole[: self.size] as content:
            file.write(content)


def _address(view: memoryview) -> int:
    import numpy as np  # noqa: PLC0415

    address: int = np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0]  # .ctypes is slow
    return address


def encode(state: dict[str, Any], footer: bytes = b"") -> Pieces:
    """Pickle `state`. Objects in it must not change before the pieces are copied.

    Raises:
        SnapshotError: something in it cannot be pickled; the message names it.
    """
    collecting = gc.isenabled()
    gc.disable()  # a collection would walk every object that was just made
    pieces = Pieces()
    try:
        _Pickler(pieces, protocol=PROTOCOL).dump(state)
    except Exception as error:  # any user object may raise anything from its __reduce__
        raise SnapshotError(_why(state, error)) from error
    finally:
        if collecting:
            gc.enable()
    pieces.finish(footer)
    return pieces


def decode(data: bytes) -> Any:  # noqa: ANN401 - what the user put in
    """Unpickle a snapshot. This runs code from it: only for the user's own files."""
    return cloudpickle.load(io.BytesIO(data))


def pack_agents(agents: list[Any]) -> list[bytes]:
    """Pickle policies, or their parameters, for worker processes; `decode` returns `{"agent": …}`.

    Each object is pickled once: most samplers have one policy for all workers.
    """
    packed: dict[int, bytes] = {}
    for agent in agents:
        if id(agent) not in packed:
            packed[id(agent)] = _pack_agent(agent)
    return [packed[id(agent)] for agent in agents]


def _pack_agent(agent: object) -> bytes:
    torch = sys.modules.get("torch")
    if torch is not None:  # a CUDA context per worker would cost more than it gives
        if isinstance(agent, dict):
            agent = {key: value.cpu() if torch.is_tensor(value) else value for key, value in agent.items()}
        elif isinstance(agent, torch.nn.Module) and any(one.is_cuda for one in agent.parameters()):
            agent = copy.deepcopy(agent).cpu()
    return encode({"agent": agent}).to_bytes()


def rebuild_storage(data: bytearray) -> torch.UntypedStorage:
    """Make a CPU storage of the loaded bytes; snapshots name this function."""
    import torch  # noqa: PLC0415

    if not data:
        return torch.UntypedStorage(0)
    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()


def rebuild_device_storage(data: bytearray, device: str) -> torch.UntypedStorage:
    """Make a GPU's storage, or a CPU's if there is no such GPU; snapshots name this function."""
    import torch  # noqa: PLC0415

    flat = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    kind, _, index = device.partition(":")
    there = kind == "cuda" and torch.cuda.is_available() and int(index or 0) < torch.cuda.device_count()
    return flat.to(device if there else "cpu").untyped_storage()


def rebuild_tensor(
    storage: torch.UntypedStorage, dtype: torch.dtype, place: tuple[Any, ...], requires_grad: bool
) -> torch.Tensor:
    """Make a tensor at `place` (offset, size, stride) of a storage; snapshots name this function."""
    import torch  # noqa: PLC0415

    tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, *place)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


def rebuild_parameter(
    storage: torch.UntypedStorage, dtype: torch.dtype, place: tuple[Any, ...], requires_grad: bool
) -> torch.nn.Parameter:
    """Make a parameter at `place` of a storage; snapshots name this function."""
    import torch  # noqa: PLC0415

    return torch.nn.Parameter(rebuild_tensor(storage, dtype, place, False), requires_grad)


def rebuild_typed_storage(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    """Make torch's typed view of a storage; snapshots name this function."""
    import torch  # noqa: PLC0415

    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def resolve_main(name: str, file: str, value: bytes) -> object:
    """Find a class or function of the launcher, else load it from `value`; snapshots name this function."""
    main = sys.modules.get("__main__")
    if _main_file(main) == file:
        found = _find_in(main, name)
        if found is not None:
            return found
    return cloudpickle.loads(value)


def _main_file(main: object) -> str:
    return os.path.realpath(getattr(main, "__file__", None) or "")


def _find_in(main: object, name: str) -> object:
    found = main
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _reduce_main(obj: type | types.FunctionType) -> tuple[Any, ...] | None:
    if getattr(obj, "__module__", None) != "__main__":
        return None
    main = sys.modules.get("__main__")
    name = obj.__qualname__
    if getattr(main, "__file__", None) is None or _find_in(main, name) is not obj:
        return None  # an interactive session, a lambda, something made inside a function
    return resolve_main, (name, _main_file(main), cloudpickle.dumps(obj))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, pieces: Pieces, **options: object) -> None:
        super().__init__(pieces, **options)
        self._pieces = pieces
        self._torch = sys.modules.get("torch")
        self._sharded = sharded_types()
        self.kept: list[Any] = []  # alive until the end: the memo goes by identity

    def reducer_override(self, obj: object) -> object:
        if isinstance(obj, (type, types.FunctionType)):
            by_name = _reduce_main(obj)
            if by_name is not None:
                return by_name
        elif self._torch is not None:
            if isinstance(obj, self._sharded):
                refuse_shard(obj)
            storage = self._reduce_storage(self._torch, obj)
            if storage is not None:
                return storage
        return super().reducer_override(obj)

    def _reduce_storage(self, torch: types.ModuleType, obj: Any) -> tuple[Any, ...] | None:  # noqa: ANN401
        if type(obj) is torch.Tensor:
            return self._reduce_tensor(torch, obj, rebuild_tensor)
        if type(obj) is torch.nn.Parameter:
            return self._reduce_tensor(torch, obj, rebuild_parameter)
        if type(obj) is torch.storage.TypedStorage:
            storage = obj._untyped_storage  # noqa: SLF001 - `untyped()` and `device` warn
            if storage.device.type in DEVICES:
                self.kept.append(storage)
                return rebuild_typed_storage, (storage, obj.dtype)
        if type(obj) is torch.UntypedStorage and obj.device.type == "cuda":
            return self._reduce_device_storage(torch, obj)
        if type(obj) is torch.UntypedStorage and obj.device.type == "cpu":
            flat = torch.empty(0, dtype=torch.uint8).set_(obj).numpy()
            return rebuild_storage, (pickle.PickleBuffer(flat),)
        return None

    def _reduce_device_storage(self, torch: types.ModuleType, obj: torch.UntypedStorage) -> tuple[Any, ...]:
        if obj.nbytes() < REFERENCE_MIN_BYTES:
            flat = torch.empty(0, dtype=torch.uint8, device=obj.device).set_(obj).cpu().numpy()
        else:
            flat = self._pieces.stand_in(obj)
            self.kept.append(flat)
        return rebuild_device_storage, (pickle.PickleBuffer(flat), str(obj.device))

    def _reduce_tensor(
        self, torch: types.ModuleType, obj: torch.Tensor, rebuild: Callable[..., torch.Tensor]
    ) -> tuple[Any, ...] | None:
        plain = obj.layout is torch.strided and obj.device.type in DEVICES and not obj.is_quantized
        if not plain or obj.is_conj() or obj.is_neg() or obj._backward_hooks or obj.__dict__:  # noqa: SLF001
            return None
        storage = obj.untyped_storage()
        self.kept.append(storage)
        place = (obj.storage_offset(), obj.size(), obj.stride())
        return rebuild, (storage, obj.dtype, (place[0], tuple(place[1]), place[2]), obj.requires_grad)


def _why(state: dict[str, Any], error: Exception) -> str:
    culprits = [key for key, value in state.items() if not _can_pickle(value)]
    where = f" in {', '.join(culprits)}" if culprits else ""
    return (
        f"the training state cannot be pickled{where}: {type(error).__name__}: {error}. "
        "Leave such an attribute out in the object's __getstate__ and create it again in __setstate__."
    )


def _can_pickle(value: object) -> bool:
    try:
        _Pickler(Pieces(), protocol=PROTOCOL).dump(value)
    except Exception:  # noqa: BLE001 - the question is whether any error occurs
        return False
    return True
