"""A step of 10 scalars beside wandb (offline), trackio and tensorboardX, and what each keeps after SIGKILL.

    python tests/bench/bench_peers.py [--steps 10000] [--rounds 3] [--peers VENV] [--write docs/benchmarks.md]

Each tracker logs the same rows in a process of its own, in turns, round after round, so that all see the
same machine; ours has a real agent beside it and writes CSV and TensorBoard. The others come by pip into a
venv of their own. *Finished* counts from the first step until the tracker says that all is stored. In the
second part the training process logs a row a millisecond and gets SIGKILL after --kill-after rows that
returned; once the files no longer change, the rows in them are counted. Prints a table in Markdown; --write
puts it into a page.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import platform
import random
import re
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

from stage import REPOSITORY, Stage, quantiles, wait_until

KEYS = [
    f"{group}/{name}" for group in ("loss", "perf") for name in ("policy", "value", "kl", "entropy", "return")
]
PEERS = ("wandb", "trackio", "tensorboardX")
TRACKERS = ("rla-agent", *PEERS)
CONFIG = "LOG_USED: [csv, tensorboard]\nAGENT: {autostart: false}\n"
WARM_UP = 200
SETTLED_S = 3.0
WORK_S = 0.001
BLOCK = 32768  # of wandb's file, which is a log of LevelDB's form
COLUMNS = (
    *("tracker", "p50, µs", "beside ours", "p99, µs", "longest, ms", "rows lost by SIGKILL"),
    *("scalars/s until finished", "import and open, s"),
)
Tracker = tuple[Callable[[dict[str, float], int], object], Callable[[], object]]  # log a row, finish
BEGIN, END = "<!-- figures of tests/bench/bench_peers.py -->", "<!-- end of the figures -->"


def open_ours(folder: Path) -> Tracker:
    from rla_client import exp_manager, logger, time_step_holder

    exp_manager.configure(
        "bench", rla_config=folder / "rla_config.yaml", data_root=folder / "data", code_root=folder
    )
    exp_manager.set_hyper_param(lr=0.1)
    exp_manager.log_files_gen()

    def log(row: dict[str, float], step: int) -> None:
        time_step_holder.set_time(step)
        for key, value in row.items():
            logger.record_tabular(key, value)
        logger.dump_tabular()

    def finish() -> None:
        assert logger.flush(60)
        exp_manager.close()

    return log, finish


def open_wandb(folder: Path) -> Tracker:
    import wandb

    run = wandb.init(project="bench", mode="offline", dir=folder, config={"lr": 0.1})
    return lambda row, step: run.log(row, step=step), run.finish


def open_trackio(folder: Path) -> Tracker:
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    trackio.init(project="bench", name="run", config={"lr": 0.1})
    return trackio.log, trackio.finish


def open_tensorboardx(folder: Path) -> Tracker:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder))

    def log(row: dict[str, float], step: int) -> None:
        for key, value in row.items():
            writer.add_scalar(key, value, step)

    return log, writer.close


OPENERS = {
    "rla-agent": open_ours,
    "wandb": open_wandb,
    "trackio": open_trackio,
    "tensorboardX": open_tensorboardx,
}


def client(name: str, folder: Path, steps: int, *, until_killed: bool) -> None:
    """Log; the figures go to `result.json`, the number of steps that returned to `returned`."""
    began = time.perf_counter()
    log, finish = OPENERS[name](folder)
    opened = time.perf_counter() - began
    row = {key: random.random() for key in KEYS}
    if until_killed:
        told = os.open(folder / "returned", os.O_WRONLY | os.O_CREAT)
        for step in range(1, 1 << 40):
            log(row, step)
            os.pwrite(told, struct.pack("<q", step), 0)
            time.sleep(WORK_S)
    for step in range(1, WARM_UP + 1):
        log(row, step)
    taken = []
    clock, began = time.perf_counter_ns, time.perf_counter()
    for step in range(WARM_UP + 1, WARM_UP + steps + 1):
        before = clock()
        log(row, step)
        taken.append(clock() - before)
    finish()
    total = time.perf_counter() - began
    p50, p99, _, most = quantiles(taken)
    found = {"open": opened, "p50": p50, "p99": p99, "max": most, "rate": steps * len(KEYS) / total}
    (folder / "result.json").write_text(json.dumps(found))


def count_ours(folder: Path) -> int:
    (path,) = (folder / "data").rglob("progress.csv")
    with path.open(newline="") as file:
        return sum(1 for _ in csv.DictReader(file))


def count_wandb(folder: Path) -> int:
    """Records whose field is 2 (`history`): one for each row."""
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    return sum(1 for record in wandb_records(path.read_bytes()) if field_of(record) == 2)


def wandb_records(data: bytes) -> Iterator[bytes]:
    at, kept = 7, b""  # after the file's own header
    while at + 7 <= len(data):
        if (room := BLOCK - at % BLOCK) < 7:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0 or at + 7 + length > len(data):
            return
        kept += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {1, 4}:  # whole, or the last part
            yield kept
            kept = b""


def field_of(record: bytes) -> int:
    """Number of the first field that is a message: the kind of the record."""
    at = 0
    while at < len(record):
        tag, at = varint(record, at)
        if tag & 7 == 2:
            return tag >> 3
        _, at = varint(record, at)
    return 0


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def count_trackio(folder: Path) -> int:
    with contextlib.closing(sqlite3.connect(folder / "bench.db")) as database:
        return int(database.execute("SELECT count(*) FROM metrics").fetchone()[0])


def count_tensorboardx(folder: Path) -> int:
    """Steps of which all scalars are there."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    seen: Counter[int] = Counter()
    for path in folder.glob("events.*"):
        for event in EventFileLoader(str(path)).Load():
            seen[event.step] += len(event.summary.value)
    return sum(1 for count in seen.values() if count == len(KEYS))


