"""What `rla sweep` adds to runs that do nothing, beside the least that starting them takes.

    python tests/bench/bench_sweep.py [--runs 1000] [--repeats 3] [--program true]

*bare*: a pool of two threads that starts the program by subprocess. *xargs*: `xargs -P 2`. *least*: one loop
that does what a sweep has to keep: posix_spawn in a session of its own, variables of its own, a file for the
output and one for the exit status. *with a shell*: the program below a shell that writes the status.
By turns, as other processes come and go; best of the repeats. `--program python` starts `python -c pass`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from stage import Stage

PROGRAMS = {"true": ["/bin/true"], "python": [sys.executable, "-c", "pass"]}
SHELL = ["/bin/sh", "-c", 'told="$0"; "$@"; code=$?; echo $code >"$told"; exit $code']
AT_ONCE = 2


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


def sweep(stage: Stage, runs: int, turn: int, program: list[str]) -> float:
    """Seconds of a whole `rla sweep`."""
    folder = stage.folder / f"sweep{turn}-{runs}"
    folder.mkdir()
    space = f"method: random\ntrials: {runs}\nparameters: {{x: {{uniform: [0, 1]}}}}\n"
    given = f"command: {json.dumps([*program, '{args}'])}\n{space}resources: {{parallel: {AT_ONCE}}}\n"
    (folder / "s.yaml").write_text(given)
    command = [sys.executable, "-m", "rla_client.cli.app", "sweep", "s.yaml", "-d", str(folder / "data")]
    began = time.perf_counter()
    subprocess.run(command, env=stage.environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--program", choices=PROGRAMS, default="true")
    given = parser.parse_args()
    program = PROGRAMS[given.program]
    seconds: dict[str, list[float]] = {}
    with Stage() as stage:
        exits = stage.folder / "exits"
        exits.mkdir()
        for turn in range(given.repeats):
            ways: dict[str, Callable[[], float]] = {
                "least": lambda turn=turn: least(stage.folder / f"least{turn}", given.runs, program),
                "bare": lambda: pool(given.runs, lambda _: program),
                "xargs": lambda: xargs(given.runs, program),
                "with a shell": lambda: pool(given.runs, lambda n: [*SHELL, str(exits / str(n)), *program]),
                "rla sweep": lambda turn=turn: sweep(stage, given.runs, turn, program),
                "  of one run": lambda turn=turn: sweep(stage, 1, turn, program),
            }
            for name, measure in ways.items():
                seconds.setdefault(name, []).append(measure())
    found = {name: min(all_of_it) for name, all_of_it in seconds.items()}
    found["  the others"] = found["rla sweep"] - found["  of one run"]
    floor = found["least"]
    print(f"{given.runs} runs of {given.program}, {AT_ONCE} at a time; load average {os.getloadavg()[0]:.1f}")
    for name, best in found.items():
        print(f"  {name:<13} {best:6.2f} s   {best / floor:5.2f} x least")
    added = (found["  the others"] - floor) / given.runs * 1e3
    print(f"  a run of the sweep adds {added:.2f} ms (goal: the whole <= 1.2 x least)")


if __name__ == "__main__":
    main()
