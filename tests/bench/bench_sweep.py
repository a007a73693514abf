"""What `rla sweep` adds to runs that do nothing, beside the least that starting them takes.

    python tests/bench/bench_sweep.py [--runs 1000] [--repeats 3] [--program true] [--on ray]

*bare*: a pool of two threads that starts the program by subprocess. *xargs*: `xargs -P 2`. *least*: one loop
that does what a sweep has to keep: posix_spawn in a session of its own, variables of its own, a file for the
output and one for the exit status. *with a shell*: the program below a shell that writes the status.
By turns, as other processes come and go; best of the repeats. `--program python` starts `python -c pass`.

`--on ray`: a cluster of two cores on this machine, started before. *least*: a script that connects to it and
hands over all runs as plain tasks, each of which starts the program with a file for its output.
*two at a time*: the sweep with `parallel: 2`, which hands Ray no run before another has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from stage import Stage

PROGRAMS = {"true": ["/bin/true"], "python": [sys.executable, "-c", "pass"]}
SHELL = ["/bin/sh", "-c", 'told="$0"; "$@"; code=$?; echo $code >"$told"; exit $code']
AT_ONCE = 2
PARALLEL = f"resources: {{parallel: {AT_ONCE}}}\n"
GOAL = {"local": 1.2, "ray": 1.15}
PLAIN_TASKS = """
import subprocess, sys
import ray
folder, runs, *program = sys.argv[1:]
ray.init(log_to_driver=False)

@ray.remote(max_retries=0)
def run(number):
    with open(f"{folder}/{number}.txt", "ab") as output:
        return subprocess.run(program, stdout=output, stderr=output, start_new_session=True).returncode

assert not any(ray.get([run.remote(number) for number in range(int(runs))]))
"""


def pool(runs: int, command: Callable[[int], list[str]]) -> float:
    """Seconds for all runs, two at a time."""
    began = time.perf_counter()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda number: subprocess.run(command(number), check=True), range(runs)))
    return time.perf_counter() - began


def xargs(runs: int, program: list[str]) -> float:
    """Seconds for all runs by `xargs -P`."""
    began = time.perf_counter()
    told = "".join(f"{number}\n" for number in range(runs))
    subprocess.run(["xargs", "-P", str(AT_ONCE), "-n", "1", *program], input=told, text=True, check=True)
    return time.perf_counter() - began


def least(folder: Path, runs: int, program: list[str]) -> float:
    """Seconds of the leanest loop that keeps what a sweep keeps."""
    folder.mkdir()
    began = time.perf_counter()
    running: dict[int, int] = {}
    left = iter(range(runs))

    def start() -> None:
        number = next(left, None)
        if number is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        output = os.open(folder / f"{number}.txt", flags, 0o644)
        actions = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
        environment = {**os.environ, "RLA_RUN_ID": str(number)}
        pid = os.posix_spawn(program[0], program, environment, file_actions=actions, setsid=True)
        running[pid] = number
        os.close(output)

    for _ in range(AT_ONCE):
        start()
    while running:
        pid, status = os.wait()
        number = running.pop(pid)
        start()
        (folder / f"{number}.exit").write_text(f"{os.waitstatus_to_exitcode(status)}\n")
    return time.perf_counter() - began


def plain_tasks(stage: Stage, runs: int, turn: int, program: list[str]) -> float:
    """Seconds of a program that gives all runs to Ray."""
    folder = stage.folder / f"plain{turn}-{runs}"
    folder.mkdir()
    command = [sys.executable, "-c", PLAIN_TASKS, str(folder), str(runs), *program]
    began = time.perf_counter()
    subprocess.run(command, env=stage.environment, cwd=folder, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


@contextmanager
def cluster(stage: Stage) -> Iterator[None]:
    """A Ray of two cores, which what is started with the stage's environment finds."""
    import ray

    context = ray.init(
        "local", num_cpus=AT_ONCE, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20
    )
    stage.environment["RAY_ADDRESS"] = context.address_info["gcs_address"]
    stage.environment["RAY_AUTH_MODE"] = os.environ.get("RAY_AUTH_MODE", "")  # which `ray.init` sets
    yield
    ray.shutdown()


def sweep(stage: Stage, runs: int, turn: int, program: list[str], limit: str, *options: str) -> float:
    """Seconds of a whole `rla sweep`, with a limit of how many run at a time."""
    folder = stage.folder / f"sweep{turn}-{runs}"
    folder.mkdir()
    given = f"command: {json.dumps([*program, '{args}'])}\nmethod: random\ntrials: {runs}\n"
    given += f"parameters: {{x: {{uniform: [0, 1]}}}}\n{limit}"
    (folder / "s.yaml").write_text(given)
    command = [
        sys.executable,
        "-m",
        "rla_client.cli.app",
        "sweep",
        "s.yaml",
        "-d",
        str(folder / "data"),
        *options,
    ]
    began = time.perf_counter()
    subprocess.run(command, env=stage.environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--program", choices=PROGRAMS, default="true")
    parser.add_argument("--on", choices=("local", "ray"), default="local")
    given = parser.parse_args()
    program = PROGRAMS[given.program]
    seconds: dict[str, list[float]] = {}
    options = ("--on", given.on)
    limit = PARALLEL if given.on == "local" else ""  # the cluster's cores are the limit
    with Stage() as stage, cluster(stage) if given.on == "ray" else nullcontext():
        exits = stage.folder / "exits"
        exits.mkdir()
        for turn in range(given.repeats):
            ways: dict[str, Callable[[], float]] = {
                "rla sweep": partial(sweep, stage, given.runs, turn, program, limit, *options),
                "  of one run": partial(sweep, stage, 1, turn, program, limit, *options),
            }
            if given.on == "ray":
                ways["least"] = partial(plain_tasks, stage, given.runs, turn, program)
                ways["  of one task"] = partial(plain_tasks, stage, 1, turn, program)
                ways["two at a time"] = partial(
                    sweep, stage, given.runs, given.repeats + turn, program, PARALLEL, *options
                )
            else:
                ways["least"] = partial(least, stage.folder / f"least{turn}", given.runs, program)
                ways["bare"] = lambda: pool(given.runs, lambda _: program)
                ways["xargs"] = lambda: xargs(given.runs, program)
                ways["with a shell"] = lambda: pool(
                    given.runs, lambda n: [*SHELL, str(exits / str(n)), *program]
                )
            for name, measure in ways.items():
                seconds.setdefault(name, []).append(measure())
    found = {name: min(all_of_it) for name, all_of_it in seconds.items()}
    found["  the others"] = found["rla sweep"] - found["  of one run"]
    floor = found["least"]
    load = os.getloadavg()[0]
    print(f"{given.runs} runs of {given.program} on {given.on}, {AT_ONCE} at a time; load {load:.1f}")
    for name, best in found.items():
        print(f"  {name:<13} {best:6.2f} s   {best / floor:5.2f} x least")
    added = (found["  the others"] - floor) / given.runs * 1e3
    print(f"  a run of the sweep adds {added:.2f} ms (goal: the whole <= {GOAL[given.on]} x least)")


if __name__ == "__main__":
    main()
