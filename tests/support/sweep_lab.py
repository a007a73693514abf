"""Sweeps as a user starts them: a file, `rla sweep` in a process of its own, programs that tell."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from rla_client.contract.agent.places import Places
from rla_client.sweep.journal import FILE, Journal
from rla_client.sweep.spec import Spec
from rla_client.sweep.sweep_file import read_spec
from support.marked import MARKER_VARIABLE, processes_of
from support.waiting import TIME_FACTOR, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
NAME = "lr"
# One line of JSON when it begins and when it ends; in between it waits until its gate is open.
PROGRAM = """
import json, os, signal, sys, time
def tell(what):
    told = {"what": what, "arguments": sys.argv[1:], "pid": os.getpid()}
    told |= {"folder": os.getcwd(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
    told |= {"root": os.environ["RLA_DATA_ROOT"], "id": os.environ["RLA_RUN_ID"]}
    log = os.open("log.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, (json.dumps(told) + "\\n").encode())
    os.close(log)
def asked(*_):
    tell("terminated")
    sys.exit(143)
signal.signal(signal.SIGTERM, asked)
tell("begin")
while not os.path.exists("gate"):
    time.sleep(0.01)
print("said", *sys.argv[1:])
tell("end")
"""
TRAINING = """
import argparse, os, time
import rla_client
from rla_client import exp_manager, logger, time_step_holder
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int)
given = parser.parse_args()
config = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]}}
rla_client.init("task", rla_config=config, config=given, track=["lr", "seed"], code_root=os.getcwd())
exp_manager.new_saver(max_to_keep=1)
first = 1
if exp_manager.resumed_from is not None:
    first = exp_manager.load_checkpoint()[1]["i"] + 1
for i in range(first, 21):
    time_step_holder.set_time(i)
    logger.logkv("score", given.lr * i + given.seed)
    logger.dumpkvs()
    exp_manager.save_checkpoint({"i": i})
    time.sleep(0.03)
