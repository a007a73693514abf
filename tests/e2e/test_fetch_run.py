"""A run that is killed on one machine goes on, on another one, from its checkpoint on the master."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from support.replication_lab import Sshd
from support.waiting import wait_until

from rla_client import database
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE, Places

TRAIN = """
import os, signal, sys
import numpy as np
from rla_client import exp_manager, logger, time_step_holder
root, config, until, kill_at, mode = sys.argv[1:6]
np.random.seed(7)
exp_manager.configure('t', config, root, run_id='shared', resume=mode)
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen()
exp_manager.new_saver(max_to_keep=2)
weights = np.zeros(3000)
start = 0
if exp_manager.resumed:
    start, content = exp_manager.load_checkpoint()
    weights = content['weights']
    assert exp_manager.get_custom_data('seen') == start, exp_manager.custom_data
for step in range(start + 1, int(until) + 1):
    time_step_holder.set_time(step)
    weights = weights + np.random.randn(3000)
    logger.record_tabular('loss', float(np.abs(weights).mean()))
    logger.ma_record_tabular('smooth', float(weights[0]), 4)
    logger.dump_tabular()
    if step % 10 == 0:
        exp_manager.save_checkpoint({'weights': weights}, related_variable={'seen': step})
    if step == int(kill_at):
        exp_manager.sync_log_file(wait=True, timeout=60)
        os.kill(os.getpid(), signal.SIGKILL)
