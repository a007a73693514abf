"""Cost of `rla-agent run --capture` for a program: its start, the first metric, each `add_scalar`.

The same programs run plain and captured in turns. Told is the CPU time of the program's own process; calls of
`add_scalar` are timed. Between two rows the program computes, as training does, or sleeps, after which its
core is cold and each call takes several times as long, with and without capture.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from stage import Stage

START = "import time; print(time.process_time())"
WRITER = """
import json, sys, time
import numpy
from torch.utils.tensorboard import SummaryWriter
tags, computes = [f"loss/{number}" for number in range(int(sys.argv[1]))], sys.argv[2] == "computes"
batch = numpy.ones((64, 4096), numpy.float32)  # 1 MiB
writer = SummaryWriter("events")
before = time.process_time()
writer.add_scalar(tags[0], 0.5, 0)
opened, times = time.process_time() - before, []
for step in range(1, 3001):
    began = time.perf_counter_ns()
    for tag in tags:
        writer.add_scalar(tag, step * 0.5, step)
    times.append((time.perf_counter_ns() - began) / len(tags) / 1000)
    until = time.perf_counter() + 0.0005  # the agent, and the writer's own thread, run beside it
    while computes and time.perf_counter() < until:
        numpy.add(batch, 1, out=batch)
    if not computes:
        time.sleep(0.0005)
print(json.dumps([opened * 1000, sorted(times)[1500]]))
"""
STARTS, WRITES = 20, 5


def told(stage: Stage, captured: bool, *words: str) -> str:
    """What a program prints last."""
    before = [sys.executable, "-m", "rla_agent", "run", "--capture", "--"] if captured else []
    with tempfile.TemporaryDirectory(dir=stage.folder) as folder:
        done = subprocess.run(
            [*before, sys.executable, *words],
            cwd=folder,
            env=stage.environment,
            capture_output=True,
            text=True,
            check=True,
        )
    return done.stdout.splitlines()[-1]


def main() -> None:
    """Print the three figures."""
    with Stage() as stage:
        stage.agent()
        program = Path(stage.folder / "program.py")
        program.write_text(WRITER)
        starts: dict[bool, list[float]] = {False: [], True: []}
        for number in range(2 * STARTS):
            captured = bool(number % 2)
            starts[captured].append(float(told(stage, captured, "-c", START)) * 1000)
        more = median(starts[True]) - median(starts[False])
        print(f"start: {median(starts[False]):.1f} ms of CPU plain, {more:.1f} ms more captured (goal 5)")
        for between, tags in (("computes", 1), ("computes", 9), ("sleeps", 1), ("sleeps", 9)):
            found: dict[bool, list[list[float]]] = {False: [], True: []}
            for number in range(2 * WRITES):
                captured = bool(number % 2)
                found[captured].append(json.loads(told(stage, captured, str(program), str(tags), between)))
            (first, call), (first_more, call_more) = (
                [median(column) for column in zip(*found[captured], strict=True)]
                for captured in (False, True)
            )
            if (between, tags) == ("computes", 1):
                print(f"the first metric: {first_more - first:.0f} ms of CPU more (goal 200)")
            costs = f"{call:.1f} us plain, {call_more - call:.1f} us more captured"
            print(f"add_scalar at {tags} a row, program {between}: {costs}" + " (goal 12)" * (tags > 1))


if __name__ == "__main__":
    main()