COUNTERS = {
    "rla-agent": count_ours,
    "wandb": count_wandb,
    "trackio": count_trackio,
    "tensorboardX": count_tensorboardx,
}


def settled(count: Callable[[Path], int], folder: Path) -> int:
    """The count, once it stays as it is."""
    found, since = -1, time.monotonic()
    while time.monotonic() - since < SETTLED_S:
        now = count(folder)
        if now != found:
            found, since = now, time.monotonic()
        time.sleep(0.2)
    return found


@contextlib.contextmanager
def started(
    name: str, python: Path, steps: int, *options: str
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """The training process of one tracker, in a folder of its own, an agent beside ours."""
    with Stage(CONFIG) as stage:
        if name == "rla-agent":
            stage.agent()
        command = [
            str(python),
            __file__,
            "--client",
            name,
            str(stage.folder),
            "--steps",
            str(steps),
            *options,
        ]
        environment = {**stage.environment, "WANDB_SILENT": "true"}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=stage.folder
        )
        try:
            yield stage.folder, process
        finally:
            process.kill()
            process.wait()


def one_round(name: str, python: Path, steps: int) -> dict[str, float]:
    """The figures of one process; all its rows must be in its files."""
    with started(name, python, steps) as (folder, process):
        if process.wait() != 0:
            raise RuntimeError(f"{name} ended with {process.returncode}")
        there = COUNTERS[name](folder)
        if there != steps + WARM_UP:
            raise RuntimeError(f"{name} kept {there} rows of {steps + WARM_UP}")
        found: dict[str, float] = json.loads((folder / "result.json").read_text())
        return found


def killed(name: str, python: Path, after: int) -> tuple[int, int]:
    """Rows that had returned when the process was killed, and those of them that are in no file."""
    with started(name, python, 0, "--until-killed") as (folder, process):
        told = folder / "returned"

        def returned() -> int:
            return struct.unpack("<q", told.read_bytes())[0] if told.exists() and told.stat().st_size else 0

        wait_until(lambda: returned() >= after or process.poll() is not None, what="the rows")
        process.send_signal(signal.SIGKILL)
        process.wait()
        count = returned()
        return count, max(0, count - settled(COUNTERS[name], folder))


