"""What a training in garage's style pays: an epoch, a snapshot, sampling by processes.

    python tests/bench/bench_experiment.py [--megabytes 400] [--repeats 7] [--counts 20 500] [--parts …]

*epoch*: what LocalRunner adds to an epoch that does nothing, without snapshots (goal: 1 ms), and with a
small one each.
*snapshot*: what `save_itr_params` takes in a training with an agent, best, median and worst, and the
ratio of the medians to a memcpy of the same bytes between touched buffers (goal: 1.5), beside
`pickle.dumps` and `torch.save`, which a loop would otherwise wait for.
*sampling*: steps per second of an environment that computes 1 ms per step (goal: 2 processes give
1.5 x LocalSampler), by turns, because other processes come and go.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import io
import os
import pickle
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from stage import Stage

EPOCHS = 1000
STEP_S = 0.001
BATCH = 200


class Nothing:
    """An algorithm whose epochs do nothing but count."""

    policy = None

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def train(self, runner: Any) -> None:
        """Note when each epoch begins."""
        from rla_client.launcher import tabular

        for epoch in runner.step_epochs():
            self.seconds.append(time.perf_counter())
            tabular.record("epoch", epoch)
            runner.step_itr += 1


class Busy:
    """An environment whose steps compute for STEP_S."""

    observation_space = action_space = None
    spec = None

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin."""
        del seed
        self.steps = 0
        return np.zeros(4), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Compute."""
        del action
        end = time.thread_time() + STEP_S
        while time.thread_time() < end:
            pass
        self.steps += 1
        return np.zeros(4), 1.0, self.steps >= 50, False, {}

    def close(self) -> None:
        """Nothing is open."""


def push_left(observation: np.ndarray) -> int:
    """A policy."""
    return 0


def times(call: Callable[[], object], after: Callable[[], object] = lambda: None) -> float:
    """Milliseconds of one call; `after` is not counted."""
    began = time.perf_counter()
    call()
    took = (time.perf_counter() - began) * 1e3
    after()
    return took


def show(what: str, found: list[float], floor: float, goal: str = "") -> None:
    """One line."""
    middle = statistics.median(found)
    ratio = f"{middle / floor:6.2f} x memcpy"
    print(f"  {what:<34} {min(found):9.2f} {middle:9.2f} {max(found):9.2f}   {ratio} {goal}", flush=True)


def epochs(folder: Path, mode: str) -> None:
    """Overhead of an epoch."""
    from rla_client.launcher import LocalRunner, wrap_experiment

    algo = Nothing()

    @wrap_experiment(log_dir=str(folder / f"epochs-{mode}"), snapshot_mode=mode, archive_launch_repo=False)
    def experiment(ctxt: Any) -> None:
        runner = LocalRunner(ctxt)
        runner.setup(algo, Busy())
        runner.train(EPOCHS)

    with contextlib.redirect_stdout(io.StringIO()):
        experiment()
    gaps = sorted(np.diff(algo.seconds) * 1e3)
    middle, late = statistics.median(gaps), gaps[int(len(gaps) * 0.99)]
    goal = " (goal: p50 <= 1)" if mode == "none" else ""
    print(
        f"  epoch of LocalRunner, snapshot_mode {mode!r}, {EPOCHS} of them, ms: "
        f"p50 {middle:.3f}, p99 {late:.3f}, max {gaps[-1]:.3f}{goal}",
        flush=True,
    )


def snapshots(folder: Path, total: int, counts: list[int], repeats: int) -> None:
    """Stall of a snapshot inside an experiment."""
    import torch

    from rla_client.launcher import Snapshotter, wrap_experiment
    from rla_client.launcher.outputs import current_outputs

    @wrap_experiment(log_dir=str(folder / "snapshots"), snapshot_mode="last", archive_launch_repo=False)
    def experiment(ctxt: Any, count: int) -> None:
        state = {"algo": {f"layer{i}": torch.rand(total // count // 4) for i in range(count)}}
        source, target = torch.rand(total // 4), torch.zeros(total // 4)
        shots = Snapshotter(ctxt.snapshot_dir, "last", 1)
        first = times(lambda: shots.save_itr_params(0, state), shots.wait)
        outputs = current_outputs()
        assert outputs is not None
        saver = outputs.snapshot_saver(Path(ctxt.snapshot_dir))
        assert saver is not None
        assert saver._pool is not None
        saver._pool.wait_prepared(60)
        plain, found = [], []
        for itr in range(1, repeats + 2):
            plain.append(times(lambda: ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)))
            found.append(times(lambda: shots.save_itr_params(itr, state), shots.wait))  # noqa: B023
        floor = statistics.median(plain[1:])
        print(f"{total / 1e6:.0f} MB in {count} tensors, ways {saver.ways}; ms best, median, worst")
        show("memcpy", plain[1:], floor)
        show("save_itr_params", found[1:], floor, "(goal: 1.5)")
        show("the first one", [first], floor)
        others: dict[str, Callable[[], object]] = {
            "pickle.dumps": lambda: pickle.dumps(state, protocol=5),
            "torch.save": lambda: torch.save(state, folder / "plain.pt"),
        }
        for what, call in others.items():
            show(what, [times(call) for _ in range(2)][1:], floor)

    for count in counts:
        experiment({"log_dir": str(folder / f"snapshots{count}")}, count=count)


def sampling(repeats: int) -> None:
    """Steps per second of both samplers, by turns."""
    from rla_client.launcher import LocalSampler, MultiprocessingSampler

    local = LocalSampler(push_left, Busy(), seed=1)
    multi = MultiprocessingSampler(push_left, Busy(), seed=1, n_workers=2)
    multi.obtain_samples(0, BATCH)
    rates: dict[str, list[float]] = {"LocalSampler": [], "MultiprocessingSampler, 2 workers": []}
    for itr in range(1, repeats + 1):
        for what, sampler in zip(rates, (local, multi), strict=True):
            began = time.perf_counter()
            steps = sampler.obtain_samples(itr, BATCH).n_steps
            rates[what].append(steps / (time.perf_counter() - began))
    multi.shutdown_worker()
    one, two = (statistics.median(found) for found in rates.values())
    for what, found in rates.items():
        print(f"  {what:<34} {statistics.median(found):9.0f} steps/s (best {max(found):.0f})")
    print(f"  ratio {two / one:.2f} (goal: 1.5 on two free cores; load average {os.getloadavg()[0]:.1f})")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--counts", type=int, nargs="*", default=[20, 500])
    parser.add_argument("--parts", nargs="*", default=["epoch", "snapshot", "sampling"])
    arguments = parser.parse_args()
    with Stage() as stage:
        os.environ.update(stage.environment)
        stage.agent()
        if "epoch" in arguments.parts:
            for mode in ("none", "last", "all"):
                epochs(stage.data, mode)
        if "snapshot" in arguments.parts:
            snapshots(stage.folder, arguments.megabytes * 1_000_000, arguments.counts, arguments.repeats)
        if "sampling" in arguments.parts:
            sampling(arguments.repeats)


if __name__ == "__main__":
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)
    main()
