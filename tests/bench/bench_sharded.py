"""What a training step waits for while a sharded checkpoint is saved, beside torch.distributed.checkpoint.

    python tests/bench/bench_sharded.py [--megabytes 100] [--tensors 200] [--repeats 9] [--ranks 2]

All ways by turns in one run. Prints milliseconds (best, median, worst) of rank 0 and the ratio of the medians
to a memcpy of the bytes that one rank holds. `whole` is the time until the checkpoint can be loaded. Goals: the
step 1.2 x memcpy, the first save 1 x `dcp.save`, whole 1.5 x `dcp.save`.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import shutil
import socket
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any


def milliseconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def one_rank(rank: int, asked: argparse.Namespace, root: Path, port: int) -> None:
    """Save in all ways; rank 0 prints."""
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as dist
    from torch.distributed.checkpoint import async_save, save
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    from rla_client.checkpoint.sharded_saver import Place, ShardedSaver

    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(asked.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (asked.ranks,))
    total = asked.megabytes * 1_000_000
    rows = max(1, total // asked.tensors // 4 // 64)
    state: dict[str, Any] = {
        f"layers.{number}": DTensor.from_local(torch.rand(rows, 64), mesh, [Shard(0)])
        for number in range(asked.tensors)
    }
    held = asked.tensors * rows * 64 * 4
    source, target = torch.rand(held // 4), torch.zeros(held // 4)
    found: dict[str, list[float]] = {}

    def measure(what: str, call: Callable[[], object]) -> None:
        dist.barrier()
        found.setdefault(what, []).append(milliseconds(call))

    savers = [
        ShardedSaver(Place(root, "b" * 32, number), rank, asked.ranks) for number in range(asked.repeats + 1)
    ]
    saver = savers[0]
    for number in range(asked.repeats + 1):
        measure("memcpy", lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), held))
        path = root / f"dcp{number}"
        measure("dcp.save", lambda: save(state, checkpoint_id=path))  # noqa: B023
        waiting: list[Any] = []
        path = root / f"async{number}"
        measure("dcp.async_save", lambda: waiting.append(async_save(state, checkpoint_id=path)))  # noqa: B023
        waiting.pop().result()
        began = time.perf_counter()
        measure("save_sharded", lambda: waiting.append(saver.save(state, "checkpoint", number, order=number)))  # noqa: B023
        assert waiting[0].wait("whole", 120), waiting[0].problem
        found.setdefault("save_sharded, whole", []).append((time.perf_counter() - began) * 1e3)
        if number < 4:
            fresh = savers[number + 1]
            measure(
                "first save_sharded", lambda: waiting.append(fresh.save(state, "first", number, order=number))
            )  # noqa: B023
            assert waiting[1].wait("whole", 120), waiting[1].problem
        dist.barrier()
        if rank == 0:
            for old in root.iterdir():
                if old.name != ".rla-parts":
                    shutil.rmtree(old)
    for one in savers:
        one.close()
    if rank == 0:
        floor = statistics.median(found["memcpy"][1:])
        stock = statistics.median(found["dcp.save"][1:])
        print(
            f"{held / 1e6:.0f} MB in {asked.tensors} tensors on each of {asked.ranks} ranks: best ms, median, max"
        )
        for what, values in found.items():
            kept = values if what.startswith("first") else values[1:]
            middle = statistics.median(kept)
            print(
                f"  {what:<24} {min(kept):9.2f} {middle:9.2f} {max(kept):9.2f}   {middle / floor:6.2f} x memcpy"
                f"   {middle / stock:5.2f} x dcp.save"
            )
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100, help="that each rank holds")
    parser.add_argument("--tensors", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=2)
    asked = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=one_rank, args=(rank, asked, Path(folder), port))
            for rank in range(asked.ranks)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
