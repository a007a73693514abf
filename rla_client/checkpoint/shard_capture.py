"""Capture of the pieces of a sharded state that lie on this rank.

torch's planner (DefaultSavePlanner) determines them. It is called again only where the state has other
names, shapes or meshes than at the save before, since that costs more than the copy of a small model.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.pickling import capture
from rla_client.checkpoint.shard_plan import Kind, LocalPlan, PieceKey, ShardPiece
from rla_client.checkpoint.torch_names import torch_module
from rla_client.contract.checkpoint.torch_zip import TORCH_FORMAT, zip_bytes
from rla_client.contract.errors import ArgumentError
from rla_client.contract.job.arena_layout import ALIGNMENT
from rla_client.stream.memcpy import Copy, copy_memory

if TYPE_CHECKING:
    import torch


BYTE_ORDER = sys.byteorder.encode("ascii")


@dataclass(frozen=True)
class LocalState:
    """The pieces of a state on this rank: their descriptions, and the tensors and objects themselves."""

    plan: LocalPlan
    tensors: Mapping[PieceKey, torch.Tensor]
    objects: Mapping[PieceKey, object]


class StateReader:
    """Reader of the pieces of successive states."""

    def __init__(self) -> None:
        self._signature: list[Any] = []
        self._plan: LocalPlan | None = None
        #: Of each piece: its key, whether it is a tensor, torch's index of it.
        self._items: list[tuple[PieceKey, bool, Any]] = []

    def read(self, state: Mapping[str, Any]) -> LocalState:
        """The pieces of `state` on this rank, without a copy.

        Args:
            state: tensors (DTensor, ShardedTensor or plain), objects, dicts and lists of them; a value with
                `state_dict()` and `load_state_dict()` stands for its state.

        Raises:
            ArgumentError: it is no dict with names as keys, or a tensor is not dense.
        """
        with torch_module().no_grad():  # a DTensor gives its local tensor at a tenth of the cost
            return self._read(_planner(state))

    def _read(self, planner: Any) -> LocalState:  # noqa: ANN401 - torch's
        signature = [_signature(key, value) for key, value in planner.state_dict.items()]
        if self._plan is None or signature != self._signature:
            items = [(_piece(planner, item), item.index) for item in planner.create_local_plan().items]
            paths = {key: tuple(path) for key, path in planner.mappings.items()}
            self._plan = LocalPlan(tuple(piece for piece, _ in items), paths)
            self._items = [(piece.identity, piece.kind != "bytes", index) for piece, index in items]
            self._signature = signature
        tensors, objects = {}, {}
        for key, is_tensor, index in self._items:
            value = planner.lookup_object(index)
            if is_tensor:
                tensors[key] = value.detach()
            else:
                objects[key] = value
        return LocalState(self._plan, tensors, objects)


def _planner(state: Mapping[str, Any]) -> Any:  # noqa: ANN401 - torch's
    if not isinstance(state, Mapping) or not all(isinstance(key, str) for key in state):
        raise ArgumentError("save_sharded takes a dict of names to tensors, state dicts or objects")
    torch_module()
    from torch.distributed.checkpoint import DefaultSavePlanner  # noqa: PLC0415 - slow to import
    from torch.distributed.checkpoint.stateful import Stateful  # noqa: PLC0415

    planner = DefaultSavePlanner()
    plain = {
        key: value.state_dict() if _may_be_stateful(value) and isinstance(value, Stateful) else value
        for key, value in state.items()
    }
    planner.set_up_planner(plain)
    return planner


def _may_be_stateful(value: object) -> bool:
    """A cheap check: `isinstance` of a protocol takes longer than the copy of a small tensor."""
    return hasattr(value, "load_state_dict")


def _signature(key: str, value: object) -> tuple[Any, ...]:
    """Properties of a value on which the planner's answer depends."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return key, type(value)
    mesh, placements = getattr(value, "device_mesh", None), getattr(value, "placements", None)
    return key, type(value), tuple(shape), getattr(value, "dtype", None), mesh, placements


