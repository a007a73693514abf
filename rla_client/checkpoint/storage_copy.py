"""Copies of storages into memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.storage_table import Storage
from rla_client.checkpoint.torch_names import torch_module
from rla_client.stream.arena import Arena
from rla_client.stream.memcpy import Copy, copy_memory

if TYPE_CHECKING:
    import torch


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


def _start_copy_from_device(owner: torch.UntypedStorage, nbytes: int, to: int) -> None:
    """Queue one copy over the bus; the caller waits for the device's stream once for all of them."""
    torch = torch_module()
    target = torch.frombuffer((ctypes.c_ubyte * nbytes).from_address(to), dtype=torch.uint8)
    source = torch.empty(0, dtype=torch.uint8, device=owner.device).set_(owner)
    target.copy_(source, non_blocking=True)


def pin_memory(arena: Arena) -> None:
    """Let CUDA copy directly into an arena. Where it cannot, copies use the slower path by themselves."""
    if arena.on_close is not None:
        return
    torch = torch_module()
    arena.on_close = lambda: None  # also where CUDA refuses it
    if not torch.cuda.is_available():
        return
    runtime, address = torch.cuda.cudart(), arena.address
    if int(runtime.cudaHostRegister(address, arena.total, 0)) == 0:
        arena.on_close = lambda: runtime.cudaHostUnregister(address)
