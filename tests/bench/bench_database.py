"""Times of the database at scale, beside their budgets and beside reading as the original does.

    python tests/bench/bench_database.py [--runs 10000] [--curve-runs 100]

Everything is made in a temp folder: runs with 20 hyper-parameters, one log folder each; then
curves of 10,000 rows x 20 metrics. Prints ratios, fails on nothing but wrong output. CPU seconds
stand beside the wall clock: on a machine that is busy with other work they say what an idle one would need.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

HYPER = 20
ROWS = 10_000
METRICS = 20


def make_runs(root: Path, count: int) -> list[Path]:
    begin = datetime(2026, 1, 1)  # noqa: DTZ001 - an index is local time
    folders = []
    for number in range(count):
        opened = begin + timedelta(minutes=7 * number)
        seed, lr = number % 5, (0.1, 0.01, 0.001)[number % 3]
        index = f"{opened:%Y/%m/%d}/{opened:%H-%M-%S-%f}_10.0.0.5_&seed={seed}&lr={lr}"
        params = {f"key_{place}": place * 0.5 for place in range(HYPER - 3)} | {
            "seed": seed,
            "lr": lr,
            "env": "Hopper-v4",
        }
        text = "".join(f"{key}: {value}\n" for key, value in params.items())
        for kind in ("log", "hyperparameter", "code"):
            folder = root / kind / "bench" / index
            folder.mkdir(parents=True)
            (folder / "parameter.yaml").write_text(text)
        folder = root / "log" / "bench" / index
        rows = "".join(f"{step * 0.25},{step},{opened.timestamp() + step}\n" for step in range(50))
        (folder / "progress.csv").write_text("return,time-step,timestamp\n" + rows)
        run = {
            "format": 1,
            "state": "finished",
            "opened": opened.timestamp(),
            "updated": opened.timestamp(),
            "time_step": 49,
        }
        (folder / "run.json").write_text(json.dumps(run))
        folders.append(folder)
    return folders


class Took(NamedTuple):
    """Seconds."""

    wall: float
    cpu: float


def rla(root: Path, state: Path, *words: str) -> tuple[Took, str]:
    environment = {**os.environ, "RLA_STATE_DIR": str(state)}
    command = [
        sys.executable,
        "-m",
        "rla_client.cli.app",
        words[0],
        "--data-root",
        str(root),
        *words[1:],
    ]
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stdout


def report(what: str, took: Took, budget: float) -> None:
    ratio = took.wall / budget
    print(
        f"{what:<62} {took.wall:7.3f} s, CPU {took.cpu:6.3f}  budget {budget:5.2f}  {ratio:5.2f} x",
        flush=True,
    )


def best(times: list[Took]) -> Took:
    return min(times)


def clocks() -> Took:
    return Took(time.perf_counter(), time.process_time())


def since(begin: Took) -> Took:
    now = clocks()
    return Took(now.wall - begin.wall, now.cpu - begin.cpu)


def bench_listing(root: Path, state: Path, count: int) -> None:
    folders = make_runs(root, count)
    report(f"first `rla ls` of {count:,} runs", rla(root, state, "ls")[0], 20)
    rla(root, state, "ls")
    report("later `rla ls`, all rows into a pipe", best([rla(root, state, "ls")[0] for _ in range(3)]), 0.4)
    report("later `rla ls -n 50`", best([rla(root, state, "ls", "-n", "50")[0] for _ in range(3)]), 0.4)
    for folder in folders[:20]:
        with (folder / "progress.csv").open("a") as file:
            file.write("99.5,777,2000000000.0\n")
    make_new = [
        root / "log" / "bench" / f"2026/03/03/11-22-33-{number:06}_10.0.0.5_&new={number}"
        for number in range(5)
    ]
    for folder in make_new:
        folder.mkdir(parents=True)
        (folder / "progress.csv").write_text("return,time-step,timestamp\n1.0,5,1.0\n")
    seconds, text = rla(root, state, "ls", "-c", "run,time_step,new")
    grown = sum(line.split()[1] == "777" for line in text.splitlines()[1:])
    assert grown == 20, grown
    assert text.count("11-22-33-") >= 5
    report("`rla ls` after 20 runs grew and 5 appeared (all seen)", seconds, 0.4)
    path = folders[30] / "progress.csv"
    size = path.stat().st_size
    head = path.read_text().splitlines(keepends=True)
    os.truncate(path, len("".join(head[:40])))
    with path.open("a") as file:
        file.write("".join(head[40:-1]) + head[-1].replace(",49,", ",48,"))
    assert path.stat().st_size == size
    seconds, text = rla(root, state, "ls", "-c", "run,time_step")
    assert sum(line.split()[-1] == "48" for line in text.splitlines()) == 1
    report("`rla ls` after a CSV was cut and grew to its old size (seen)", seconds, 0.4)
    times = [rla(root, state, "ls", "-n", "50", "-w", "lr == 0.001 and seed == 3")[0] for _ in range(3)]
    report("`rla ls --where`", best(times), 0.5)
    times = [rla(root, state, "show", "@last")[0] for _ in range(3)]
    report("`rla show @last`, with interpreter start", best(times), 0.3)
    part = folders[count // 2].name[:15]
    times = [rla(root, state, "show", f"{folders[count // 2].parent.name}/{part}")[0] for _ in range(3)]
    report("`rla show DAY/TIME`, one of all runs by a part of its index", best(times), 0.3)


def make_curves(root: Path, count: int) -> list[Path]:
    import numpy as np

    random = np.random.default_rng(0)
    paths = []
    names = [f"m/{place}" for place in range(METRICS)]
    values = random.standard_normal((ROWS, METRICS)).cumsum(axis=0)
    body = [",".join(map(repr, row.tolist())) + f",{step},{1e9 + step}" for step, row in enumerate(values)]
    text = ",".join([*names, "time-step", "timestamp"]) + "\n" + "\n".join(body) + "\n"
    for number in range(count):
        folder = root / "log" / "curves" / f"2026/05/01/10-00-00-{number:06}_noip_&seed={number}"
        folder.mkdir(parents=True)
        (folder / "progress.csv").write_text(text)
        paths.append(folder / "progress.csv")
    return paths


def bench_curves(root: Path, state: Path, count: int) -> None:
    os.environ["RLA_STATE_DIR"] = str(state)
    import pandas as pd

    import rla_client.database as rla_database

    paths = make_curves(root, count)
    time.sleep(2.1)  # younger files are never cached
    database = rla_database.open(root)
    runs = database.runs("curves")
    begin = clocks()
    long = database.curves(runs, ["m/3", "m/7"])
    cold = since(begin)
    assert len(long) == 2 * ROWS * count
    times = []
    for _ in range(3):
        begin = clocks()
        database.curves(runs, ["m/3", "m/7"])
        times.append(since(begin))
    begin = clocks()
    for path in paths:
        pieces = pd.read_csv(path, chunksize=100_000, quoting=csv.QUOTE_NONE, index_col=False, comment="#")
        pd.concat([piece[["m/3", "m/7", "time-step"]] for piece in pieces], ignore_index=True)
    original = since(begin)
    report(f".curves of 2 metrics, {count} runs x {ROWS:,} rows x {METRICS}, cold", cold, 1.5)
    report("  the same warm", best(times), 0.3)
    ratio = original.wall / best(times).wall
    print(f"  all CSVs by pandas.read_csv: {original.wall:.2f} s = {ratio:.1f} x the warm time (goal 5 x)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--curve-runs", type=int, default=100)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rla-bench-") as folder:
        base = Path(folder)
        bench_listing(base / "listing", base / "state", chosen.runs)
        bench_curves(base / "curves", base / "state", chosen.curve_runs)


if __name__ == "__main__":
    main()
