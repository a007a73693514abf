"""How fast an agent takes rows in, and what late columns cost.

    python tests/bench/bench_ingest.py [--rows 200000]

- ingest: a spool of rows of 10 scalars, taken into CSV and TensorBoard until all is durable;
  scalars per second of wall time and of agent CPU.
- late keys: 500 new keys on a CSV of 100,000 rows, in one row and one a row; what a training call
  takes before they come, while the file is widened and afterwards, beside the same loop without
  late keys; and what the agent writes beside the size of the final file.
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
LATE_PAUSE_S = 0.01  # of the loop, after each ROWS_A_TURN rows
ROWS_A_TURN = 4
METRICS = [f"group/metric_{number}" for number in range(10)]


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
        result |= late_keys(chosen.rows, chosen.late)
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


def late_keys(rows: int, how: str) -> dict[str, Any]:
    """A long CSV, then `how` (once, each, never) new keys; times of calls in three phases alike."""
    from rla_client import logger

    write_rows(rows)
    assert logger.flush(300)
    written = rows
    result: dict[str, Any] = {}
    for phase in ("before", "during", "after"):
        taken: list[int] = []
        for turn in range(LATE_KEYS):
            late = LATE_KEYS if how == "once" and turn == 0 else int(how == "each")
            for number in range(turn, turn + late) if phase == "during" else ():
                logger.record_tabular(f"late/key_{number}", float(number))
            times = write_rows(ROWS_A_TURN, written)
            if late > 1 and phase == "during":
                result["row_of_all_us"] = times.pop(0) / 1000  # its size counts, not the widening
            taken += times
            written += ROWS_A_TURN
            time.sleep(LATE_PAUSE_S)
        result[phase] = quantiles(taken)
        if phase == "during":  # rows with the last new keys are in the file when this returns
            began = time.perf_counter()
            result["done"] = logger.flush(300)
            result["flush_s"] = time.perf_counter() - began
    return result | {"rows": written}


def wide_row() -> dict[str, Any]:
    """One row of many keys."""
    from rla_client import logger

    began = time.perf_counter()
    for number in range(5000):
        logger.record_tabular(f"wide/key_{number}", float(number))
    logger.dump_tabular()
    took = time.perf_counter() - began
    return {"seconds": took, "done": logger.flush(60)}


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


def bench_late(rows: int, how: str, beside: dict[str, Any] | None) -> dict[str, Any]:
    """Late keys on a long CSV; `beside`: what the same loop without late keys took."""
    with Stage("AGENT:\n  autostart: false\n") as stage:
        pid = stage.agent()
        found = run_client(stage, "--case", "late", "--rows", str(rows), "--sinks", "csv", "--late", how)
        wrote = written_bytes(pid)
        file = Path(found["log_dir"]) / "progress.csv"
        size = file.stat().st_size
        with file.open(newline="") as source:
            header, *lines = csv.reader(source)
    if beside is None:
        return found
    print(f"late keys: {LATE_KEYS} {'in one row' if how == 'once' else 'one a row'} on {rows:,} rows")
    for phase in ("before", "during", "after"):
        for name, times in (("", found[phase]), ("  the same without late keys", beside[phase])):
            p50, p99, p999, most = times
            title = name or f"call {phase} the widening"
            print(f"  {title:<28} p50 {p50:7.2f}  p99 {p99:8.2f}  p99.9 {p999:8.2f}  max {most:9.1f} us")
    if "row_of_all_us" in found:
        print(f"  the row of {LATE_KEYS} new keys itself: {found['row_of_all_us']:.0f} us")
    columns = len(METRICS) + 2 + LATE_KEYS
    whole = len(header) == columns and all(len(line) == columns for line in lines)
    whole &= len(lines) == found["rows"]
    print(
        f"  agent wrote {wrote >> 20} MiB = {wrote / size:.2f} x the final file of {size >> 20} MiB "
        f"(goal {WRITTEN_TARGET:g}); {len(lines):,} rows, {len(header)} columns, "
        f"{'whole' if whole else 'BROKEN'}; durable {found['flush_s']:.1f} s after the last key: {found['done']}",  # noqa: E501
        flush=True,
    )
    return found


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
    for name in ("--client", "--result", "--case", "--sinks", "--late"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        client(chosen)
        return
    if chosen.only in "ingest":
        bench_ingest(chosen.rows)
    if chosen.only in "late keys":
        beside = bench_late(chosen.late_rows, "never", None)
        bench_late(chosen.late_rows, "once", beside)
        bench_late(chosen.late_rows, "each", beside)
    if chosen.only in "wide":
        bench_wide()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