def _piece(planner: Any, item: Any) -> ShardPiece:  # noqa: ANN401
    data = item.tensor_data
    if data is None:
        return ShardPiece(item.index.fqn, "bytes")
    torch = torch_module()
    local = planner.lookup_object(item.index)
    if type(local) not in {torch.Tensor, torch.nn.Parameter} or local.layout is not torch.strided:
        raise ArgumentError(
            f"{item.index.fqn} cannot be saved: it is a {type(local).__name__} of layout {local.layout}. "
            "Only dense tensors can; convert it, or use dcp.save with RLAStorageWriter"
        )
    kind: Kind = "shard" if item.type.name == "SHARD" else "tensor"
    sizes, dtype = tuple(data.chunk.sizes), local.dtype
    length = len_in_file(sizes, dtype)
    shape, offsets = tuple(data.size), tuple(data.chunk.offsets)
    return ShardPiece(item.index.fqn, kind, offsets, sizes, shape, str(dtype).removeprefix("torch."), length)


@lru_cache(maxsize=4096)
def skeleton(sizes: tuple[int, ...], dtype: torch.dtype) -> bytes:
    """The pickle of a dense tensor of this shape in torch's zip, of which `data/0` has the bytes."""
    return capture(torch_module().empty(sizes, dtype=dtype)).skeleton


def records(sizes: tuple[int, ...], dtype: torch.dtype) -> list[tuple[str, int, bytes | None]]:
    """The records of the zip of one tensor: name, bytes, content (None: the tensor's bytes)."""
    pickled, count = skeleton(sizes, dtype), dtype.itemsize
    for size in sizes:
        count *= size
    return [
        ("data.pkl", len(pickled), pickled),
        ("byteorder", len(BYTE_ORDER), BYTE_ORDER),
        ("data/0", count, None),
        ("version", len(TORCH_FORMAT), TORCH_FORMAT),
    ]


def len_in_file(sizes: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes that a tensor takes in a shard."""
    return zip_bytes((name, size) for name, size, _ in records(sizes, dtype))


def pickled(value: object) -> bytes:
    """An object as torch.distributed.checkpoint stores it.

    Raises:
        ArgumentError: it cannot be pickled.
    """
    to = io.BytesIO()
    try:
        torch_module().save(value, to)
    except (TypeError, AttributeError, RecursionError, NotImplementedError, RuntimeError) as error:
        raise ArgumentError(f"a {type(value).__name__} in this state cannot be saved: {error}") from error
    return to.getvalue()


class CopyBuffer:
    """Reusable memory of this process for the copy of one save; it grows."""

    def __init__(self) -> None:
        self._memory = memoryview(mmap.mmap(-1, mmap.PAGESIZE))
        self._asked_to_pin = False
        self._content: dict[PieceKey, memoryview] = {}

    def fill(self, tensors: Mapping[PieceKey, torch.Tensor], wanted: Collection[PieceKey]) -> None:
        """Copy the wanted tensors; on return the training may change them."""
        torch = torch_module()
        self._content = {}
        chosen = [(key, tensor) for key, tensor in tensors.items() if key in wanted]
        at, begins = 0, []
        for _, tensor in chosen:
            begins.append(at)
            at += tensor.nbytes + -tensor.nbytes % ALIGNMENT
        pins = self._asked_to_pin or any(tensor.is_cuda for _, tensor in chosen)
        if at > len(self._memory) or pins is not self._asked_to_pin:
            self._memory, self._asked_to_pin = _new_memory(at, pinned=pins), pins
        view = self._memory
        base = ctypes.addressof(ctypes.c_char.from_buffer(view)) if at else 0
        jobs: list[Copy] = []
        devices = {}
        for begin, (key, tensor) in zip(begins, chosen, strict=True):
            count = tensor.nbytes
            self._content[key] = view[begin : begin + count]
            if not count:
                continue
            if tensor.is_cpu and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
                jobs.append((base + begin, tensor.data_ptr(), count))
                continue
            target = torch.frombuffer(self._memory, dtype=torch.uint8, count=count, offset=begin)
            target.view(tensor.dtype).view(tensor.shape).copy_(tensor, non_blocking=True)
            if not tensor.is_cpu:
                devices[str(tensor.device)] = tensor.device
        copy_memory(jobs)
        for device in devices.values():
            torch.accelerator.current_stream(device).synchronize()

    def bytes_of(self, key: PieceKey) -> memoryview | None:
        """The copy of a tensor; None where it was not wanted."""
        return self._content.get(key)


def _new_memory(size: int, *, pinned: bool) -> memoryview:
    """Memory of `size` bytes; pinned where CUDA allows it, so that a device copies straight into it."""
    torch = torch_module()
    if pinned:
        with suppress(RuntimeError):  # the limit of such memory; a copy then takes longer
            return memoryview(torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy())
    return memoryview(mmap.mmap(-1, max(size, mmap.PAGESIZE)))
