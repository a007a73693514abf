"""What a training step pays for logging: 10 x record_tabular + dump_tabular, beside the raw floor.

    python tests/bench/bench_hot_path.py [--steps 100000]

The floor is msgpack.packb + os.write + a zmq NOBLOCK send of the same row, in a loop of its own, to a
receiver that takes everything. Beside a training it keeps a Packer: packb allocates a megabyte for each call,
which costs little in a hot loop alone. Steps of both alternate in blocks within one process, so that
both see the same machine. Times are microseconds of one step; the ratio is of medians.

The states of R8: agent up, absent, stopped, and with a master that does not answer. The longest
times are mostly the machine's; the last case tells how much of them is ours: CPU time of the longest
steps, and the longest of those during which the kernel gave the processor to nobody else.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from stage import Stage, quantiles

KEYS = [
    f"{group}/{name}" for group in ("loss", "perf") for name in ("policy", "value", "kl", "entropy", "return")
]
BLOCK = 1000
TARGET_P50, TARGET_P99_US, TARGET_P99 = 2.5, 100.0, 3.0
TARGET_TENSORBOARDX = 20.0
TARGET_MAX_US = 20_000.0  # over the floor's max
MASTER_DOWN = """
LOG_USED: [csv, tensorboard]
SEND_LOG_FILE: true
REMOTE_SETTING:
  ftp_server: 127.0.0.1
  port: 9
  username: nobody
  remote_data_root: /nowhere
AGENT:
  autostart: false
"""


def floor_step(folder: Path, values: list[float], *, keep_packer: bool) -> Callable[[], None]:
    """The least that a durable hand-over of the row can cost, as one call."""
    import msgpack
    import zmq

    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(f"ipc://{folder}/floor.sock")
    descriptor = os.open(folder / "floor.bin", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    packb = msgpack.Packer().pack if keep_packer else msgpack.packb
    write, send, noblock, again = os.write, socket.send, zmq.NOBLOCK, zmq.Again
    keys = KEYS

    def step() -> None:
        data = packb(dict(zip(keys, values, strict=True)))
        write(descriptor, data)
        try:  # suppress() would cost the floor 0.2 us
            send(data, noblock)
        except again:
            return

    return step


def our_step(values: list[Any]) -> Callable[[], None]:
    """A training step's logging, as a user writes it."""
    from rla_client import logger, time_step_holder

    time_step_holder.set_time(1)
    record, dump = logger.record_tabular, logger.dump_tabular
    k0, k1, k2, k3, k4, k5, k6, k7, k8, k9 = KEYS
    v0, v1, v2, v3, v4, v5, v6, v7, v8, v9 = values

    def step() -> None:
        record(k0, v0)
        record(k1, v1)
        record(k2, v2)
        record(k3, v3)
        record(k4, v4)
        record(k5, v5)
        record(k6, v6)
        record(k7, v7)
        record(k8, v8)
        record(k9, v9)
        dump()

    return step


def tensorboardx_step(folder: Path, values: list[float]) -> Callable[[], None]:
    """The same row through tensorboardX."""
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder / "tbx"))
    counter = iter(range(1 << 40))

    def step() -> None:
        now = next(counter)
        for key, value in zip(KEYS, values, strict=True):
            writer.add_scalar(key, value, now)

    return step


def longest(step: Callable[[], None], count: int, pause_s: float) -> dict[str, float]:
    """Where the longest of `count` steps come from; microseconds."""
    clock, cpu_clock = time.perf_counter_ns, time.thread_time_ns
    cpu_most = wall_most = alone_most = 0
    interrupted = 0
    for _ in range(count):
        before, switches = (clock(), cpu_clock()), resource.getrusage(resource.RUSAGE_THREAD)
        step()
        wall, cpu = clock() - before[0], cpu_clock() - before[1]
        after = resource.getrusage(resource.RUSAGE_THREAD)
        wall_most, cpu_most = max(wall_most, wall), max(cpu_most, cpu)
        if after.ru_nivcsw == switches.ru_nivcsw:
            alone_most = max(alone_most, wall)
        else:
            interrupted += 1
        if pause_s:
            time.sleep(pause_s)
    return {
        "max": wall_most / 1e3,
        "cpu": cpu_most / 1e3,
        "alone": alone_most / 1e3,
        "interrupted": interrupted,
    }


