"""Shards of a JAX array, as torch.distributed.checkpoint takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch.distributed.checkpoint import ChunkStorageMetadata
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from rla_client.contract.errors import ArgumentError

Offsets = tuple[int, ...]


class ShardedArray(torch.Tensor):  # type: ignore[misc]  # torch is not followed
    """The shards of one array on this process's devices; replicas of a shard count once.

    A tensor in name only, without elements of its own: torch's planners ask no other value for shards.

    Args:
        array: of JAX.
        host: gives a shard's data as a tensor in the memory of this machine.

    Attributes:
        placements: offsets and sizes of the shards; tells two layouts of one shape apart.
    """

    _array: jax.Array
    _tensors: dict[Offsets, torch.Tensor]
    placements: tuple[tuple[Offsets, Offsets], ...]
    __torch_function__ = torch._C._disabled_torch_function_impl  # noqa: SLF001 - as torch's docs have it for wrappers

    def __new__(cls, array: jax.Array, host: Callable[[jax.Array], torch.Tensor]) -> ShardedArray:  # noqa: PYI034 - Self is of Python 3.11
        """Keep the shards; raises ArgumentError where this process has none."""
        tensors: dict[Offsets, torch.Tensor] = {}
        for shard in array.addressable_shards:
            offsets = _offsets(shard.index, array.ndim)
            if offsets not in tensors:
                tensors[offsets] = host(shard.data)
        if not tensors:
            raise ArgumentError(f"an array of shape {array.shape} has no shard on a device of this process")
        dtype = next(iter(tensors.values())).dtype
        made: ShardedArray = torch.Tensor._make_wrapper_subclass(cls, array.shape, dtype=dtype)  # noqa: SLF001 - likewise
        made._array, made._tensors = array, tensors
        made.placements = tuple((at, tuple(tensor.shape)) for at, tensor in tensors.items())
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: object, types: object, args: object = (), kwargs: object = None
    ) -> object:
        del types, args, kwargs
        raise NotImplementedError(f"{func} of the shards of a JAX array")

    def __repr__(self) -> str:
        return f"ShardedArray({tuple(self.shape)}, {self.dtype}, shards={self.placements})"

    def array(self, numpy_of: Callable[[torch.Tensor], np.ndarray[Any, Any]]) -> jax.Array:
        """An array like the one given, of what the tensors hold now, on the same devices."""
        return jax.make_array_from_single_device_arrays(
            self._array.shape,
            self._array.sharding,
            [
                jax.device_put(numpy_of(self._tensors[_offsets(shard.index, self._array.ndim)]), shard.device)
                for shard in self._array.addressable_shards
            ],
        )

    # what torch's planners ask of a value with shards (torch.distributed.checkpoint.planner_helpers)

    def __create_write_items__(self, fqn: str, _value: object) -> list[WriteItem]:
        properties = TensorProperties(dtype=self.dtype)
        return [
            WriteItem(
                index=MetadataIndex(fqn, torch.Size(offsets)),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk=chunk, properties=properties, size=self.shape),
            )
            for offsets, chunk in zip(self._tensors, self.__create_chunk_list__(), strict=True)
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [
            ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=tensor.shape)
            for offsets, tensor in self._tensors.items()
        ]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        return self._tensors[tuple(index.offset or ())]


def _offsets(index: Sequence[slice], dimensions: int) -> Offsets:
    starts = [part.start or 0 for part in index]
    return (*starts, *[0] * (dimensions - len(starts)))
