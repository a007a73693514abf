"""What a print costs with `console=True`, and what the process beside the training costs.

python tests/bench/bench_console.py [--lines 100000] [--turns 5]

Printed are ratios to the same prints, line by line, into the same pipe or file without it. `cat` reads the
pipe, on the same cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from functools import partial

import psutil
from stage import Stage, pss_bytes, wait_until

IDLE_S = 10.0
TRAINING = """
import sys, time
import rla_client
sys.stdout.reconfigure(line_buffering=True)
console, lines, told = sys.argv[1] == "True", int(sys.argv[2]), sys.argv[3]
rla_client.init("bench", console=console, data_root="data", rla_config={"LOG_USED": ["csv"]})
time.sleep(0.5)
began = time.perf_counter()
for number in range(lines):
    print("step", number, "return", number * 0.5)
took = time.perf_counter() - began
with open(told, "w") as file:
    file.write(str(took / lines * 1e6))
if len(sys.argv) > 4:
    time.sleep(float(sys.argv[4]))
"""


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=5)
    chosen = parser.parse_args()
    with Stage() as stage:
        folder = stage.folder
        (folder / "training.py").write_text(TRAINING)
        for where in ("pipe", "file"):
            with_it, without = (
                statistics.median(turns)
                for turns in zip(
                    *(
                        [_us_a_line(stage, where, chosen.lines, console=console) for console in (True, False)]
                        for _ in range(chosen.turns)
                    ),
                    strict=True,
                )
            )
            print(
                f"print into a {where}: {with_it:.2f} us with the console, {without:.2f} without, "
                f"ratio {with_it / without:.2f} (goal 1.2)"
            )
        _beside(stage)


def _us_a_line(stage: Stage, where: str, lines: int, *, console: bool) -> float:
    """Microseconds of one print."""
    told = stage.folder / "told"
    command = [sys.executable, "training.py", str(console), str(lines), str(told)]
    program = partial(subprocess.run, command, cwd=stage.folder, env=stage.environment, check=True)
    with open(os.devnull if where == "pipe" else stage.folder / "printed", "wb") as file:
        if where == "file":
            program(stdout=file)
        else:
            reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
            program(stdout=reader.stdin)
            reader.communicate()
    return float(told.read_text())


def _beside(stage: Stage) -> None:
    """What the process beside a training that prints nothing takes."""
    told = stage.folder / "told"
    told.unlink()
    command = [sys.executable, "training.py", "True", "1", str(told), str(IDLE_S + 5)]
    with subprocess.Popen(
        command, cwd=stage.folder, env=stage.environment, stdout=subprocess.DEVNULL
    ) as training:
        wait_until(told.exists, what="the training")
        (mirror,) = [
            process
            for process in psutil.process_iter(["cmdline"])
            if "rla_client.run.console.console_process" in " ".join(process.info["cmdline"] or [])
            and process.cwd() == str(stage.folder)
        ]
        before = sum(mirror.cpu_times()[:2])
        time.sleep(IDLE_S)
        cpu = (sum(mirror.cpu_times()[:2]) - before) / IDLE_S
        print(f"beside it: {pss_bytes(mirror.pid) / 1e6:.1f} MB (PSS), {100 * cpu:.2f} % of a core")
        training.kill()


if __name__ == "__main__":
    main()
