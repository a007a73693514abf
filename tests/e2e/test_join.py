"""Processes that join a living run: by its address, each under a role, at once or not at all."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from support.user_scripts import RunFolder, Scripts, scripts_fixture  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow

MAIN = """
import os, subprocess, sys
import rla_client

def spawn(source, *arguments):
    kept = {name: value for name, value in os.environ.items() if name != "RLA_RUN"}
    return subprocess.Popen([sys.executable, "-c", source, *arguments], env=kept, cwd="/")

JOIN = '''
import os, signal, sys
import rla_client
from rla_client import exp_manager, logger, time_step_holder
address, role, *kill = sys.argv[1:]
run = rla_client.join(address, role=role)
assert rla_client.run_address() == address
for step in range(100):
    rla_client.log({"reward": float(step), "nested": {"len": step}}, step=step)
time_step_holder.set_time(7)
run.log({"samples": rla_client.Table(columns=["role"], data=[[role]])})
if kill:
    os.kill(os.getpid(), signal.SIGKILL)
'''
"""


def role_rows(run: RunFolder, role: str) -> list[dict[str, str]]:
    with (run.log / f"progress.{role}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_processes_join_by_address(scripts: Scripts) -> None:
    scripts.run(
        MAIN
        + """
run = rla_client.init("joined", config={"lr": 1})
address = rla_client.run_address()
roles = (["rollout-3"], ["rollout-3"], ["judge", "killed"])
processes = [spawn(JOIN, address, *words) for words in roles]
rla_client.log({"loss": 0.5}, step=5)
assert [process.wait(100) for process in processes] == [0, 0, -9]
"""
    )
    (run,) = scripts.runs()
    assert run.state["state"] == "finished"  # whatever became of those that joined
    assert [(row["loss"], row["time-step"]) for row in run.rows()] == [("0.5", "5")]
    for role in ("rollout-3", "rollout-3-2", "judge"):
        rows = role_rows(run, role)
        assert [int(row["time-step"]) for row in rows] == list(range(100))
        assert [float(row["reward"]) for row in rows] == list(map(float, range(100)))
        assert (run.folder("results") / role / "7-samples.csv").exists()
    assert sorted(path.name for path in run.log.glob("progress.*.csv")) == [
        "progress.judge.csv",
        "progress.rollout-3-2.csv",
        "progress.rollout-3.csv",
    ]
    from rla_client.database.database import Database

    (record,) = Database(scripts.folder / "data").records()
    assert record.metrics["reward@judge"] == record.metrics["nested/len@rollout-3-2"] == 99
    assert record.metrics["loss"] == 0.5


def test_who_cannot_join_is_told_at_once(scripts: Scripts) -> None:
    scripts.run(
        """
import os, time
import rla_client
from rla_client.contract.errors import ArgumentError, NoSuchRunError, NotConfiguredError
try:
    rla_client.run_address()
except NotConfiguredError as error:
    assert "rla_client.init" in str(error)
run = rla_client.init("first")
address = run_address = rla_client.run_address()
for wrong in ("", "old-1", "a/b", "../x", "3", "a" * 65, "x.y"):
    try:
        rla_client.join(address, role=wrong)
    except ArgumentError as error:
        assert "a role begins with a letter" in str(error), error
    else:
        assert wrong == ""
        rla_client.exp_manager.close()
run.close()
began = time.monotonic()
for wrong, kind, words in (
    (address, NoSuchRunError, "cannot be joined: no living process of this machine writes it"),
    ("there", ArgumentError, "is no address of a run"),
    ("x@/nowhere", NoSuchRunError, "cannot be joined"),
):
    try:
        rla_client.join(wrong, role="late")
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(wrong)
assert time.monotonic() - began < 2
again = rla_client.init("second")  # what could not be joined changes nothing
rla_client.log({"a": 1}, step=1)
"""
    )
    first, second = sorted(scripts.runs(2), key=lambda run: run.table)
    assert (first.table, second.table) == ("first", "second")
    assert [row["a"] for row in second.rows()] == ["1"]


def test_where_nothing_is_stored_who_joins_stores_nothing(scripts: Scripts) -> None:
    scripts.run(
        MAIN
        + """
rla_client.init("none")
assert rla_client.run_address() == ""
assert spawn(JOIN, "", "a").wait(100) == 0
""",
        RLA_MODE="disabled",
    )
    assert not (scripts.folder / "data").exists()


def test_children_of_a_process_that_joined_are_part_of_the_run(scripts: Scripts) -> None:
    scripts.run(
        MAIN
        + """
CHILD = '''
import rla_client
rla_client.log({"inner": 1.0}, step=1)
'''
PARENT = '''
import os, subprocess, sys
import rla_client
rla_client.join(sys.argv[1], role="actor")
rla_client.log({"outer": 2.0}, step=1)
subprocess.run([sys.executable, "-c", sys.argv[2]], check=True)
if os.fork() == 0:
    rla_client.log({"forked": 3.0}, step=1)
    sys.exit()
os.wait()
'''
rla_client.init("nested")
assert spawn(PARENT, rla_client.run_address(), CHILD).wait(100) == 0
""",
        RANK="0",
    )
    (run,) = scripts.runs()
    found = {
        name
        for path in run.log.glob("progress.*.csv")
        for name in path.read_text().splitlines()[0].split(",")
    }
    assert found == {"outer", "inner", "forked", "time-step", "timestamp"}
    assert json.loads((run.log / "run.json").read_text())["state"] == "finished"
    assert Path(run.log / "progress.actor.csv").exists()
