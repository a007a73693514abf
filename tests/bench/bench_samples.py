"""What `log_samples` costs the training loop, and its readers; prints ratios, fails on nothing.

The floor is the same bytes packed by msgpack and written by one write(2).
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

import msgpack
from bench_media import timed

from rla_agent.model.records import Record, Samples
from rla_agent.outputs.samples_encoder import SamplesEncoder
from rla_client.config.schema import AgentConfig, SamplesConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.layout import SAMPLES
from rla_client.database.samples.sample_index import SampleIndex
from rla_client.database.samples.sample_query import containing, matching, ordered
from rla_client.database.tree.chains import ChainLink
from rla_client.run.opening_frame import make_opening
from rla_client.run.record.log_samples import log_samples
from rla_client.run.record.run_logger import Logger
from rla_client.stream.outbox import Outbox

CALLS, BATCH, CHARS = 300, 64, 10_000
MEDIAN_MS, P99_MS = 2.0, 10.0
INDEXED = 100_000
TABLES = 100
RUN = "2026/11/21/09-30-01-123456_10.0.0.5"


def rows_of(step: int) -> list[dict[str, object]]:
    """A step's samples."""
    words = [f"word{number}" for number in range(2000)]
    return [
        {
            "prompt": f"question {n % 8}",
            "completion": f"{step} {n} {' '.join(random.choices(words, k=CHARS // 7))}"[:CHARS],
            "reward": random.random(),
            "finish": "stop",
        }
        for n in range(BATCH)
    ]


def training(folder: Path) -> None:
    """Time of one call, beside its floor."""
    places = Places(folder / "state", folder / "run")
    opening = make_opening(root="/", folders={"log": "."}, sinks=(), names={}, item={})
    logger = Logger(None, (), Outbox(places, opening, AgentConfig(autostart=False, spool_max_bytes=8 << 30)))
    logger.sample_limits = SamplesConfig()
    batches = [rows_of(step) for step in range(20)]
    numbers = iter(range(1 << 30))

    def call() -> None:
        step = next(numbers)
        log_samples(logger, batches[step % 20], step=step, name="train", group=None, tokens=False)

    floor_file = os.open(folder / "floor", os.O_WRONLY | os.O_CREAT)
    floor_numbers = iter(range(1 << 30))
    floor = timed(lambda: os.write(floor_file, msgpack.packb(batches[next(floor_numbers) % 20])), CALLS)
    taken = timed(call, CALLS)
    os.close(floor_file)
    (p50, p99), least = ([times[CALLS // 2], times[int(CALLS * 0.99)]] for times in (taken, floor))
    what = f"log_samples of {BATCH} x {CHARS} characters"
    print(f"{what}: p50 {p50:.2f} ms (goal {MEDIAN_MS}), p99 {p99:.2f} ms (goal {P99_MS})")
    print(f"  of msgpack and write(2): p50 {p50 / least[0]:.2f} x, p99 {p99 / least[1]:.2f} x")


def tables(folder: Path) -> None:
    """Time of a call that logs a table of completions, which is kept as a table and as samples."""
    folder.mkdir()
    (folder / "rla_config.yaml").write_text("AGENT: {autostart: false}\n")
    os.environ.update(RLA_STATE_DIR=str(folder / "state"), RLA_RUNTIME_DIR=str(folder / "run"))
    os.chdir(folder)
    from rla_client.integrations import wandb

    columns = ["step", "prompt", "completion", "reward", "advantage"]
    run = wandb.init(project="tables")
    made = [
        wandb.Table(columns, [[step, *row.values(), 0.5][: len(columns)] for row in rows_of(step)])
        for step in range(TABLES + 10)
    ]
    numbers = iter(range(1 << 30))

    def call() -> None:
        step = next(numbers)
        run.log({"completions": made[step]}, step=step)

    taken = timed(call, TABLES)
    run.finish()
    p50, p99 = taken[TABLES // 2], taken[int(TABLES * 0.99)]
    what = f"a wandb table of {BATCH} x {CHARS} characters"
    print(f"{what}: p50 {p50:.2f} ms (goal {MEDIAN_MS}), p99 {p99:.2f} ms (goal {P99_MS})")


def agent() -> None:
    """CPU of the agent for a step."""
    records = [Record(step, Samples("train", step, 1.0, 0, rows_of(step))) for step in range(20)]
    encoder = SamplesEncoder("")
    began = time.process_time()
    data, _ = encoder.encode(records)
    took = (time.process_time() - began) / len(records)
    print(f"agent: {took * 1e3:.1f} ms of CPU a step, {len(data) / (20 * BATCH * CHARS):.2f} of the text")


def readers(folder: Path) -> None:
    """What a question about many samples takes."""
    path = folder / SAMPLES / "t" / RUN / "samples.jsonl.gz"
    path.parent.mkdir(parents=True)
    encoder, count = SamplesEncoder(""), 0
    with path.open("wb") as file:
        while count < INDEXED:
            step = count // 500
            rows = [{**row, "completion": str(row["completion"])[:500]} for row in rows_of(step)]
            file.write(encoder.encode([Record(0, Samples("train", step, 1.0, 0, rows))])[0])
            count += len(rows)
    index = SampleIndex(folder, "t", [ChainLink(RUN)])
    for name, work in (
        ("index", index.refresh),
        ("filter", lambda: matching(index, "reward < 0.5 and finish == 'stop'")),
        ("sort", lambda: ordered(index, range(len(index)), "reward")),
        ("search", lambda: list(containing(index, range(len(index)), "word1999 word"))),
    ):
        began, cpu = time.perf_counter(), time.process_time()
        work()
        wall, spent = time.perf_counter() - began, time.process_time() - cpu
        print(f"{len(index)} samples, {name}: {wall:.2f} s, CPU {spent:.2f} s")


def main() -> None:
    """All of it."""
    with tempfile.TemporaryDirectory() as folder:
        training(Path(folder))
        tables(Path(folder) / "tables")
        agent()
        readers(Path(folder))


if __name__ == "__main__":
    main()
