"""What replication at full rate costs the training process: its hot path with and without, in turns.

    python tests/bench/bench_invisible.py [--rounds 8] [--seconds 2]

The trainer is pinned to one core; agent, replicator and sshd share another one (the budget: the p50 of
10 x record_tabular + dump_tabular within 10 % of that without). The trainer logs a row after each
200 us of work. Replication is paused and resumed between rounds of one and the same process, so that both
see the same machine; everything that is sent lies on /dev/shm where there is one.
"""

from __future__ import annotations

# ruff: noqa: E402 - the paths come first
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from stage import Stage, quantiles
from support.replication_lab import Node, Sshd
from support.waiting import wait_until

from rla_agent.replicate import command_markers
from rla_agent.replicate.registry import register

WORK_S = 200e-6
FILE_BYTES = 8 << 20
RATE_BYTES_S = 400 << 20  # more than one core sends; the files must last
BUDGET = 1.1


def trainer(folder: Path) -> None:
    """Log for as many seconds as each line of stdin says; answer with the quantiles."""
    from bench_hot_path import KEYS, our_step

    from rla_client import exp_manager

    settings = {"LOG_USED": ["csv", "tensorboard"], "AGENT": {"autostart": False}}
    exp_manager.configure("bench", rla_config=settings, data_root=folder / "data", code_root=folder)
    exp_manager.log_files_gen()
    step = our_step([0.5] * len(KEYS))
    taken(step, 0.5)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(quantiles(taken(step, float(line)))), flush=True)


def taken(step: Callable[[], None], seconds: float) -> list[int]:
    """Nanoseconds of each step."""
    clock = time.perf_counter_ns
    found = []
    end = clock() + int(seconds * 1e9)
    while (now := clock()) < end:
        step()
        found.append(clock() - now)
        work_until = now + int(WORK_S * 1e9)
        while clock() < work_until:
            pass
    return found


def sent(server: Sshd) -> int:
    """Bytes on the master, those of unfinished files too."""
    return sum(path.stat().st_size for path in server.root.rglob("*.bin")) + sum(
        path.stat().st_size for path in server.root.rglob(".rla-tmp-*")
    )


def at_rest(server: Sshd) -> bool:
    """Whether nothing more comes in."""
    before = sent(server)
    time.sleep(0.5)
    return sent(server) == before


def more_than(server: Sshd, before: int) -> bool:
    """Whether more has come since."""
    return sent(server) > before


def compare(stage: Stage, node: Node, server: Sshd, chosen: argparse.Namespace, core: int) -> None:
    """Rounds without and with replication."""
    command = ["taskset", "-c", str(core), sys.executable, __file__, "--trainer", str(stage.folder)]
    process = subprocess.Popen(
        command, env=stage.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    while process.stdout.readline().strip() != "ready":
        pass
    found: dict[str, list[list[float]]] = {"without": [], "with": []}
    rates = []
    for _ in range(chosen.rounds):
        for name, times in found.items():
            if name == "without":
                command_markers.pause(node.state)
                wait_until(lambda: at_rest(server), 60)
            else:
                command_markers.resume(node.state)
                wait_until(partial(more_than, server, sent(server)), 60)
            began, before = time.monotonic(), sent(server)
            process.stdin.write(f"{chosen.seconds}\n")
            times.append(json.loads(process.stdout.readline()))
            if name == "with":
                rates.append((sent(server) - before) / (time.monotonic() - began))
    process.stdin.close()
    process.wait()
    show(found, rates)


def show(found: dict[str, list[list[float]]], rates: list[float]) -> None:
    """Print medians over the rounds."""
    middle: dict[str, Any] = {}
    for name, rounds in found.items():
        middle[name] = [statistics.median(values) for values in zip(*rounds, strict=True)]
        p50, p99, p999, most = middle[name]
        print(f"  {name:<8} p50 {p50:7.2f}  p99 {p99:7.2f}  p99.9 {p999:8.2f}  max {most:9.1f} us")
    ratio = middle["with"][0] / middle["without"][0]
    print(
        f"  ratio of p50 {ratio:.3f} (budget {BUDGET}), replicated meanwhile "
        f"{statistics.median(rates) / 2**20:.0f} MiB/s (lowest round {min(rates) / 2**20:.0f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--trainer", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.trainer:
        trainer(Path(chosen.trainer))
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("needs two cores")
        return
    os.sched_setaffinity(0, {cores[1]})  # and whatever starts from here
    base = Path(tempfile.mkdtemp(prefix="rla-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    server = Sshd(base / "sshd").start()
    node = Node(base / "node", server.remote())
    try:
        folder = node.item("results")
        block = os.urandom(FILE_BYTES)
        for number in range(int(chosen.rounds * (chosen.seconds + 1) * RATE_BYTES_S / FILE_BYTES / 2)):
            (folder / f"{number}.bin").write_bytes(block)
        node.run(state="finished")
        register(node.state, node.root, node.config)
        command_markers.pause(node.state)
        node.start()
        print(f"trainer on core {cores[0]}, agent, replicator and sshd on core {cores[1]}")
        with Stage("AGENT:\n  autostart: false\n") as stage:
            stage.agent()
            compare(stage, node, server, chosen, cores[0])
    finally:
        node.kill()
        server.stop()
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
