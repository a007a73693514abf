"""Sweeps whose runs are calls of a function: wrapped experiments and plain ones."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.sweep_lab import Lab
from support.waiting import wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "launcher"))
import launchers

from rla_client.launcher.pending_streams import await_end

PLAIN = """
import json, os, sys
from dataclasses import dataclass
import helper

@dataclass
class Given:
    lr: float

def search(lr, name="none", *, flag=None):
    told = {"lr": Given(lr).lr, "name": name, "flag": flag, "main": sys.modules["__main__"].__name__}
    told |= {"helper": helper.HERE, "argv": sys.argv, "root": os.environ["RLA_DATA_ROOT"]}
    open(f"called{lr}", "a").write(json.dumps(told) + "\\n")

def fails(lr):
    raise ValueError(f"no {lr}")

nothing = 3
if __name__ == "__main__":
    sys.exit("this is not what is wanted")
"""


def project(lab: Lab) -> None:
    (lab.folder / "sub").mkdir()
    (lab.folder / "sub" / "plain.py").write_text(PLAIN)
    (lab.folder / "sub" / "helper.py").write_text("HERE = __file__\n")
    (lab.folder / "module.py").write_text("from sub.plain import *\n")


def experiment(lab: Lab, what: str, **content: Any) -> None:
    path = lab.write(**content)
    text = path.read_text().splitlines(keepends=True)
    kept: list[str] = []
    skipping = False
    for line in text:
        skipping = line.startswith("command:") or (skipping and line.startswith("- "))
        if not skipping:
            kept.append(line)
    path.write_text("".join([*kept, f"experiment: {what}\n"]))


def test_a_plain_function(lab: Lab) -> None:
    project(lab)
    parameters = {"lr": [0.5, 1], "name": 'é "b"', "flag": True}
    experiment(lab, "sub/plain.py:search", parameters=parameters)
    assert lab.run().endswith("2 finished\n")
    found = json.loads((lab.folder / "called0.5").read_text())
    assert (found["lr"], found["name"], found["flag"]) == (0.5, 'é "b"', True)
    assert found["main"] == "__mp_main__"
    assert found["helper"] == str(lab.folder / "sub" / "helper.py")
    assert found["argv"] == [str(lab.folder / "sub" / "plain.py")]
    assert found["root"] == str(lab.root)


def test_a_function_of_a_module(lab: Lab) -> None:
    (lab.folder / "module.py").write_text("def f(lr):\n    open(f'called{lr}', 'w')\n")
    experiment(lab, "module:f", parameters={"lr": [1]})
    lab.run()
    assert (lab.folder / "called1").exists()


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("sub/plain.py:fails", "exit status 1: ValueError: no 1"),
        ("sub/plain.py:serch", "did you mean 'search'?"),
        ("sub/plain.py:nothing", "hint: there are: dataclass, search, fails"),
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_called(lab: Lab, what: str, told: str) -> None:
    project(lab)
    experiment(lab, what, parameters={"lr": [1]})
    lab.run(code=1)
    assert told.removeprefix("exit status 1: ") in lab.output(1)
    assert told.rpartition(": ")[2] in lab.journal().runs[1].reason


def test_parameters_that_the_function_does_not_take(lab: Lab) -> None:
    project(lab)
    experiment(lab, "sub/plain.py:search", parameters={"rl": [1]})
    lab.run(code=1)
    assert "TypeError" in lab.journal().runs[1].reason


@pytest.mark.slow
def test_a_wrapped_experiment_goes_on_where_it_was_killed(
    lab: Lab, agent: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    launcher = launchers.write(lab.folder, "prefix='task', snapshot_mode='all'", "pass")
    (lab.folder / "rla_config.yaml").write_text("BACKUP_CONFIG:\n  backup_code_dir: [launcher.py]\n")
    experiment(lab, f"{launcher.name}:search", parameters={"epoch_s": [0.03]})
    driver = lab.start()
    wait_until(
        lambda: "failed" in lab.states() or (lab.states() and "epoch #3 | EpochTime" in output(lab)), 60
    )
    lab.end(driver, signal.SIGKILL)
    lab.kill_all()
    assert lab.run("resume").endswith("1 finished\n")
    (log,) = sorted(record.parent for record in (lab.root / "log").rglob("variant.json"))
    await_end(log)
    rows = launchers.rows(log)
    assert len(rows) == 12
    assert output(lab).count("epoch #0 | EpochTime") == 1, "it went on"


def output(lab: Lab) -> str:
    path = lab.journal().folder / "runs" / "0001.txt"
    return path.read_text() if path.exists() else ""