def training() -> Callable[[], object]:
    """Some milliseconds of a training, after which no cache holds what a step of ours needs."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(256, 64)

    def update() -> None:
        for _ in range(4):
            optimizer.zero_grad()
            model(inputs).pow(2).mean().backward()
            optimizer.step()

    return update


def measure(
    steps: dict[str, tuple[Callable[[], None], int]], between: Callable[[], object] | None
) -> dict[str, list[int]]:
    """Nanoseconds of each step; the kinds alternate in blocks."""
    taken: dict[str, list[int]] = {name: [] for name in steps}
    clock = time.perf_counter_ns
    for name, (step, _) in steps.items():
        for _ in range(200):
            step()
        del name
    while any(len(taken[name]) < count for name, (_, count) in steps.items()):
        for name, (step, count) in steps.items():
            times = taken[name]
            for _ in range(min(BLOCK, count - len(times))):
                before = clock()
                step()
                times.append(clock() - before)
                if between is not None:
                    between()
    return taken


def client(chosen: argparse.Namespace) -> None:
    """Measure in a process of its own; prints JSON."""
    folder = Path(chosen.client)
    from rla_client import exp_manager

    sinks = chosen.sinks.split(",")
    config: Any = {"LOG_USED": sinks, "AGENT": {"autostart": False}}
    if chosen.master_down:
        config = folder / "master_down.yaml"
        config.write_text(MASTER_DOWN)
    exp_manager.configure("bench", rla_config=config, data_root=folder / "data", code_root=folder)
    exp_manager.log_files_gen()
    numbers = [random.random() for _ in KEYS]
    values: list[Any] = numbers
    if chosen.values == "mixed":
        import numpy as np
        import torch

        values = [np.float32(x) if i % 2 else torch.tensor(x) for i, x in enumerate(numbers)]
    steps: dict[str, tuple[Callable[[], None], int]] = {
        "floor": (floor_step(folder, numbers, keep_packer=chosen.training), chosen.steps),
        "ours": (our_step(values), chosen.steps),
    }
    if chosen.tensorboardx:
        steps["tensorboardx"] = (tensorboardx_step(folder, numbers), min(chosen.steps, 5000))
    gc.collect()
    gc.freeze()
    if chosen.longest:
        apart = {name: longest(step, count, chosen.pause) for name, (step, count) in steps.items()}
        Path(chosen.result).write_text(json.dumps(apart))
        return
    between = partial(time.sleep, chosen.pause) if chosen.pause else training() if chosen.training else None
    found = {name: quantiles(times) for name, times in measure(steps, between).items()}
    Path(chosen.result).write_text(json.dumps(found))


def take_everything(folder: Path) -> subprocess.Popen[bytes]:
    """A process that receives what the floor sends."""
    code = (
        "import sys, zmq\n"
        "s = zmq.Context().socket(zmq.ROUTER); s.bind('ipc://' + sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "while True: s.recv_multipart()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder / "floor.sock")], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def run_case(title: str, chosen: argparse.Namespace, *options: str, agent: str = "up", **extra: int) -> None:
    """One line of the report."""
    with Stage("AGENT:\n  autostart: false\n") as stage, tempfile.NamedTemporaryFile("r") as result:
        receiver = take_everything(stage.folder)
        try:
            if agent != "absent":
                pid = stage.agent()
                if agent == "stopped":
                    os.kill(pid, signal.SIGSTOP)
            steps = str(extra.get("steps", chosen.steps))
            stage.client("--steps", steps, "--result", result.name, *options, stdout=subprocess.DEVNULL)
        finally:
            receiver.kill()
            receiver.wait()
        found = json.loads(result.read())
    if "--longest" in options:
        show_longest(title, found)
        return
    show(title, found, limits=not {"--values", "--sinks", "--training"} & set(options))


def show(title: str, found: dict[str, list[float]], *, limits: bool) -> None:
    """Print one case."""
    floor, ours = found["floor"], found["ours"]
    print(f"{title}")
    for name, times in found.items():
        p50, p99, p999, most = times
        print(f"  {name:<13} p50 {p50:8.2f}  p99 {p99:8.2f}  p99.9 {p999:9.2f}  max {most:10.1f} us")
    limit = max(TARGET_P99_US, TARGET_P99 * floor[1])
    budget = f" (budget {TARGET_P50})", f" (budget {limit:.0f} us)"
    print(
        f"  ratio of p50 {ours[0] / floor[0]:.2f}{budget[0] if limits else ''}, "
        f"p99 {ours[1]:.1f} us{budget[1] if limits else ''}, max {ours[3] - floor[3]:+.0f} us over the floor's"  # noqa: E501
        f"{f' (budget {TARGET_MAX_US:+.0f} us)' if limits else ''}"
    )
    if "tensorboardx" in found:
        ratio = found["tensorboardx"][0] / ours[0]
        print(f"  {ratio:.1f} x faster than tensorboardX add_scalar (goal {TARGET_TENSORBOARDX:g} x)")
    sys.stdout.flush()


def show_longest(title: str, found: dict[str, dict[str, float]]) -> None:
    """Print what the longest steps consist of."""
    print(title)
    for name, most in found.items():
        print(
            f"  {name:<13} max {most['max']:10.1f} us, of its own: at most {most['cpu']:.1f} us of CPU, "
            f"{most['alone']:.1f} us where no other process came between "
            f"({most['interrupted']:.0f} steps where one did)",
            flush=True,
        )


def main() -> None:
    """Measure all states of the agent, then other values and sinks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--only", default="", help="cases whose title holds this text")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--sinks", default="csv,tensorboard", help=argparse.SUPPRESS)
    parser.add_argument("--values", default="float", help=argparse.SUPPRESS)
    parser.add_argument("--pause", type=float, default=0.0, help=argparse.SUPPRESS)
    for name in ("--tensorboardx", "--master-down", "--longest", "--training"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        client(chosen)
        return
    few = min(chosen.steps, 20_000)
    cases: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
        ("agent up", (), {}),
        ("agent up, 1 ms of work between steps", ("--pause", "0.001"), {"steps": min(chosen.steps, 5000)}),
        ("agent up, updates of a small network between steps", ("--training",), {"steps": few // 10}),
        ("agent absent", (), {"agent": "absent"}),
        ("agent stopped (SIGSTOP)", (), {"agent": "stopped"}),
        ("agent up, master down", ("--master-down",), {}),
        ("against tensorboardX", ("--tensorboardx",), {"steps": few}),
        ("numpy float32 and torch values mixed", ("--values", "mixed"), {"steps": few}),
        ("with log in LOG_USED", ("--sinks", "csv,tensorboard,log"), {"steps": few}),
        ("with stdout (to /dev/null) in LOG_USED", ("--sinks", "csv,tensorboard,stdout"), {"steps": few}),
        ("what the longest steps are", ("--longest",), {}),
        (
            "what the longest steps are, 1 ms of work between",
            ("--longest", "--pause", "0.001"),
            {"steps": min(chosen.steps, 5000)},
        ),
    ]
    for title, options, how in cases:
        if chosen.only in title:
            run_case(title, chosen, *options, **how)


if __name__ == "__main__":
    main()