exp_manager.flush(60)
print(exp_manager.log_dir)
"""
NAMESPACE = os.geteuid() == 0 and shutil.which("unshare") is not None and shutil.which("hostname") is not None


class Machine:
    """A host name, a state folder, a data root and an agent of their own."""

    def __init__(self, folder: Path, name: str, remote: dict[str, object]) -> None:
        self.name = name
        self.root, self.config = folder / "data", folder / "rla_config.yaml"
        folder.mkdir()
        self.root.mkdir()
        self.runtime = Path(tempfile.mkdtemp(prefix="rla-", dir="/tmp"))
        self.environment = {
            **os.environ,
            STATE_VARIABLE: str(folder / "state"),
            RUNTIME_VARIABLE: str(self.runtime),
        }
        content = {
            "LOG_USED": ["csv"],
            "SEND_LOG_FILE": True,
            "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]},
            "REMOTE_SETTING": remote,
        }
        self.config.write_text(yaml.safe_dump(content))
        (folder / "train.py").write_text(TRAIN)
        self.script = folder / "train.py"
        self.agent: subprocess.Popen[bytes] | None = None

    def command(self, *words: object) -> list[str]:
        inner = [sys.executable, *map(str, words)]
        if not NAMESPACE:
            return inner
        return ["unshare", "--uts", "sh", "-c", f'hostname {self.name} && exec "$@"', "sh", *inner]

    def start(self) -> None:
        log = self.config.with_name("agent.log").open("ab")
        self.agent = subprocess.Popen(
            self.command("-m", "rla_agent", "start"), env=self.environment, stdout=log, stderr=log
        )
        log.close()
        places = Places(self.config.with_name("state"), self.runtime)
        wait_until(lambda: agent_alive(places), 30, what="an agent, before a client starts one")

    def stop(self) -> None:
        if self.agent is not None:
            self.agent.terminate()
            self.agent.wait(90)
            self.agent = None

    def train(self, until: int, kill_at: int = 0, mode: str = "allow") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(self.script, self.root, self.config, until, kill_at, mode),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def items(self) -> list[Path]:
        return sorted(self.root.glob("log/t/*/*/*/*"))


@pytest.fixture
def machine(tmp_path: Path, master: Sshd, places: Places) -> Iterator[Callable[[str], Machine]]:
    del places  # its teardown looks for processes that stayed
    made: list[Machine] = []

    def make(name: str) -> Machine:
        made.append(Machine(tmp_path / name, name, master.remote()))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()
        shutil.rmtree(one.runtime, ignore_errors=True)


def state_on(master: Sshd) -> list[str]:
    return [
        json.loads(path.read_text()).get("state", "")
        for path in sorted(master.root.glob("log/t/*/*/*/*/run.json"))
    ]


@pytest.mark.slow
def test_begun_here_killed_and_finished_there(
    machine: Callable[[str], Machine], master: Sshd, wait_until: Callable[..., Any]
) -> None:
    first = machine("node-a")
    killed = first.train(40, kill_at=27)
    assert killed.returncode in {-signal.SIGKILL, 128 + signal.SIGKILL}, killed.stderr
    wait_until(lambda: state_on(master) == ["killed"], 30, what="the end of the run on the master")
    second = machine("node-b")
    done = second.train(40)
    assert done.returncode == 0, done.stderr
    parent, child = second.items()
    wait_until(lambda: sorted(state_on(master)) == ["finished", "killed"], 40, what="both runs there")
    link = json.loads((child / "run.json").read_text())["parent"]
    assert (link["time_step"], link["chain"], link["rows"]) == (20, True, 20)
    assert link["run"] == "/".join(parent.parts[-4:])
    whole = machine("node-c")
    whole.config.write_text(whole.config.read_text().replace("SEND_LOG_FILE: true", "SEND_LOG_FILE: false"))
    assert whole.train(40).returncode == 0
    reference = pd.read_csv(whole.items()[0] / "progress.csv").drop(columns="timestamp")
    for root in (second.root, master.root):
        _is_one_run(root, child, reference)
    third = machine("node-d")
    for again in (second, third):  # it has finished: at its last checkpoint nothing is left to do
        done = again.train(40)
        assert done.returncode == 0, done.stderr
        about, copy = child / "run.json", master.root / child.relative_to(second.root) / "run.json"
        wait_until(lambda: b'"reopened": null' not in copy.read_bytes() == about.read_bytes(), 40)  # noqa: B023
        wait_until(lambda: json.loads(copy.read_text())["state"] == "finished", 40)  # noqa: B023
    wait_until(lambda: sorted(state_on(master)) == ["finished", "finished", "killed"], 40)
    assert second.items() == [parent, child]
    _is_one_run(second.root, child, reference)
    link = json.loads((third.items()[-1] / "run.json").read_text())["parent"]
    assert (link["run"], link["time_step"]) == ("/".join(child.parts[-4:]), 40)
    assert list(database.open(third.root).runs("t")["time-step"]) == [40]


def _is_one_run(root: Path, child: Path, reference: pd.DataFrame) -> None:
    found = database.open(root)
    table = found.runs("t")
    assert list(table["index"]) == ["/".join(child.parts[-4:])]
    assert list(table["time-step"]) == [40]
    curve = found.curves(table, ["loss", "smooth"])
    for metric in ("loss", "smooth"):
        part = curve[curve["metric"] == metric]
        known = reference[["time-step", metric]].dropna()
        np.testing.assert_array_equal(part["x"], known["time-step"])
        np.testing.assert_array_equal(part["value"], known[metric])
    (run,) = list(found)
    scalars = run.scalars(["time-step", "loss"])
    pd.testing.assert_frame_equal(
        scalars, reference[["time-step", "loss"]].astype(float), check_exact=True, check_dtype=False
    )


@pytest.mark.soak
def test_back_and_forth_and_a_third(
    machine: Callable[[str], Machine], master: Sshd, wait_until: Callable[..., Any]
) -> None:
    first, second = machine("node-a"), machine("node-b")
    first.train(60, kill_at=15)
    wait_until(lambda: state_on(master) == ["killed"], 30)
    second.train(60, kill_at=35)
    wait_until(lambda: state_on(master) == ["killed", "killed"], 30)
    back = first.train(60)  # its own run is here, but it went on elsewhere: that one counts
    assert back.returncode == 0, back.stderr
    wait_until(lambda: sorted(state_on(master)) == ["finished", "killed", "killed"], 40)
    for root in (first.root, master.root):
        found = database.open(root)
        table = found.runs("t")
        assert len(table) == 1
        curve = found.curves(table, "loss")
        assert list(curve["x"]) == list(range(1, 61))


@pytest.mark.further
@pytest.mark.slow
def test_without_a_master(
    machine: Callable[[str], Machine], master: Sshd, wait_until: Callable[..., Any]
) -> None:
    node = machine("node-a")
    none = node.train(10, mode="must")
    assert none.returncode == 1
    assert "or on the master has no run 'shared' to continue" in none.stderr
    master.stop()
    refused = node.train(10, mode="must")
    assert refused.returncode == 1
    assert "FetchError" in refused.stderr
    assert "no run 'shared' to continue in table 't' comes from the master" in refused.stderr
    assert node.items() == []
    begun = node.train(10)
    assert begun.returncode == 0, begun.stderr
    assert "A new run begins" in begun.stdout + begun.stderr
    wait_until(lambda: len(node.items()) == 1)


@pytest.mark.further
@pytest.mark.slow
def test_a_run_that_lives_elsewhere_is_not_begun_again(
    machine: Callable[[str], Machine], master: Sshd, wait_until: Callable[..., Any]
) -> None:
    first, second = machine("node-a"), machine("node-b")
    script = TRAIN.replace(
        "os.kill(os.getpid(), signal.SIGKILL)", "print('up', flush=True); sys.stdin.read()"
    )
    living = subprocess.Popen(
        first.command("-c", script, first.root, first.config, 40, 25, "allow"),
        env=first.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert living.stdout is not None
        assert any(line == "up\n" for line in living.stdout)
        wait_until(lambda: state_on(master) == ["running"], 20)
        refused = second.train(40)
        assert refused.returncode == 1
        assert "still being written on " in refused.stderr
        assert second.items() == []
    finally:
        living.kill()
        living.communicate()
