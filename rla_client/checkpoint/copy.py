"""Copying captured storages to their addresses: the only part of a save that grows with its bytes.

One memmove per storage. Above PARALLEL_MIN_BYTES a few short-lived threads share the work (memmove
runs without the GIL), because one core does not fill the memory bus. None of them has a
share in work when the call returns, also when an exception (Ctrl-C) passes through: nobody writes to a
slot afterwards.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from rla_client.checkpoint.tensors import Storage, torch_module
from rla_client.stream.arena import Arena, before_unmap

if TYPE_CHECKING:
    import torch

PARALLEL_MIN_BYTES = 8 << 20  # below, starting a thread costs more than it saves
CUT_SLACK_BYTES = 1 << 20  # a share may be so much larger before a storage is cut in two
POLL_S = 0.0001  # a copy takes milliseconds
MAX_COPY_THREADS = 4  # two already fill the memory bus of a laptop
_Job = tuple[int, int, int]  # destination, source, bytes


def copy_storages(storages: Sequence[Storage], addresses: Sequence[int]) -> None:
    """Copy each storage to its address; large amounts by several threads, devices by torch."""
    wait_for_copies()  # of a save that was interrupted
    jobs: list[_Job] = []
    devices: dict[str, Any] = {}
    total = 0
    for (address, nbytes, owner), to in zip(storages, addresses, strict=True):
        if address:
            jobs.append((to, address, nbytes))
            total += nbytes
        elif nbytes:
            _start_copy_from_device(owner, nbytes, to)
            devices[str(owner.device)] = owner.device
    _copy(jobs, total)
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


def copy_memory(jobs: Sequence[_Job]) -> None:
    """Copy each (destination, source, bytes) of this process's memory; large amounts by several threads."""
    wait_for_copies()
    _copy(jobs, sum(nbytes for _, _, nbytes in jobs))


def _copy(jobs: Sequence[_Job], total: int) -> None:
    threads = min(MAX_COPY_THREADS, len(os.sched_getaffinity(0)))
    if total < PARALLEL_MIN_BYTES or threads < 2:  # noqa: PLR2004
        _copy_all(jobs)
    else:
        _copy_in_parallel(jobs, total, threads)


def _copy_all(jobs: Sequence[_Job]) -> None:
    move = ctypes.memmove
    for to, source, nbytes in jobs:
        move(to, source, nbytes)


class _Share:
    """A part of the work that one thread does: the helper, or the caller when it comes first.

    `owner` may be asked again and again, so an interrupted caller can always find out who has it.
    """

    def __init__(self, jobs: Sequence[_Job]) -> None:
        self.jobs = jobs
        self.finished = False
        self._box: dict[str, str] = {}

    def owner(self, who: str) -> str:
        """`who`, if nobody has the share yet; else who has it."""
        return self._box.setdefault("owner", who)

    def wait(self) -> None:
        """Until the helper is done: polled, because an interrupted Event or lock is left in any state."""
        while not self.finished:
            time.sleep(POLL_S)

    def help(self) -> None:
        """Body of a helper thread."""
        try:
            if self.owner("helper") == "helper":
                _copy_all(self.jobs)
        finally:
            self.finished = True
            _running.discard(self)


_running: set[_Share] = set()


def wait_for_copies() -> None:
    """Return when no helper writes, or ever will: then memory that copies go to may be used anew.

    What a caller began and was thrown out of is found in `_running`, begun or not.
    """
    for share in list(_running):
        if share.owner("caller") != "caller":
            share.wait()
        _running.discard(share)


def _copy_in_parallel(jobs: Sequence[_Job], total: int, threads: int) -> None:
    first, *others = (_Share(share) for share in _shares(jobs, -(-total // threads)))
    try:
        _running.update(others)  # before any of them begins
        for share in others:
            try:
                _thread.start_new_thread(share.help, ())  # Thread.start waits on an Event
            except RuntimeError:  # no more threads: do it here
                break
        _copy_all(first.jobs)
        for share in others:
            if share.owner("caller") == "caller":  # its helper has not begun, and will not
                _copy_all(share.jobs)
    finally:
        _settle()


def _settle() -> None:
    """`wait_for_copies`, once more when a signal handler throws us out of it."""
    try:
        wait_for_copies()
    except BaseException:
        wait_for_copies()
        raise


def _shares(jobs: Sequence[_Job], share_bytes: int) -> list[list[_Job]]:
    """Split jobs into runs of about `share_bytes` each, cutting storages where need be."""
    shares: list[list[_Job]] = [[]]
    room = share_bytes
    for job in jobs:
        to, source, nbytes = job
        while nbytes > room + CUT_SLACK_BYTES:
            shares[-1].append((to, source, room))
            to, source, nbytes = to + room, source + room, nbytes - room
            shares.append([])
            room = share_bytes
        shares[-1].append((to, source, nbytes))
        room -= nbytes
        if room <= 0:
            shares.append([])
            room = share_bytes
    return [share for share in shares if share]


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


before_unmap.append(wait_for_copies)
