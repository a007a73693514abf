"""Every way in which a job is stopped, and the same command again: it continues at its last checkpoint.

The script is the one of `docs/how-to/clusters.md`, in the styles that people write: a handler that sets a
flag, one that saves and leaves, one that raises, none at all. Each ends by a real signal or exit.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="needs PyTorch")

STEPS, STOPPED, SAVED = 60, 47, 40
TRAINING = f"""
import os, signal, sys
import rla_client
from rla_client import exp_manager, logger, time_step_holder

root, style = sys.argv[1], sys.argv[2]
config = {{"LOG_USED": ["csv", "log"], "BACKUP_CONFIG": {{"backup_code_dir": ["nothing"]}}}}
# opens the run, and says how it logs
exp_manager.new_saver(max_to_keep=2)
start, content = 0, {{"total": 0}}
if exp_manager.resumed_from is not None:
    start, content = exp_manager.load_checkpoint()
total = content["total"]
print("begins at", start, flush=True)


class Preempted(Exception):
    pass


stop = []


def on_term(number, frame):
    if style.endswith("raise"):
        raise Preempted
    if style.startswith(("flag", "break")):
        stop.append(number)
        return
    exp_manager.save_checkpoint({{"total": total}})
    if style == "exit":
        sys.exit(128 + number)
    if style == "exit 0":
        sys.exit(0)
    if style == "SystemExit":
        raise SystemExit(128 + number)
    if style == "_exit":
        logger.flush(20)
        os._exit(128 + number)
    if style == "close":
        exp_manager.close()
        os._exit(0)


if style != "none":
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, on_term)
try:
    for step in range(start + 1, {STEPS + 1}):
        total += step
        log(step, total)
        if step % 20 == 0:
            exp_manager.save_checkpoint({{"total": total}})
        if step == {STOPPED} and not start:
            logger.flush(20)
            os.kill(os.getpid() if style[:5] != "flag " else os.getppid(), getattr(signal, sys.argv[3]))
            while style[:5] == "flag " and not stop:  # it comes by way of rla-agent run
                signal.pause()
        if stop:
            exp_manager.save_checkpoint({{"total": total}})
            if style == "flag exit":
                exp_manager.close()
                sys.exit(128 + stop[0])
            break
except Preempted:
    if style == "raise":
        raise
    exp_manager.save_checkpoint({{"total": total}})
    if style == "close raise":
        exp_manager.close()
except KeyboardInterrupt:
    sys.exit(1)
"""

OPENS = "# opens the run, and says how it logs\n"
ADAPTERS = {
    "manager": """
exp_manager.configure("table", config, root, code_root=root)
exp_manager.log_files_gen()
def log(step, total):
    time_step_holder.set_time(step)
    logger.record_tabular("total", total)
    logger.dump_tabular()
""",
    "init": """
run = rla_client.init("table", rla_config=config, data_root=root, code_root=root)
def log(step, total):
    run.log({"total": total}, step=step)
""",
    "writer": """
from rla_client.integrations.tensorboard import SummaryWriter
os.chdir(root)
writer = SummaryWriter(root + "/runs/table")
def log(step, total):
    writer.add_scalar("total", total, step)
""",
}


def job(
    root: Path, style: str, number: str, under: str = "", adapter: str = "manager"
) -> subprocess.CompletedProcess[str]:
    """The batch script's one line, as a scheduler starts it each time."""
    root.mkdir(exist_ok=True)
    script = TRAINING.replace(OPENS, ADAPTERS[adapter])
    command = [sys.executable, "-c", script, str(root), style, number]
    if under:
        command = [sys.executable, "-m", "rla_agent", "run", "--", *command]
    named = {**os.environ, "RLA_RUN_ID": "4711", "RLA_RESUME": "allow", "RLA_DATA_ROOT": str(root)}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=named)


def run_files(root: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in root.glob("log/*/*/*/*/*/run.json")]


def ended(root: Path) -> bool:
    found = run_files(root)
    return bool(found) and found[-1]["state"] not in {"running", "stalled"}


def curve(root: Path) -> list[tuple[int, int]]:
    (path,) = root.glob("log/*/*/*/*/*/progress.csv")
    with path.open() as file:
        return [(int(row["time-step"]), int(float(row["total"]))) for row in csv.DictReader(file)]


class Ending(NamedTuple):
    """One way to stop a job.

    Attributes:
        style: of the script.
        number: the signal.
        under: "run" where `rla-agent run` starts it.
        status: that the command ends with.
        state: of the run then.
        named: in its reason.
        begin: where the second start continues.
    """

    style: str
    number: str
    under: str
    status: int
    state: str
    named: str
    begin: int


