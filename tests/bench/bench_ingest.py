"""How fast an agent takes rows in, and what late columns cost.

    python tests/bench/bench_ingest.py [--rows 200000]

- ingest: a spool of rows of 10 scalars, taken into CSV and TensorBoard until all is durable;
  scalars per second of wall time and of agent CPU.
- late keys: 500 new keys on a CSV of 100,000 rows, in one row and one a row; what the training
  loop feels, and what the agent writes beside the size of the final file.
- wide row: one row of 5,000 keys.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stage import Stage, cpu_seconds, quantiles, wait_until, written_bytes

INGEST_TARGET = 400_000
WRITTEN_TARGET = 5.0
LATE_KEYS = 500
LATE_PAUSE_S = 0.01
METRICS = [f"group/metric_{number}" for number in range(10)]
SAMPLE_ROWS = 20_000  # of the loop before late keys come, to compare with


# -- the training process ----------------------------------------------------------------------


def client(chosen: argparse.Namespace) -> None:
    """Write what the case asks for; the result is JSON."""
    from rla_client import exp_manager

    folder = Path(chosen.client)
    exp_manager.configure(
        "bench", rla_config={"LOG_USED": chosen.sinks.split(","), "AGENT": {"autostart": False}},
        data_root=folder / "data", code_root=folder,
    )  # fmt: skip
    exp_manager.log_files_gen()
    result: dict[str, Any] = {"log_dir": exp_manager.log_dir}
    if chosen.case == "rows":
        write_rows(chosen.rows)
    elif chosen.case == "late":
        result |= late_keys(chosen.rows, at_once=chosen.at_once)
    else:
        result |= wide_row()
    Path(chosen.result).write_text(json.dumps(result))


def write_rows(count: int, begin: int = 0) -> list[int]:
    """Rows of the ten metrics as a loop writes them; nanoseconds of each."""
    from rla_client import logger, time_step_holder

    taken = []
    clock = time.perf_counter_ns
    for number in range(begin, begin + count):
        time_step_holder.set_time(number)
        before = clock()
        for position, key in enumerate(METRICS):
            logger.record_tabular(key, number * 0.1 + position)
        logger.dump_tabular()
        taken.append(clock() - before)
    return taken


def late_keys(rows: int, *, at_once: bool) -> dict[str, Any]:
    """A long CSV, then new keys; times of the rows before and of those with and after late keys."""
    from rla_client import logger

    write_rows(rows - SAMPLE_ROWS)
    logger.flush(120)
    before = []
    for number in range(SAMPLE_ROWS // 10):
        before += write_rows(10, rows - SAMPLE_ROWS + 10 * number)
        time.sleep(LATE_PAUSE_S / 10)
    after: list[int] = []
    for number in range(LATE_KEYS):
        if not at_once:
            logger.record_tabular(f"late/key_{number}", float(number))
        elif number == 0:
            for other in range(LATE_KEYS):
                logger.record_tabular(f"late/key_{other}", float(other))
        after += write_rows(4, rows + 4 * number)
        time.sleep(LATE_PAUSE_S)
    began = time.perf_counter()
    done = logger.flush(300)
    return {"before": quantiles(before), "after": quantiles(after[1:] if at_once else after),
            "flush_s": time.perf_counter() - began, "done": done}  # fmt: skip


def wide_row() -> dict[str, Any]:
    """One row of many keys."""
    from rla_client import logger

    began = time.perf_counter()
    for number in range(5000):
        logger.record_tabular(f"wide/key_{number}", float(number))
    logger.dump_tabular()
    took = time.perf_counter() - began
    return {"seconds": took, "done": logger.flush(60)}


# -- the report --------------------------------------------------------------------------------


def run_client(stage: Stage, *options: str) -> dict[str, Any]:
    """Run the training process; what it found."""
    with tempfile.NamedTemporaryFile("r") as result:
        stage.client("--result", result.name, *options)
        found: dict[str, Any] = json.loads(result.read())
        return found


def bench_ingest(rows: int) -> None:
    """A waiting spool, taken in."""
    with Stage("AGENT:\n  autostart: false\n") as stage:
        found = run_client(stage, "--case", "rows", "--rows", str(rows), "--sinks", "csv,tensorboard")
        streams = list(stage.spool.iterdir())
        spooled = sum(file.stat().st_size for stream in streams for file in stream.iterdir())
        began = time.perf_counter()
        pid = stage.agent()
        start = time.perf_counter() - began
        idle_cpu = 0.0  # the start counts too
        wait_until(lambda: not any(stream.exists() for stream in streams), 300, what="all rows")
        wall, cpu = time.perf_counter() - began, cpu_seconds(pid) - idle_cpu
        size = (Path(found["log_dir"]) / "progress.csv").stat().st_size
        scalars = rows * len(METRICS)
        print(
            f"ingest: {scalars:,} scalars ({spooled >> 20} MiB spool, {size >> 20} MiB CSV) durable in {wall:.2f} s "  # noqa: E501
            f"(agent's start {start:.2f} s in it): {scalars / wall:,.0f} scalars/s, {scalars / cpu:,.0f} per CPU second "  # noqa: E501
            f"(goal {INGEST_TARGET:,})",
            flush=True,
        )


def bench_late(rows: int, *, at_once: bool) -> None:
    """Late keys on a long CSV."""
    with Stage("AGENT:\n  autostart: false\n") as stage:
        pid = stage.agent()
        options = ["--case", "late", "--rows", str(rows), "--sinks", "csv"] + ["--at-once"] * at_once
        found = run_client(stage, *options)
        wrote = written_bytes(pid)
        file = Path(found["log_dir"]) / "progress.csv"
        size = file.stat().st_size
        with file.open(newline="") as source:
            header, *lines = csv.reader(source)
        whole = len(header) == len(METRICS) + 2 + LATE_KEYS and all(
            len(line) == len(header) for line in lines
        )
        print(f"late keys: {LATE_KEYS} {'in one row' if at_once else 'one a row'} on {rows:,} rows")
        for name in ("before", "after"):
            p50, p99, p999, most = found[name]
            print(f"  loop {name:<7} p50 {p50:7.2f}  p99 {p99:7.2f}  p99.9 {p999:8.2f}  max {most:9.1f} us")
        print(
            f"  agent wrote {wrote >> 20} MiB = {wrote / size:.2f} x the final file of {size >> 20} MiB "
            f"(goal {WRITTEN_TARGET:g}); {len(lines):,} rows, {len(header)} columns, "
            f"{'whole' if whole else 'BROKEN'}; durable {found['flush_s']:.1f} s after the loop: {found['done']}",  # noqa: E501
            flush=True,
        )


def bench_wide() -> None:
    """One wide row."""
    with Stage("AGENT:\n  autostart: false\n") as stage:
        stage.agent()
        found = run_client(stage, "--case", "wide", "--sinks", "csv,tensorboard,json,log")
        with (Path(found["log_dir"]) / "progress.csv").open(newline="") as source:
            header, line = csv.reader(source)
        print(
            f"wide row: 5,000 keys in {found['seconds'] * 1e3:.1f} ms; durable: {found['done']}; "
            f"CSV of {len(header)} columns and {len(line)} cells",
            flush=True,
        )


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--late-rows", type=int, default=100_000)
    parser.add_argument("--only", default="")
    for name in ("--client", "--result", "--case", "--sinks"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--at-once", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        client(chosen)
        return
    if chosen.only in "ingest":
        bench_ingest(chosen.rows)
    if chosen.only in "late at once":
        bench_late(chosen.late_rows, at_once=True)
    if chosen.only in "late one a row":
        bench_late(chosen.late_rows, at_once=False)
    if chosen.only in "wide":
        bench_wide()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
