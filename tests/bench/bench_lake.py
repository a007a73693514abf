"""The lake at scale, beside reading files: time of its build, of lists, curves, plots and SQL.

    python tests/bench/bench_lake.py [--runs 10000] [--rows 200]

Runs with 20 hyper-parameters and rows of their own. CPU seconds stand beside the wall clock.
Fails on nothing but wrong output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

from bench_database import clocks, report, rla, since

from rla_client.database.lake.build import build

CURVES = 1000
FILTER = """SELECT l.run FROM last l JOIN params p USING (run)
    WHERE metric = 'return' AND l.value > 40 AND p.name = 'lr' AND p.number = 0.001"""


def make_runs(root: Path, count: int, rows: int) -> None:
    import numpy as np

    random = np.random.default_rng(0)
    begin = datetime(2026, 1, 1)  # noqa: DTZ001 - an index is local time
    for number in range(count):
        opened = begin + timedelta(seconds=86.4 * number)  # 1,000 a day
        values = {"seed": number % 5, "lr": (0.1, 0.01, 0.001)[number % 3]}
        index = f"{opened:%Y/%m/%d/%H-%M-%S-%f}_10.0.0.5_&seed={values['seed']}&lr={values['lr']}"
        params = {f"key_{place}": place * 0.5 for place in range(18)} | values
        folder = root / "hyperparameter" / "bench" / index
        folder.mkdir(parents=True)
        (folder / "parameter.json").write_text(json.dumps(params))
        folder = root / "log" / "bench" / index
        folder.mkdir(parents=True)
        numbers = random.standard_normal((rows, 2)).cumsum(axis=0).tolist()
        stamp = opened.timestamp()
        lines = [f"{one!r},{two!r},{step},{stamp + step}\n" for step, (one, two) in enumerate(numbers)]
        (folder / "progress.csv").write_text("return,loss,time-step,timestamp\n" + "".join(lines))
        run = {"format": 1, "state": "finished", "opened": stamp, "updated": stamp, "closed": stamp + rows}
        (folder / "run.json").write_text(json.dumps(run))


def bench_commands(root: Path, base: Path, what: str) -> None:
    state = base / f"state-{what}"
    report(f"first `rla ls`, {what}", rla(root, state, "ls")[0], 1.5)
    plot = ("plot", "return", "-o", str(base / "plot.png"))
    rla(root, state, *plot)
    report(f"`rla plot`, warm, {what}", rla(root, state, *plot)[0], 2.0)


def bench_curves(root: Path, base: Path) -> None:
    os.environ["RLA_STATE_DIR"] = str(base / "state-curves")
    import pandas as pd

    import rla_client.database as rla_database

    database = rla_database.open(root)
    database.curves(database.records()[:1], "return")  # imports
    some = [(one.table, one.index) for one in database.records()][-CURVES:]
    begin = clocks()
    for table, index in some:
        pd.read_csv(root / "log" / table / index / "progress.csv")
    plain = since(begin)
    begin = clocks()
    frame = database.curves(some, "return")
    took = since(begin)
    assert frame["index"].nunique() == len(some)
    report(f"{len(some)} curves; pandas.read_csv is the budget x 5", took, plain.wall / 5)
    for query in (FILTER, "SELECT avg(value) FROM rows WHERE metric = 'return'"):
        database.sql(query).fetchall()
        begin = clocks()
        database.sql(query).fetchall()
        report(f"SQL, again: {query[:20]}…", since(begin), 1.0)
    begin = clocks()
    database.records(where="`return` > 40 and lr == 0.001")
    report("the first as `where`", since(begin), 1.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=200)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rla-bench-") as folder:
        base = Path(folder)
        root = base / "data"
        make_runs(root, chosen.runs, chosen.rows)
        bench_commands(root, base, "files")
        os.environ["RLA_STATE_DIR"] = str(base / "state-build")
        for what, budget in (("all", 60.0), ("nothing new", 2.0)):
            begin = clocks()
            build(root, time.time())
            report(f"a build, {what}", since(begin), budget)
        sizes = [path.stat().st_size for path in (root / ".rla").rglob("*.parquet")]
        csv = sum(path.stat().st_size for path in (root / "log").rglob("*.csv"))
        print(f"the lake takes {sum(sizes) / 1e6:.0f} MB, the CSVs {csv / 1e6:.0f} MB")
        bench_commands(root, base, "lake")
        bench_curves(root, base)
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