"""


class Lab:
    """A folder with the programs, and a database beside it.

    Attributes:
        folder: where sweeps are started.
        root: their database.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.root = root
        self.started: list[subprocess.Popen[str]] = []
        folder.mkdir(parents=True)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "train.py").write_text(TRAINING)

    def write(self, name: str = NAME, **content: Any) -> Path:
        """The file of a sweep; by default of `program.py` with three values."""
        content.setdefault("command", [sys.executable, "program.py", "{args}"])
        content.setdefault("parameters", {"lr": [1, 2, 3]})
        content.setdefault("resources", {"parallel": 2})
        if content["parameters"] is None:
            del content["parameters"]
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content, allow_unicode=True))
        return path

    def shell(self, script: str, **content: Any) -> Path:
        """The file of a sweep of a shell script, whose `$1` is the value."""
        return self.write(command=["sh", "-c", script, "sh", "{lr}"], **content)

    def train(self, lrs: list[float], **content: Any) -> Path:
        """The file of a sweep of `train.py`."""
        content = {"seeds": 2, "metric": "score", **content}
        return self.write(command=[sys.executable, "train.py", "{args}"], parameters={"lr": lrs}, **content)

    def start(self, *words: str, cwd: Path | None = None, **options: Any) -> subprocess.Popen[str]:
        """`rla sweep WORDS` in the background, in a session of its own."""
        words = words or (f"{NAME}.yaml",)
        where = ["-d", str(self.root)] if options.pop("told", True) else []
        process = subprocess.Popen(
            [sys.executable, "-m", "rla_client.cli.app", "sweep", *words, *where],
            **{
                "cwd": cwd or self.folder,
                "env": {**os.environ, "PYTHONPATH": str(REPOSITORY), **options.pop("environment", {})},
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.STDOUT,
                "text": True,
                "start_new_session": True,
                **options,
            },
        )
        self.started.append(process)
        return process

    def run(self, *words: str, code: int | None = 0, **options: Any) -> str:
        """What it printed, once it ended with `code`."""
        process = self.start(*words, **options)
        told, _ = process.communicate(timeout=60 * TIME_FACTOR)
        assert code is None or process.returncode == code, told
        return told

    def end(self, process: subprocess.Popen[str], number: int | None = None) -> str:
        """Signal a driver; what it printed until it ended."""
        if number is not None:
            process.send_signal(number)
        return process.communicate(timeout=60 * TIME_FACTOR)[0]

    def journal(self, name: str = NAME) -> Journal:
        """As it is now."""
        return Journal(self.root, name).read()

    def states(self, name: str = NAME) -> list[str]:
        """Of all runs, by number."""
        if not Journal(self.root, name).exists():
            return []
        return [run.state for run in self.journal(name).runs.values()]

    def log(self, what: str | None = None) -> list[dict[str, Any]]:
        """What `program.py` told."""
        path = self.folder / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [one for one in found if what in {None, one["what"]}]

    def output(self, number: int, name: str = NAME) -> str:
        """What a run printed."""
        return (self.journal(name).folder / "runs" / f"{number:04d}.txt").read_text()

    def wait_for(self, what: str, count: int) -> list[dict[str, Any]]:
        """Until so many programs told it."""
        wait_until(lambda: len(self.log(what)) >= count, 60, f"{count} times {what}")
        return self.log(what)

    def open_gate(self) -> None:
        """Let all programs end."""
        (self.folder / "gate").touch()

    def groups(self) -> list[int]:
        """Process groups of runs that live, by the locks' files."""
        found = []
        for path in self.root.glob("local/sweeps/*/runs/*.lock"):
            text = path.read_text().strip()
            if text and psutil.pid_exists(int(text)):
                found.append(int(text))
        return found

    def kill_all(self, *, agents: bool = False) -> None:
        """Everything that came of this test; agents are spared unless the whole machine dies."""
        while doomed := [
            one for one in processes_of(os.environ[MARKER_VARIABLE]) if agents or not _is_agent(one)
        ]:
            for process in doomed:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            for driver in self.started:
                driver.poll()  # no zombie of it is left

    def rows(self) -> dict[tuple[float, int], list[list[str]]]:
        """Time step and score of each row of each run in the database, by learning rate and seed."""
        found: dict[tuple[float, int], list[list[str]]] = {}
        for path in sorted(self.root.glob("log/task/*/*/*/*/progress.csv")):
            given = re.fullmatch(r".*&lr=(.+)&seed=(\d+)", path.parent.name)
            assert given is not None
            with path.open() as file:
                found.setdefault((float(given[1]), int(given[2])), []).extend(
                    [row["time-step"], row["score"]] for row in csv.DictReader(file)
                )
        return found


def _is_agent(process: psutil.Process) -> bool:
    try:
        return any("rla_agent" in word for word in process.cmdline())
    except psutil.Error:
        return False


def make_spec(source: Mapping[str, Any], name: str) -> Spec:
    """What is read of a file that says this; JSON is YAML."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.yaml")
        path.write_text(json.dumps(source), encoding="utf-8")
        return read_spec(path)


@pytest.fixture
def lab(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.delenv("RLA_DATA_ROOT", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    made = Lab(tmp_path / "prö ject", tmp_path / "dä ta")
    yield made
    made.kill_all()


def finished_sweep(
    root: Path, metric: str, runs: Sequence[tuple[int, Mapping[str, Any], float | str]]
) -> Journal:
    """A sweep whose runs (trial, parameters, last value of the metric) have finished."""
    journal = Journal(root, "lr").hold()
    planned = journal.plan([(trial, dict(parameters)) for trial, parameters, _ in runs])
    for run, (_, _, value) in zip(planned, runs, strict=True):
        item = {"data_root": str(root), "table": "t", "index": f"2026/11/26/{run.number}"}
        folder = root / "log" / item["table"] / item["index"]
        folder.mkdir(parents=True)
        (folder / "progress.csv").write_text(f"time-step,{metric}\n1,{value}\n")
        journal.path(run, "items").write_text(json.dumps(item) + "\n")
        journal.tell(run, "started", engine="local")
        journal.tell(run, "finished")
    journal.release()
    return journal


__all__ = ["FILE", "NAME", "REPOSITORY", "Lab", "finished_sweep", "lab", "make_spec"]
