"""How a run ends, as the agent sees it: real training processes that end in every way there is."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import TIME_FACTOR

STALL_S = 1
TRAINING = """
import os, sys, time
from rla_client import exp_manager, logger

def main(root, rows, pause, end):
    exp_manager.set_hyper_param(lr=0.1)
    config = {"LOG_USED": ["csv", "tensorboard", "log"]}
    exp_manager.configure("table", rla_config=config, data_root=root, code_root=root)
    exp_manager.log_files_gen()
    print(exp_manager.log_dir, flush=True)
    for number in range(rows):
        logger.record_tabular("number", number)
        logger.dump_tabular()
        print(number, flush=True)
        time.sleep(pause)
    if end == "wait":
        time.sleep(3600)
    elif end == "a row a line":
        for number, _ in enumerate(sys.stdin, rows):
            logger.record_tabular("number", number)
            logger.dump_tabular()
    elif end == "exception":
        raise ValueError("no more reward")
    elif end == "_exit":
        os._exit(3)
    elif end.isdigit():
        sys.exit(int(end))

main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
"""


class Training:
    """A training process; `rows` are those whose dump had returned when it told so."""

    def __init__(self, folder: Path, rows: int, end: str, pause_s: float = 0.0) -> None:
        script = folder / "training.py"
        script.write_text(TRAINING)
        root = folder / "data"
        root.mkdir(exist_ok=True)
        arguments = [sys.executable, str(script), str(root), str(rows), str(pause_s), end]
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout is not None
        self._lines = self.process.stdout
        self.log = Path(next(line.strip() for line in self._lines if line.startswith("/")))

    def await_rows(self, count: int) -> None:
        for line in self._lines:
            if line.strip() == str(count - 1):
                return
        pytest.fail("the training process ended early")

    def end(self, number: signal.Signals | None = None) -> None:
        """Send a signal, wait for the end."""
        if number is not None:
            self.process.send_signal(number)
        self.process.wait(20 * TIME_FACTOR)

    def new_row(self) -> None:
        """Of a process that writes a row for each line it reads."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")

    def record(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.log / "run.json").read_bytes())
        except FileNotFoundError:
            return {"state": "no run.json"}
        return found

    def state(self) -> str:
        return str(self.record()["state"])

    def has_ended(self) -> bool:
        return self.state() not in {"running", "no run.json"}


@pytest.fixture
def training(tmp_path: Path, agent: Any) -> Iterator[Callable[..., Training]]:
    del agent
    yield from _trainings(tmp_path)


def _trainings(folder: Path) -> Iterator[Callable[..., Training]]:
    made: list[Training] = []

    def make(rows: int, end: str, pause_s: float = 0.0) -> Training:
        made.append(Training(folder, rows, end, pause_s))
        return made[-1]

    yield make
    for one in made:
        one.process.kill()
        one.process.communicate()


ENDS = {
    # how it ends, signal → state, a pattern of the reason: older kernels do not tell how a process ended
    ("wait", signal.SIGINT): ("interrupted", "KeyboardInterrupt"),
    ("exception", None): ("failed", "ValueError: no more reward"),
    ("wait", signal.SIGTERM): ("killed", "without closing|^killed by SIGTERM$"),
    ("wait", signal.SIGKILL): ("killed", "without closing|^killed by SIGKILL"),
    ("_exit", None): ("killed", "without closing"),
    ("0", None): ("finished", ""),
    ("return", None): ("finished", ""),
}


@pytest.mark.slow
def test_every_end_leaves_a_complete_item(
    training: Callable[..., Training], wait_until: Callable[..., Any]
) -> None:
    runs = {how: training(200, how[0]) for how in ENDS}  # side by side: one agent, seven ends
    for (end, number), (state, reason) in ENDS.items():
        run = runs[end, number]
        run.await_rows(200)
        run.end(number)
        wait_until(run.has_ended, what="the end in run.json")
        record = run.record()
        assert record["state"] == state, (end, number, record)
        assert re.search(reason, record["reason"]), (end, number, record)
        assert record["rows"] == 200
        assert record["last_row"] <= record["closed"] <= time.time()
        assert stored(run.log) == list(range(200)), (end, number)
        assert steps_in_tensorboard(run.log) == 200
        assert (run.log / "log.txt").read_text().count("| number") == 200
        assert {"backup.txt", "warn.txt", "run.json", "parameter.yaml"} <= set(os.listdir(run.log))


def stored(log: Path) -> list[int]:
    try:
        with (log / "progress.csv").open() as file:
            return [int(row["number"]) for row in csv.DictReader(file)]
    except FileNotFoundError:
        return []


def steps_in_tensorboard(log: Path) -> int:
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboardX.proto import event_pb2

    (file,) = (log / "tb" / "events").iterdir()
    events = [event_pb2.Event.FromString(raw) for raw in RawEventFileLoader(str(file)).Load()]
    return sum(any(value.tag == "number" for value in event.summary.value) for event in events)


@pytest.fixture
def quick_to_stall(tmp_path: Path, new_agent: Callable[..., Any]) -> Any:
    config = tmp_path / "agent.yaml"
    config.write_text(f"AGENT:\n  stall_s: {STALL_S}\n")
    return new_agent("--config", str(config)).start()


@pytest.mark.slow
def test_stalled_and_back(quick_to_stall: Any, tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    trainings = _trainings(tmp_path)
    run = next(trainings)(3, "a row a line")
    wait_until(lambda: run.state() == "stalled")
    shown = {found["run_id"]: found for found in quick_to_stall.status()["runs"]}[run.record()["run_id"]]
    assert (shown["state"], shown["live"]) == ("stalled", True)
    assert shown["silent_s"] >= STALL_S

    def runs() -> bool:
        run.new_row()  # each time: it stalls again before a busy machine has looked twice
        return run.state() == "running"

    wait_until(runs)
    assert run.record()["reason"] == ""
    assert next(trainings, None) is None  # ends the processes


@pytest.mark.slow
def test_removed_is_never_made_again(
    training: Callable[..., Training], agent: Any, wait_until: Callable[..., Any]
) -> None:
    run = training(100_000, "wait", 0.002)
    run.await_rows(100)
    wait_until(lambda: run.state() == "running")
    run_id = run.record()["run_id"]

    def deleted() -> bool:
        """As `rm -rf` does it; a file that is just being written may come in between."""
        shutil.rmtree(run.log, ignore_errors=True)
        return not run.log.exists()

    wait_until(deleted)
    wait_until(lambda: _states(agent).get(run_id) == "removed")
    run.await_rows(1000)  # the training goes on, its rows are dropped
    assert run.process.poll() is None
    assert not run.log.exists()
    run.end(signal.SIGKILL)
    wait_until(lambda: not list(agent.places.spool.iterdir()), what="the end of the stream")
    assert not run.log.exists()
    assert _states(agent)[run_id] == "removed"
    agent.restart()
    assert not run.log.exists()


def _states(agent: Any) -> dict[str, str]:
    return {run["run_id"]: run["state"] for run in agent.status()["runs"]}
