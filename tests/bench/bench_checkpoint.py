"""What a training step waits for while a checkpoint is saved, side by side with the alternatives.

    python tests/bench/bench_checkpoint.py [--megabytes 400] [--repeats 9]

Prints milliseconds (best, median, worst) and the ratio of the medians to a memcpy of the same bytes
between buffers that were touched before. `arena` gives its slots back at once, as if the agent were
as fast as the loop; `first` is a saver's first save, before there is an arena large enough.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rla_agent.jobs.checkpoint_job import run_checkpoint
from rla_agent.jobs.job_source import release
from rla_client.checkpoint.saver import CheckpointSaver
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.job.checkpoint_job import CheckpointJob
from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack
from rla_client.contract.spool.segments import segment_numbers, segment_path
from rla_client.run.opening_frame import make_opening
from rla_client.stream.outbox import Outbox

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.checkpoint_lab import lock_held


class Bench:
    """One outbox, and the agent's part of giving slots back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places = Places(root / "state", root / "runtime")
        self.places.create()
        opening = make_opening(root="/", folders={"log": "."}, sinks=(), names={}, item={})
        self.outbox = Outbox(self.places, opening, AgentConfig(autostart=False))
        self.folder = root / "checkpoint"
        self.folder.mkdir()
        assert self.outbox.stream_folder is not None
        self.stream = self.outbox.stream_folder

    def last_job(self) -> CheckpointJob:
        """The newest job in the spool."""
        number = segment_numbers(self.stream)[-1]
        frames = list(iter_frames(segment_path(self.stream, number).read_bytes()))
        kind, fields = unpack(
            next(frame.payload for frame in reversed(frames) if frame.kind == FrameKind.JOB)
        )
        assert kind == "checkpoint"
        return CheckpointJob.decode(fields)

    def finish(self, *, write: bool) -> None:
        """Do the newest job, or only give its slot or blob back."""
        job = self.last_job()
        if write:
            run_checkpoint(job, self.stream / "blobs", self.folder / job.final_name)
        release(job, self.stream / "blobs")


def times(
    call: Callable[[], object], repeats: int, after: Callable[[], object] = lambda: None
) -> list[float]:
    """Milliseconds of each call; `after` is not counted."""
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        found.append((time.perf_counter() - started) * 1e3)
        after()
    return found


def show(what: str, found: list[float], floor: float) -> None:
    """One line."""
    middle = statistics.median(found)
    print(f"  {what:<34} {min(found):9.2f} {middle:9.2f} {max(found):9.2f}   {middle / floor:6.2f} x memcpy")


def one_shape(bench: Bench, total: int, count: int, repeats: int) -> None:
    """All ways for `total` bytes in `count` tensors."""
    state: dict[str, Any] = {f"layers.{i}.weight": torch.rand(total // count // 4) for i in range(count)}
    source, target = torch.rand(total // 4), torch.zeros(total // 4)
    print(f"{total / 1e6:.0f} MB in {count} tensors{'':<16} best ms    median       max")
    with lock_held(bench.places):
        saver = CheckpointSaver(bench.outbox, bench.folder)
        assert saver._pool is not None
        for _ in range(2):  # the first one waits for the small arena that a saver begins with
            saver._prepare(total + (1 << 20))
            saver._pool.wait_prepared(60)
        plain: list[float] = []
        threaded: list[float] = []
        found: list[float] = []
        for _ in range(repeats + 1):  # by turns, because other processes come and go
            plain += times(lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), total), 1)
            threaded += times(lambda: target.copy_(source), 1)
            found += times(lambda: saver.save(state), 1, lambda: bench.finish(write=False))
        assert saver.ways["arena"] == repeats + 1, saver.ways
        floor = statistics.median(plain[1:])
        show("memcpy", plain[1:], floor)
        show("torch copy_, all threads", threaded[1:], floor)
        show("save", found[1:], floor)
        saver.save(state)
        show("  then, in the agent", times(lambda: bench.finish(write=True), 1), floor)
        saver.close()
        first_times(bench, state, floor)
    async_times(bench.root, state, repeats, floor)


def first_times(bench: Bench, state: dict[str, Any], floor: float) -> None:
    """First saves of new savers and torch.save, by turns, because the disk's mood changes."""
    path = bench.root / "torch.pt"
    first: list[float] = []
    plain: list[float] = []
    for _ in range(4):
        plain += times(lambda: torch.save(state, path), 1, path.unlink)
        saver = CheckpointSaver(bench.outbox, bench.folder)
        assert saver._pool is not None
        saver._pool.wait_prepared(60)
        first += times(lambda: saver.save(state), 1, lambda: bench.finish(write=False))  # noqa: B023
        saver.close()
    show("torch.save", plain[1:], floor)
    show("first save", first[1:], floor)


def async_times(root: Path, state: dict[str, Any], repeats: int, floor: float) -> None:
    """torch.distributed.checkpoint.async_save, waiting for each to end before the next."""
    import torch.distributed.checkpoint as dcp

    waiting: list[Any] = []
    counter = iter(range(1000))

    def save() -> None:
        waiting.append(dcp.async_save(state, checkpoint_id=str(root / f"dcp{next(counter)}")))

    def wait() -> None:
        waiting.pop().result()

    with contextlib.redirect_stderr(open(os.devnull, "w")):  # it warns each time
        save()
        wait()
        show("dcp.async_save", times(save, min(repeats, 3), wait), floor)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--counts", type=int, nargs="*", default=[20, 500, 2000])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rla-bench-") as folder:
        bench = Bench(Path(folder))
        one_shape(bench, 1_000_000, 200, arguments.repeats)
        for count in arguments.counts:
            one_shape(bench, arguments.megabytes * 1_000_000, count, arguments.repeats)
        bench.outbox.close("finished", "")


if __name__ == "__main__":
    main()
