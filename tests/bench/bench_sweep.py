"""What `rla sweep` adds to runs that do nothing, beside the least that starting them takes.

    python tests/bench/bench_sweep.py [--runs 1000] [--repeats 3]

*least*: a pool of two threads that starts `true` by subprocess. *with a shell*: the same below a shell that
keeps the exit status in a file, which a sweep that survives its driver cannot do without. By turns, as other
processes come and go; best of the repeats, and the time of a sweep without its start is given beside.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from stage import Stage

SHELL = ["/bin/sh", "-c", '/bin/true; code=$?; echo $code >"$0"; exit $code']


def pool(runs: int, command: Callable[[int], list[str]]) -> float:
    """Seconds for all runs, two at a time."""
    began = time.perf_counter()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda number: subprocess.run(command(number), check=True), range(runs)))
    return time.perf_counter() - began


def sweep(stage: Stage, runs: int, turn: int) -> float:
    """Seconds of a whole `rla sweep`."""
    folder = stage.folder / f"sweep{turn}-{runs}"
    folder.mkdir()
    space = f"method: random\ntrials: {runs}\nparameters: {{x: {{uniform: [0, 1]}}}}\n"
    (folder / "s.yaml").write_text(f"command: 'true'\n{space}resources: {{parallel: 2}}\n")
    command = [sys.executable, "-m", "rla_client.cli.app", "sweep", "s.yaml", "-d", str(folder / "data")]
    began = time.perf_counter()
    subprocess.run(command, env=stage.environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    least, shell, whole, start = [], [], [], []
    with Stage() as stage:
        exits = stage.folder / "exits"
        exits.mkdir()
        for turn in range(given.repeats):
            least.append(pool(given.runs, lambda _: ["true"]))
            shell.append(pool(given.runs, lambda number: [*SHELL, str(exits / str(number))]))
            whole.append(sweep(stage, given.runs, turn))
            start.append(sweep(stage, 1, turn))
    floor = min(least)
    print(f"{given.runs} runs of `true`, 2 at a time; load average {os.getloadavg()[0]:.1f}")
    print(f"  least         {floor:6.2f} s")
    for name, seconds in (
        ("with a shell", min(shell)),
        ("rla sweep", min(whole)),
        ("  of one run", min(start)),
        ("  the others", min(whole) - min(start)),
    ):
        ratios = f"{seconds / floor:5.2f} x least, {seconds / min(shell):5.2f} x with a shell"
        print(f"  {name:<13} {seconds:6.2f} s   {ratios}")
    added = (min(whole) - min(start) - floor) / given.runs * 1e3
    print(f"  a run of the sweep adds {added:.2f} ms (goal: the whole <= 1.2 x least)")


if __name__ == "__main__":
    main()
