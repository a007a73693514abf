"""`rla import` of many runs: seconds for an `mlruns` folder and for TensorBoard's event files.

    python tests/bench/bench_imports.py [--runs 5000] [--rows 200]

Each run has five metrics, with MLflow ten parameters, too. Reading every byte of those files once stands
beside it. Fails on nothing but a wrong number of runs.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench_database import clocks, report, rla, since

METRICS = ("loss", "return", "entropy", "kl", "value_loss")
GOAL_S = 600.0  # for 5,000 runs


def write_mlruns(folder: Path, count: int, rows: int) -> None:
    experiment = folder / "1"
    experiment.mkdir(parents=True)
    (experiment / "meta.yaml").write_text("experiment_id: '1'\nname: walk\n")
    chance = random.Random(1)
    for number in range(count):
        name, began = f"{number:032x}", 1_700_000_000_000 + number * 60_000
        for kind in ("metrics", "params", "tags", "artifacts"):
            (experiment / name / kind).mkdir(parents=True)
        (experiment / name / "meta.yaml").write_text(
            f"run_uuid: {name}\nrun_name: run-{number}\nstart_time: {began}\nend_time: {began + 50_000}\n"
            "status: 3\nlifecycle_stage: active\nuser_id: me\n"
        )
        for index in range(10):
            (experiment / name / "params" / f"p{index}").write_text(str(number % (index + 2) / 7))
        for metric in METRICS:
            lines = (f"{began + step} {chance.random()!r} {step}\n" for step in range(rows))
            (experiment / name / "metrics" / metric).write_text("".join(lines))


def write_events(folder: Path, count: int, rows: int) -> None:
    from tensorboardX import SummaryWriter

    chance = random.Random(2)
    for number in range(count):
        with SummaryWriter(str(folder / f"run-{number}")) as writer:
            for step in range(rows):
                for metric in METRICS:
                    writer.add_scalar(metric, chance.random(), step)


KINDS: dict[str, Callable[[Path, int, int], None]] = {"mlflow": write_mlruns, "tensorboard": write_events}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=200)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rla-bench-") as folder:
        for kind, write in KINDS.items():
            source, root, state = (Path(folder, kind, name) for name in ("source", "data", "state"))
            root.mkdir(parents=True)
            write(source, chosen.runs, chosen.rows)
            began = clocks()
            size = sum(len(path.read_bytes()) for path in source.rglob("*") if path.is_file())
            goal = GOAL_S * chosen.runs / 5000
            report(f"reading {size / 1e6:,.0f} MB of {kind}", since(began), goal)
            took, _ = rla(root, state, "import", kind, str(source), "--table", "walk")
            report(f"`rla import {kind}` of {chosen.runs:,} runs x {chosen.rows} rows", took, goal)
            took, _ = rla(root, state, "import", kind, str(source), "--table", "walk")
            report("the same once more: nothing is new", took, goal)
            runs = json.loads(rla(root, state, "ls", "--json", "-n", "0")[1])
            assert len(runs) == chosen.runs, len(runs)


if __name__ == "__main__":
    main()
