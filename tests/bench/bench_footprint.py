"""What is paid without logging anything: import, opening a run, the agent's memory, its idle CPU.

python tests/bench/bench_footprint.py [--runs 100] [--idle-s 60]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stage import REPOSITORY, Stage, cpu_seconds, pss_bytes, tree, wait_until

IMPORT_BUDGET_MS, OPEN_BUDGET_MS, PSS_BUDGET_MB, IDLE_BUDGET = 60.0, 150.0, 150.0, 0.005
IMPORT = "from rla_client import logger, exp_manager"
IMPORT_TURNS = 21
ROWS = 1000
SETTLE_S = 8.0  # until streams that are quiet sleep
METRICS = [f"group/metric_{number}" for number in range(10)]


def client(chosen: argparse.Namespace) -> None:
    """Open runs, write rows into each, stay alive until stdin closes."""
    from rla_client import exp_manager
    from rla_client.contract.filesystem.atomic_write import write_atomic
    from rla_client.run.plain_run import open_plain_run

    folder = Path(chosen.client)
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "train.py").write_text("print('training')\n")
    opened = []
    for number in range(chosen.runs):
        began = time.perf_counter()
        exp_manager.configure(
            "bench",
            rla_config={"LOG_USED": ["csv", "tensorboard", "log"]},
            data_root=folder / "data",
            code_root=project,
        )
        exp_manager.set_hyper_param(seed=number, lr=0.1)
        exp_manager.add_record_param(["seed"])
        if number < chosen.open:
            exp_manager.log_files_gen()
            opened.append(1000 * (time.perf_counter() - began))
            time.sleep(0.5)
    exp_manager.close()
    runs = [
        open_plain_run(
            str(folder / "plain" / str(os.getpid()) / str(number)),
            ("csv", "tensorboard", "log"),
            None,
            None,
            "",
            {},
        )
        for number in range(chosen.runs)
    ]
    for row in range(ROWS):
        for run in runs:
            for key in METRICS:
                run.logger.record(key, row * 0.5)
            run.logger.dump()
    done = all(run.outbox is not None and run.outbox.flush(120) for run in runs)
    write_atomic(chosen.result, json.dumps({"open": opened, "done": done}).encode())
    sys.stdin.read()


def bench_import() -> None:
    """Import time over a bare interpreter: alternating starts, the median of the differences."""

    environment = {**os.environ, "PYTHONPYCACHEPREFIX": tempfile.mkdtemp(prefix="rla-bench-")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: compiled once

    def start(code: str) -> tuple[float, float]:
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return 1000 * (time.perf_counter() - began), 1000 * cpu

    codes = ("pass", IMPORT, "import zmq, msgpack")
    for code in codes:
        start(code)
    turns = [[start(code) for code in codes] for _ in range(IMPORT_TURNS)]
    for number, code in enumerate(codes[1:], 1):
        wall = statistics.median(turn[number][0] - turn[0][0] for turn in turns)
        cpu = statistics.median(turn[number][1] - turn[0][1] for turn in turns)
        budget = f" (budget {IMPORT_BUDGET_MS:g} ms)" if code == IMPORT else ""
        print(f"`{code}`: {wall:.1f} ms over bare Python{budget}, {cpu:.1f} ms of CPU")
    print(f"  medians of {IMPORT_TURNS}; load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    shutil.rmtree(environment["PYTHONPYCACHEPREFIX"], ignore_errors=True)


def idle_share(pid: int, seconds: float) -> float:
    """Part of one core that a process and its children use."""
    before = {one: cpu_seconds(one) for one in tree(pid)}
    began = time.monotonic()
    time.sleep(seconds)
    used = sum(cpu_seconds(one) - before.get(one, 0.0) for one in tree(pid))
    return used / (time.monotonic() - began)


def bench_runs(count: int, processes: int, idle_s: float) -> None:
    """Memory and idle CPU with no run and with many live ones."""
    with Stage("AGENT:\n  autostart: false\n") as stage:
        pid = stage.agent()
        time.sleep(1)
        empty = pss_bytes(pid) / 1e6
        alone = idle_share(pid, idle_s)
        first = stage.folder / "opened.json"
        command = [sys.executable, sys.argv[0], "--client", str(stage.folder), "--result", str(first)]
        subprocess.run([*command, "--runs", "10", "--open", "10"], env=stage.environment, stdin=subprocess.DEVNULL,  # noqa: E501
                       stdout=subprocess.DEVNULL, check=True)  # fmt: skip
        opened = json.loads(first.read_text())["open"]
        children, results = [], []
        for number in range(processes):
            results.append(stage.folder / f"result-{number}.json")
            command = [
                sys.executable,
                sys.argv[0],
                "--client",
                str(stage.folder),
                "--result",
                str(results[-1]),
            ]
            children.append(
                subprocess.Popen(
                    [*command, "--runs", str(count // processes)],
                    env=stage.environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                )
            )
        try:
            wait_until(lambda: all(path.exists() for path in results), 240, what="the runs")
            found = [json.loads(path.read_text()) for path in results]
            time.sleep(SETTLE_S)
            full = pss_bytes(pid) / 1e6
            quiet = idle_share(pid, idle_s)
        finally:
            for child in children:
                child.communicate()
        done = all(part["done"] for part in found)
        print(
            f"opening a run: configure to log_files_gen, median {statistics.median(opened):.1f} ms, "
            f"max {max(opened):.1f} ms (budget {OPEN_BUDGET_MS:g} ms)"
        )
        print(
            f"memory: {empty:.1f} MB PSS without runs, {full:.1f} MB with {count} live runs of {ROWS:,} rows "
            f"(budget {PSS_BUDGET_MB:g} MB); all durable: {done}"
        )
        print(
            f"idle: {100 * alone:.2f} % of a core without runs, {100 * quiet:.2f} % with {count} quiet live runs "  # noqa: E501
            f"(budget {100 * IDLE_BUDGET:g} %); load of the machine {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--open", type=int, default=0, help=argparse.SUPPRESS)
    for name in ("--client", "--result"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        client(chosen)
        return
    bench_import()
    bench_runs(chosen.runs, chosen.processes, chosen.idle_s)


if __name__ == "__main__":
    main()