def measure(pythons: dict[str, Path], chosen: argparse.Namespace) -> str:
    """All rounds; the table."""
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    lost: dict[str, list[int]] = {name: [] for name in pythons}
    loads = [os.getloadavg()[0]]
    for number in range(chosen.rounds):
        for name, python in pythons.items():
            rounds[name].append(one_round(name, python, chosen.steps))
            print(f"round {number + 1}, {name}: {rounds[name][-1]}", file=sys.stderr, flush=True)
    loads.append(os.getloadavg()[0])
    for _ in range(chosen.rounds):
        for name, python in pythons.items():
            count, gone = killed(name, python, chosen.kill_after)
            lost[name].append(gone)
            print(f"killed after {count}, {name}: {gone} lost", file=sys.stderr, flush=True)
    return f"{conditions(chosen, loads)}\n\n{table(rounds, lost, pythons)}"


def table(
    rounds: dict[str, list[dict[str, float]]], lost: dict[str, list[int]], pythons: dict[str, Path]
) -> str:
    """Medians of the rounds, the longest of all, what was lost each time."""
    middle = {
        name: {key: statistics.median(found[key] for found in all_) for key in all_[0]}
        for name, all_ in rounds.items()
    }
    ours = middle["rla-agent"]["p50"]
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for name, found in middle.items():
        cells = (
            f"{name} {version(name, pythons[name])}".strip(),
            f"{found['p50']:.1f}",
            f"{found['p50'] / ours:.1f} x",
            f"{found['p99']:.0f}",
            f"{max(one['max'] for one in rounds[name]) / 1000:.1f}",
            ", ".join(map(str, lost[name])),
            f"{found['rate']:,.0f}",
            f"{found['open']:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def version(name: str, python: Path) -> str:
    if name == "rla-agent":
        return ""
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def conditions(chosen: argparse.Namespace, loads: list[float]) -> str:
    """What the figures were measured on, with what."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return (
        f"{datetime.now(timezone.utc):%Y-%m-%d}, commit {commit}; {os.cpu_count()} cores"
        f" ({model[1] if model else platform.machine()}), Python {platform.python_version()}, load average "
        f"at the start {loads[0]:.1f}, after the rounds {loads[1]:.1f}; medians of {chosen.rounds} rounds of "
        f"{chosen.steps:,} steps; killed after {chosen.kill_after:,} rows."
    )


def make_peers(given: Path | None, base: Path) -> Path | None:
    """The venv of the other trackers; None where it cannot be made."""
    if given is not None:
        return given
    subprocess.run([sys.executable, "-m", "venv", str(base)], check=True)
    command = [str(base / "bin" / "pip"), "install", "-q", *PEERS, "tensorboard"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"no other trackers: pip: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return base


def write(page: Path, figures: str) -> None:
    """Put the table between its marks."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{figures}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kill-after", type=int, default=2000)
    parser.add_argument(
        "--peers", type=Path, default=None, help="a venv with wandb, trackio and tensorboardX"
    )
    parser.add_argument("--write", type=Path, default=None, help="a page with the marks of this table")
    parser.add_argument("--client", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--until-killed", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.client:
        name, folder = chosen.client
        client(name, Path(folder), chosen.steps, until_killed=chosen.until_killed)
        return
    with tempfile.TemporaryDirectory(prefix="rla-peers-") as base:
        venv = make_peers(chosen.peers, Path(base))
        pythons = {name: Path(sys.executable) for name in TRACKERS}
        if venv is None:
            pythons = {"rla-agent": Path(sys.executable)}
        else:
            pythons |= dict.fromkeys(PEERS, venv / "bin" / "python")
        text = measure(pythons, chosen)
    print(text)
    if chosen.write:
        write(chosen.write, text)


if __name__ == "__main__":
    main()