ENDINGS = [
    Ending("exit", "SIGTERM", "", 143, "interrupted", "SIGTERM", STOPPED),
    Ending("exit", "SIGTERM", "run", 143, "interrupted", "SIGTERM", STOPPED),
    Ending("exit", "SIGUSR1", "", 128 + signal.SIGUSR1, "interrupted", "SIGUSR1", STOPPED),
    Ending("exit 0", "SIGTERM", "", 0, "interrupted", "SIGTERM", STOPPED),
    Ending("SystemExit", "SIGTERM", "", 143, "finished", "", STOPPED),
    Ending("SystemExit", "SIGHUP", "run", 129, "interrupted", "SIGHUP", STOPPED),
    Ending("_exit", "SIGTERM", "run", 143, "killed", "SIGTERM", STOPPED),
    Ending("close", "SIGTERM", "", 0, "interrupted", "SIGTERM", STOPPED),
    Ending("break", "SIGTERM", "", 0, "finished", "", STOPPED),
    Ending("flag by parent", "SIGTERM", "run", 0, "interrupted", "SIGTERM", STOPPED),
    Ending("flag by parent", "SIGUSR1", "run", 0, "interrupted", "SIGUSR1", STOPPED),
    Ending("flag exit", "SIGTERM", "run", 143, "interrupted", "SIGTERM", STOPPED),
    Ending("raise", "SIGTERM", "", 1, "interrupted", "SIGTERM", SAVED),
    Ending("close raise", "SIGTERM", "", 0, "interrupted", "SIGTERM", STOPPED),
    Ending("none", "SIGTERM", "run", 143, "killed", "SIGTERM", SAVED),
    Ending("none", "SIGKILL", "", -9, "killed", "", SAVED),
    Ending("none", "SIGKILL", "run", 137, "killed", "SIGKILL", SAVED),
    Ending("none", "SIGINT", "", 1, "interrupted", "KeyboardInterrupt", SAVED),
]


USUAL = [
    one
    for one in ENDINGS
    if one[:3] in {("exit", "SIGTERM", ""), ("break", "SIGTERM", ""), ("none", "SIGKILL", "")}
]
BRIEF = {("exit", "SIGTERM", ""), ("none", "SIGKILL", ""), ("flag by parent", "SIGTERM", "run")}
CASES = [("manager", one) for one in ENDINGS]
CASES += [(adapter, one) for adapter in ADAPTERS if adapter != "manager" for one in USUAL]


def is_further(adapter: str, ending: Ending) -> bool:
    """Whether another case is enough of each run of all tests."""
    if adapter == "manager":
        return ending[:3] not in BRIEF
    return ending[:2] != ("exit", "SIGTERM")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adapter", "ending"),
    [pytest.param(*case, marks=pytest.mark.further if is_further(*case) else ()) for case in CASES],
    ids=lambda one: one if isinstance(one, str) else "-".join(one[:3]).replace(" ", "-"),
)
def test_the_same_command_continues(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any], adapter: str, ending: Ending
) -> None:
    assert agent.alive
    root = tmp_path / "data"
    style, number, under, status, state, named, begin = ending
    first = job(root, style, number, under, adapter)
    assert "begins at 0" in first.stdout, first.stderr
    assert first.returncode == status, first.stderr
    wait_until(lambda: ended(root))
    (told,) = run_files(root)
    assert (told["state"], told["time_step"]) == (state, STOPPED), told
    assert named in told["reason"], told
    second = job(root, style, number, under, adapter)
    assert f"begins at {begin}" in second.stdout, second.stderr
    assert second.returncode == 0, second.stderr
    wait_until(lambda: ended(root))
    (told,) = run_files(root)
    assert told["state"] == "finished"
    assert curve(root) == [(step, step * (step + 1) // 2) for step in range(1, STEPS + 1)]


@pytest.mark.slow
def test_a_run_that_has_finished_continues_at_its_last_checkpoint_and_loses_nothing(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """The same command once more, when there is nothing left to do."""
    assert agent.alive
    root = tmp_path / "data"
    for begin in (0, STEPS, STEPS):
        done = job(root, "none", "SIGCONT")
        assert f"begins at {begin}" in done.stdout, done.stderr
        wait_until(lambda: ended(root))
    assert curve(root) == [(step, step * (step + 1) // 2) for step in range(1, STEPS + 1)]
    assert [found["state"] for found in run_files(root)] == ["finished"]
