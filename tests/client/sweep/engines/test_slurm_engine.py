"""`rla sweep --on slurm` on a real Slurm: every run is done once, whatever is killed meanwhile."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.slurm_lab import CORES, SlurmLab
from support.sweep_lab import NAME, Lab, make_spec
from support.waiting import TIME_FACTOR, wait_until

from rla_client.launcher.pending_streams import await_end

SLURM = (f"{NAME}.yaml", "--on", "slurm")
STEPS = 6
LRS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
TRAINING = f"""
import argparse, os, time
import rla_client
from rla_client import exp_manager, logger, time_step_holder
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int)
given = parser.parse_args()
settings = {{"LOG_USED": ["csv"], "BACKUP_CONFIG": {{"backup_code_dir": ["nothing"]}}}}
rla_client.init("task", rla_config=settings, config=given, track=["lr", "seed"], code_root=os.getcwd())
exp_manager.new_saver(max_to_keep=1)
first = 0
if exp_manager.resumed_from is not None:
    first = exp_manager.load_checkpoint()[1]["i"] + 1
for i in range(first, {STEPS}):
    time_step_holder.set_time(i)
    logger.logkv("score", given.lr * i + given.seed)
    logger.dumpkvs()
    exp_manager.save_checkpoint({{"i": i}})
    with open("steps", "a") as file:
        print(given.lr, given.seed, i, os.getpid(), file=file)
    while i == {STEPS // 2} and not os.path.exists("gate"):
        time.sleep(0.05)
"""
SAVES = """
import os, signal, sys, time
def asked(*_):
    time.sleep(1.5)
    tell("saved")
    sys.exit(0)
def tell(what):
    with open("told", "a") as file:
        print(what, os.environ.get("SLURM_RESTART_COUNT", "0"), file=file)
signal.signal(signal.SIGTERM, asked)
tell("begin")
while not os.path.exists("gate"):
    time.sleep(0.05)
tell("end")
"""

pytestmark = [pytest.mark.scale, pytest.mark.slow, pytest.mark.root]


@pytest.fixture
def training(slurm_lab: SlurmLab, lab: Lab) -> Iterator[Lab]:
    """Twelve runs, which wait in their middle until the gate is open."""
    (lab.folder / "train.py").write_text(TRAINING)
    lab.train(LRS, resources={"cpus": 1, "memory": "100MiB"})
    yield lab
    lab.kill_all(agents=True)  # the trainings have started one


@pytest.fixture
def saving(slurm_lab: SlurmLab, lab: Lab) -> Lab:
    """Runs that take a while to end when they are asked to."""
    (lab.folder / "saves.py").write_text(SAVES)
    return lab


def write_saving(lab: Lab, lrs: list[float], **content: Any) -> None:
    lab.write(
        command=[sys.executable, "saves.py", "{args}"], parameters={"lr": lrs}, **{"resources": {}, **content}
    )


def lines(lab: Lab, name: str) -> list[list[str]]:
    path = lab.folder / name
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_middle(lab: Lab, count: int) -> list[int]:
    """Until so many programs wait for their gate; their processes."""

    def waiting() -> list[int]:
        found = [int(pid) for _, _, step, pid in lines(lab, "steps") if int(step) == STEPS // 2]
        return [pid for pid in found if psutil.pid_exists(pid)]

    wait_until(
        lambda: len(waiting()) >= count, 60, lambda: f"{count} programs: {lines(lab, 'steps')}, {told(lab)}"
    )
    return waiting()


def told(lab: Lab) -> str:
    folder = lab.root / "local" / "sweeps" / NAME
    files = [*folder.glob("slurm/*.err"), *folder.glob("runs/*.txt"), folder / "journal.jsonl"]
    return "\n".join(f"{path.name}: {path.read_text()[-800:]}" for path in files if path.exists())


def assert_each_run_is_done_once(lab: Lab, count: int = 2 * len(LRS)) -> None:
    """All finished in the database, with each row once."""
    assert lab.states() == ["finished"] * count, told(lab)
    for log in lab.root.glob("log/task/*/*/*/*"):
        await_end(log, 60 * TIME_FACTOR)  # a run is finished when its program is; its agent may still write
    found = sorted(lab.root.glob("log/task/*/*/*/*/run.json"))
    assert [json.loads(path.read_text())["state"] for path in found] == ["finished"] * count
    assert len({path.parent.name.partition("_&")[2] for path in found}) == count
    for path in found:
        with path.with_name("progress.csv").open() as file:
            assert [row["time-step"] for row in csv.DictReader(file)] == [str(step) for step in range(STEPS)]


def queue(lab: SlurmLab) -> list[str]:
    return lab.ask("squeue", "-h", "-r", "-t", "PENDING,RUNNING,COMPLETING", "-o", "%i %T").splitlines()


def attempts(lab: Lab) -> list[int]:
    return [run.attempts for run in lab.journal().runs.values()]


def test_whatever_is_killed_each_run_is_done_once(training: Lab, slurm_lab: SlurmLab) -> None:
    first = training.start(*SLURM)
    found = wait_for_middle(training, CORES)
    training.end(first, signal.SIGKILL)
    slurm_lab.ask("scontrol", "requeue", "1_0")
    wait_until(lambda: slurm_lab.job_state("1_0") == "PENDING", what="a requeued job")
    slurm_lab.lose_node()
    second = training.start(*SLURM)
    slurm_lab.start_node()
    for number in range(CORES + 1):  # one more came where the first was requeued
        slurm_lab.release(f"1_{number}")
    again = [pid for pid in wait_for_middle(training, CORES) if pid not in found]
    os.kill(again[0], signal.SIGKILL)
    training.open_gate()
    training.end(second)
    assert_each_run_is_done_once(training)
    assert sorted(attempts(training)) == [1] * 11 + [2]


@pytest.mark.brief
def test_driver_and_program_killed(training: Lab) -> None:
    training.train(LRS[:1], resources={"cpus": 1, "memory": "100MiB"})
    first = training.start(*SLURM)
    programs = wait_for_middle(training, 2)
    training.end(first, signal.SIGKILL)
    os.kill(programs[0], signal.SIGKILL)
    second = training.start(*SLURM)
    training.open_gate()
    training.end(second)
    assert_each_run_is_done_once(training, 2)
    assert sorted(attempts(training)) == [1, 2]


@pytest.mark.soak
def test_a_driver_that_is_killed_leaves_jobs_to_the_next(training: Lab, slurm_lab: SlurmLab) -> None:
    first = training.start(*SLURM)
    wait_for_middle(training, CORES)
    training.end(first, signal.SIGKILL)
    training.open_gate()
    training.run(*SLURM)
    assert_each_run_is_done_once(training)
    assert attempts(training) == [1] * 12
    wait_until(lambda: not queue(slurm_lab), what="an empty queue")


@pytest.mark.soak
def test_a_program_that_is_killed_goes_on(training: Lab) -> None:
    driver = training.start(*SLURM)
    os.kill(wait_for_middle(training, CORES)[0], signal.SIGKILL)
    training.open_gate()
    training.end(driver)
    assert_each_run_is_done_once(training)
    assert sorted(attempts(training)) == [1] * 11 + [2]


@pytest.mark.soak
def test_runs_of_a_lost_node_and_of_a_requeued_job_go_on(training: Lab, slurm_lab: SlurmLab) -> None:
    driver = training.start(*SLURM)
    wait_for_middle(training, CORES)
    slurm_lab.ask("scontrol", "requeue", "1_0")
    wait_until(lambda: slurm_lab.job_state("1_0") == "PENDING", what="a requeued job")
    slurm_lab.lose_node()
    training.open_gate()
    slurm_lab.start_node()
    for number in range(CORES + 1):
        slurm_lab.release(f"1_{number}")
    training.end(driver)
    assert_each_run_is_done_once(training)
    assert attempts(training) == [1] * 12


@pytest.mark.parametrize("signal_name", ["USR2", pytest.param("TERM", marks=pytest.mark.soak)])
def test_a_signal_ends_the_program_and_usr2_requeues_it(
    saving: Lab, slurm_lab: SlurmLab, signal_name: str
) -> None:
    write_saving(saving, [1])
    driver = saving.start(*SLURM)
    wait_until(lambda: lines(saving, "told"), what="its start")
    slurm_lab.ask("scancel", f"--signal={signal_name}", "1")
    wait_until(lambda: ["saved", "0"] in lines(saving, "told"), what=lambda: f"what it saved; {told(saving)}")
    saving.open_gate()
    if signal_name == "USR2":
        wait_until(
            lambda: slurm_lab.job_state("1") == "PENDING", what=lambda: f"{slurm_lab.job('1')} {told(saving)}"
        )
        slurm_lab.release("1")
    saving.end(driver)
    assert saving.states() == ["finished"], told(saving)
    last = "1" if signal_name == "USR2" else "0"
    assert lines(saving, "told") == [["begin", "0"], ["saved", "0"], ["begin", last], ["end", last]]


@pytest.mark.soak
def test_a_run_that_gives_way_to_another_job_saves_and_goes_on(saving: Lab, slurm_lab: SlurmLab) -> None:
    write_saving(saving, [1], resources={"cpus": CORES}, slurm={"partition": "low"})
    driver = saving.start(*SLURM)
    wait_until(lambda: lines(saving, "told"), what="its start")
    slurm_lab.ask("sbatch", "--parsable", f"--ntasks={CORES}", "--output=/dev/null", "--wrap=true")
    wait_until(lambda: slurm_lab.job_state("2") == "COMPLETED", what=lambda: f"{queue(slurm_lab)}")
    saving.open_gate()
    slurm_lab.release("1")
    saving.end(driver)
    assert saving.states() == ["finished"], told(saving)
    assert lines(saving, "told") == [["begin", "0"], ["saved", "0"], ["begin", "1"], ["end", "1"]]


def test_stop_gives_runs_time_to_save(saving: Lab, slurm_lab: SlurmLab) -> None:
    write_saving(saving, [1, 2, 3, 4, 5, 6])
    driver = saving.start(*SLURM)
    wait_until(lambda: len(lines(saving, "told")) == CORES, what="starts")
    saving.run("stop")
    saving.end(driver)
    assert driver.returncode == 3
    assert [what for what, _ in lines(saving, "told")].count("saved") == CORES
    assert saving.states() == ["stopped"] * 6
    wait_until(lambda: not queue(slurm_lab), what="an empty queue")


@pytest.mark.soak
def test_ctrl_c_leaves_jobs_and_stop_ends_them_without_a_driver(saving: Lab, slurm_lab: SlurmLab) -> None:
    write_saving(saving, [1, 2, 3, 4, 5, 6])
    driver = saving.start(*SLURM, "--on-interrupt", "leave")
    wait_until(lambda: len(lines(saving, "told")) == CORES, what="starts")
    saving.end(driver, signal.SIGINT)
    assert len(queue(slurm_lab)) == 6
    assert "6 runs" in saving.run("stop")
    wait_until(lambda: not queue(slurm_lab), what="an empty queue")
    assert [what for what, _ in lines(saving, "told")].count("saved") == CORES


@pytest.mark.soak
def test_jobs_that_were_submitted_and_not_noted_down_are_found(training: Lab, slurm_lab: SlurmLab) -> None:
    first = training.start(*SLURM)
    wait_for_middle(training, CORES)
    training.end(first, signal.SIGKILL)
    path = training.journal().folder / "journal.jsonl"
    kept = [line for line in path.read_text().splitlines() if '"placed"' not in line]
    path.write_text("\n".join(kept) + "\n")
    (path.parent / "slurm" / "1_11_submitted.pkl").unlink()  # it was killed before it came to the last
    training.open_gate()
    training.run(*SLURM)
    assert_each_run_is_done_once(training)
    assert attempts(training) == [1] * 11 + [2]


@pytest.mark.soak
def test_a_job_leaves_its_run_to_a_later_one(saving: Lab, slurm_lab: SlurmLab) -> None:
    """sbatch was on its way when its driver was killed, and the next one could not see the jobs yet."""
    write_saving(saving, [1])
    first = saving.start(*SLURM)
    wait_until(lambda: lines(saving, "told"), what="its start")
    saving.end(first, signal.SIGKILL)
    slurm_lab.ask("scontrol", "requeuehold", "1")
    wait_until(lambda: slurm_lab.job_state("1") == "PENDING", what="a held job")
    path = saving.journal().folder / "journal.jsonl"
    path.write_text(path.read_text().replace('"placed"', '"lost"'))
    second = saving.start(*SLURM)
    wait_until(lambda: len(lines(saving, "told")) == 3, what=lambda: f"another job; {told(saving)}")
    slurm_lab.ask("scontrol", "release", "1")
    slurm_lab.release("1")
    wait_until(lambda: slurm_lab.job_state("1") == "COMPLETED", what=lambda: f"{slurm_lab.job('1')}")
    saving.open_gate()
    saving.end(second)
    assert lines(saving, "told") == [["begin", "0"], ["saved", "0"], ["begin", "0"], ["end", "0"]]
    assert saving.states() == ["finished"]


@pytest.mark.soak
def test_a_failing_run_is_tried_again(slurm_lab: SlurmLab, lab: Lab) -> None:
    lab.shell('echo try >> "tries$1"; echo "bad luck"; [ "$1" = 1 ]', retries=2, resources={"parallel": 2})
    told = lab.run(*SLURM, code=1)
    assert "exit status 1: bad luck" in told
    assert lab.states() == ["finished", "failed", "failed"]
    assert attempts(lab) == [1, 3, 3]


@pytest.mark.soak
def test_optuna_learns_from_jobs(slurm_lab: SlurmLab, lab: Lab) -> None:
    pytest.importorskip("optuna")
    (lab.folder / "train.py").write_text(TRAINING)
    lab.open_gate()
    lab.write(
        command=[sys.executable, "train.py", "{args}"],
        method="optuna",
        trials=4,
        parameters={"lr": {"uniform": [0.1, 0.5]}},
        seeds=1,
        metric="score",
        resources={"parallel": 2},
    )
    lab.run(*SLURM)
    assert lab.states() == ["finished"] * 4
    lab.kill_all(agents=True)  # the trainings have started one


def test_what_slurm_refuses_is_told(slurm_lab: SlurmLab, lab: Lab) -> None:
    for options, said in (
        ({"partitoin": "main"}, "partitoin"),
        ({"partition": "nowhere"}, "invalid partition"),
        ({"array": "1-3"}, "slurm.array cannot be set"),
        ({"time": "soon"}, "Invalid"),
        ({"in_queue": 0}, "slurm.in_queue must be"),
    ):
        lab.write(slurm=options)
        told = lab.run(*SLURM, code=1)
        assert said in told
        assert "Traceback" not in told
        assert set(lab.states()) <= {"waiting"}
    path = lab.write(slurm={"partition": "main"}, command=["true"])
    path.write_text(path.read_text() + "  time: 1:00:00\n")
    lab.run(*SLURM)
    assert lab.states() == ["finished"] * 3


def test_without_slurm_it_says_so(lab: Lab, tmp_path: Path) -> None:
    lab.write()
    path = tmp_path / "programs"
    path.mkdir()
    for name in ("sh", "env"):
        (path / name).symlink_to(shutil.which(name) or "")
    assert "there is no sbatch here" in lab.run(*SLURM, code=1, environment={"PATH": str(path)})


@pytest.mark.soak
def test_jobs_wait_for_a_slurm_that_is_away(
    slurm_lab: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rla_client.sweep.engines import slurm_engine
    from rla_client.sweep.engines.base import Work
    from rla_client.sweep.journal import Journal

    monkeypatch.setattr(slurm_engine, "AGAIN_S", 1.0)
    journal = Journal(tmp_path / "data", NAME).hold()
    engine = slurm_engine.SlurmEngine(make_spec({"command": "true"}, NAME), journal)
    paths = [str(journal.folder / "runs" / f"0001.{kind}") for kind in ("txt", "exit", "lock")]
    work = Work(1, ("true",), {"RLA_RUN_FILE": str(tmp_path / "items")}, str(tmp_path), *paths)
    slurm_lab.pause()
    assert engine.start([work]) == [""]
    assert engine.room() == 0
    slurm_lab.go_on()
    found = wait_until(lambda: engine.ended(1), what="its end")
    assert [(one.number, one.status) for one in found] == [(1, 0)]
    journal.release()
