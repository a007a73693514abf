"""What a training step waits for while a sharded checkpoint is saved, beside torch.distributed.checkpoint.

    python tests/bench/bench_sharded.py [--megabytes 100] [--tensors 200] [--repeats 9] [--ranks 2]

All ways by turns in one run. Prints milliseconds (best, median, worst) of rank 0 and the ratio of the
medians to a memcpy of the bytes that one rank holds. `whole` is the time until the checkpoint can be loaded.
Goals: the step 1.2 x memcpy, the first save 1 x `dcp.save`, whole 1.5 x `dcp.save`.
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

from rla_client.checkpoint.sharded_save import CheckpointPlace
from rla_client.checkpoint.sharded_saver import ShardedSaver


class Rank:
    """One rank, with its state and its measurements."""

    def __init__(self, rank: int, asked: argparse.Namespace, root: Path, port: int) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        told = {"RANK": rank, "WORLD_SIZE": asked.ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in told.items()})
        dist.init_process_group("gloo")
        self.rank, self.ranks, self.root, self.dist = rank, asked.ranks, root, dist
        mesh = init_device_mesh("cpu", (asked.ranks,))
        rows = max(1, asked.megabytes * 1_000_000 // asked.tensors // 4 // 64)
        self.state: dict[str, Any] = {
            f"layers.{number}": DTensor.from_local(torch.rand(rows, 64), mesh, [Shard(0)])
            for number in range(asked.tensors)
        }
        self.held = asked.tensors * rows * 64 * 4
        self._source, self._target = torch.rand(self.held // 4), torch.zeros(self.held // 4)
        self.found: dict[str, list[float]] = {}
        self.saver = self.new_saver(1)

    def new_saver(self, epoch: int) -> ShardedSaver:
        """One that has not saved yet."""
        return ShardedSaver(CheckpointPlace(self.root, "b" * 32, epoch), self.rank, self.ranks)

    def measure(self, what: str, call: Callable[[], Any]) -> Any:
        """What the call gives; all ranks begin it together."""
        self.dist.barrier()
        began = time.perf_counter()
        given = call()
        self.found.setdefault(what, []).append((time.perf_counter() - began) * 1e3)
        return given

    def save(self, what: str, saver: ShardedSaver, number: int) -> None:
        """Save by one saver, and wait until that is whole."""
        began = time.perf_counter()
        save = self.measure(what, lambda: saver.save(self.state, "checkpoint", number, order=number + 1))
        assert save.wait("whole", 120), save.problem
        self.found.setdefault(f"{what}, whole", []).append((time.perf_counter() - began) * 1e3)

    def one_turn(self, number: int) -> None:
        """Each way once."""
        from torch.distributed.checkpoint import async_save, save

        target, source = self._target.data_ptr(), self._source.data_ptr()
        self.measure("memcpy", lambda: ctypes.memmove(target, source, self.held))
        self.measure("dcp.save", lambda: save(self.state, checkpoint_id=self.root / "stock"))
        path = self.root / "async"
        self.measure("dcp.async_save", lambda: async_save(self.state, checkpoint_id=path)).result()
        self.save("save_sharded", self.saver, 2 * number)
        fresh = self.new_saver(number + 2)
        self.save("first save_sharded", fresh, 2 * number + 1)
        fresh.close()
        self.dist.barrier()
        if self.rank == 0:
            for old in self.root.iterdir():
                if old.name != ".rla-parts":
                    shutil.rmtree(old)
        self.dist.barrier()

    def show(self) -> None:
        """The table; the first turn does not count."""
        floor, stock = (statistics.median(self.found[what][1:]) for what in ("memcpy", "dcp.save"))
        shape = f"{self.held / 1e6:.0f} MB in {len(self.state)} tensors on each of {self.ranks} ranks"
        print(f"{shape}; best ms, median, max")
        for what, values in self.found.items():
            middle = statistics.median(values[1:])
            times = f"{min(values[1:]):9.2f} {middle:9.2f} {max(values[1:]):9.2f}"
            print(f"  {what:<26} {times} {middle / floor:8.2f} x memcpy {middle / stock:7.2f} x dcp.save")


def one_rank(rank: int, asked: argparse.Namespace, root: Path, port: int) -> None:
    """What the process of a rank does."""
    bench = Rank(rank, asked, root, port)
    for number in range(asked.repeats + 1):
        bench.one_turn(number)
    bench.saver.close()
    if rank == 0:
        bench.show()
    bench.dist.destroy_process_group()


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
