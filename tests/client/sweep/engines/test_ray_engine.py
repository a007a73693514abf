"""`rla sweep --on ray` on a real Ray: what is killed goes on, nothing runs twice, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.sweep_lab import make_spec
from support.waiting import lives, wait_until

from rla_client.database.database import Database
from rla_client.sweep.engines import ray_task as ray_task_module
from rla_client.sweep.engines import ray_watcher as ray_watcher_module
from rla_client.sweep.engines.attempt_files import is_released
from rla_client.sweep.engines.attempt_process import NOT_STARTED
from rla_client.sweep.engines.base import Work
from rla_client.sweep.engines.ray_engine import RayEngine
from rla_client.sweep.journal import Journal, SweepError
from rla_client.sweep.run_state import FINISHED

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.scale

STEPS = 20
RUNS = 12
SCRIPT = f"""
import argparse, os, sys, time
import rla_client
from rla_client import exp_manager, logger, time_step_holder

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--seed", type=int)
given = parser.parse_args()
rla_client.init("toy", config=given, track=["lr", "seed"])
exp_manager.new_saver(max_to_keep=1)
start = 0
if exp_manager.resumed_from is not None:
    start = exp_manager.load_checkpoint()[1]["i"] + 1
for i in range(start, {STEPS}):
    time_step_holder.set_time(i)
    logger.logkv("score", given.lr * i + given.seed)
    logger.dumpkvs()
    exp_manager.save_checkpoint({{"i": i}})
    time.sleep(0.05)
"""
SPEC: dict[str, Any] = {
    "command": f"{sys.executable} train.py --lr {{lr}} --seed {{seed}}",
    "parameters": {"lr": [0.1, 0.2]},
    "seeds": RUNS // 2,
    "metric": "score",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Four cores; nodes and agents end with it."""
    from ray.cluster_utils import Cluster

    runtime = tempfile.mkdtemp(prefix="rla-ray-", dir="/tmp")  # a socket path has 107 bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLA_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        patch.setenv("RLA_RUNTIME_DIR", runtime)
        patch.delenv("RLA_DATA_ROOT", raising=False)
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
        ray.shutdown()
        made.shutdown()
        subprocess.run([sys.executable, "-m", "rla_agent", "stop"], capture_output=True, check=False)
        wait_until(lambda: not _processes(runtime), what=lambda: f"the end of {_processes(runtime)}")


def _processes(runtime: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            ended = process.status() == psutil.STATUS_ZOMBIE
            if process.pid != os.getpid() and not ended:
                told = process.environ().get("RLA_RUNTIME_DIR") == runtime
                found += [f"{process.pid}: {process.cmdline()}"] if told else []
    return found


class Sweep:
    """A sweep in a folder, and its driver."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "data röot"
        self.log = folder / "driver.log"
        self.runs = RUNS

    def write(self, **changes: object) -> None:
        (self.folder / "train.py").write_text(SCRIPT)
        (self.folder / "s.yaml").write_text(json.dumps({**SPEC, **changes}))

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "rla_client.cli.app", "sweep", "s.yaml", "--on", "ray"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*command, "-d", str(self.root)],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def journal(self) -> Journal:
        return Journal(self.root, "s").read()

    def states(self) -> list[str]:
        try:
            return [run.state for run in self.journal().runs.values()]
        except SweepError:
            return []

    def await_middle(self) -> None:
        """Some runs have finished, and some have written rows."""

        def reached() -> bool:
            return self.states().count(FINISHED) >= 2 and len(self.writing()) >= 2

        wait_until(reached, 120, lambda: f"the middle: {self.log.read_text()}")

    def writing(self) -> list[tuple[int, int]]:
        """Number and process of the runs that run and have an item."""
        found = []
        journal = self.journal()
        for run in journal.runs.values():
            with suppress(OSError, ValueError):
                if run.state == "running" and journal.items(run):
                    found.append((run.number, int(journal.path(run, "lock").read_text())))
        return found

    def end(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait for the end of all runs, and look whether they are what they must be."""
        wait_until(lambda: driver.poll() is not None, 240, lambda: f"the end: {self.log.read_text()}")
        assert driver.returncode == 0, self.log.read_text()
        assert self.states() == [FINISHED] * self.runs
        wait_until(
            lambda: self.rows() == [[*range(STEPS)]] * self.runs, 60, lambda: f"all rows: {self.rows()}"
        )
        runs = list(Database(self.root))
        assert [run.state for run in runs] == ["finished"] * self.runs, "no item beside those of the runs"

    def rows(self) -> list[list[int]]:
        return [[int(step) for step in run.scalars(["score"]).index] for run in Database(self.root)]


@pytest.fixture
def sweep(cluster: Any, tmp_path: Path) -> Sweep:
    made = Sweep(tmp_path)
    made.write()
    return made


@pytest.mark.slow
def test_driver_killed(sweep: Sweep) -> None:
    driver = sweep.start()
    sweep.await_middle()
    programs = [pid for _, pid in sweep.writing()]
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not any(map(lives, programs)), what="programs end with their driver")
    sweep.end(sweep.start())
    assert any(run.attempts > 1 for run in sweep.journal().runs.values())


@pytest.mark.slow
def test_worker_killed(sweep: Sweep) -> None:
    driver = sweep.start()
    sweep.await_middle()
    number, program = sweep.writing()[0]
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(program).parent()
        assert parent is not None
        parent.kill()
    wait_until(lambda: not lives(program), what="the program ends with its worker")
    sweep.end(driver)
    run = sweep.journal().runs[number]
    assert run.attempts == 1 + run.kills


@pytest.mark.slow
@pytest.mark.brief
@pytest.mark.further
def test_driver_and_program_killed(sweep: Sweep) -> None:
    sweep.runs = 3
    sweep.write(parameters={"lr": [0.1]}, seeds=3, resources={"parallel": 2})
    driver = sweep.start()
    wait_until(
        lambda: sweep.states() and len(sweep.writing()) >= 2, 120, lambda: f"runs: {sweep.log.read_text()}"
    )
    programs = [pid for _, pid in sweep.writing()]
    with suppress(ProcessLookupError):
        os.kill(programs[0], signal.SIGKILL)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not any(map(lives, programs)), what="programs end with their driver")
    sweep.end(sweep.start())
    assert any(run.attempts > 1 for run in sweep.journal().runs.values())


@pytest.mark.slow
def test_node_killed(cluster: Any, sweep: Sweep) -> None:
    second = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    driver = sweep.start()
    sweep.await_middle()
    cluster.remove_node(second, allow_graceful=False)
    sweep.end(driver)
    assert any(run.kills for run in sweep.journal().runs.values())


@pytest.fixture
def journal(cluster: Any, tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path, "s").hold()
    yield made
    made.release()


@pytest.fixture
def engine_of(journal: Journal) -> Iterator[Callable[..., RayEngine]]:
    made: list[RayEngine] = []

    def make(**changes: object) -> RayEngine:
        made.append(RayEngine(make_spec({**SPEC, **changes}, "s"), journal))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def _work(journal: Journal, number: int, *command: str) -> Work:
    run = journal.plan([(number, {"number": number})], anew=True)[0]
    journal.tell(run, "started", engine="ray")
    paths = (str(journal.path(run, kind)) for kind in ("txt", "exit", "lock"))
    given = {"RLA_RUN_ID": f"s-{number}", "RLA_DATA_ROOT": str(journal.data_root), "RLA_RUN_FILE": "items"}
    return Work(run.number, command, given, str(journal.data_root), *paths)


def _all_ended(engine: RayEngine, count: int) -> dict[int, Any]:
    found: dict[int, Any] = {}

    def ended() -> bool:
        found.update({one.number: one for one in engine.ended(0.5)})
        return len(found) >= count

    wait_until(ended, 60, lambda: f"{count} ends: {found}")
    return found


def test_ends_and_their_reasons(engine_of: Callable[..., RayEngine], journal: Journal) -> None:
    engine = engine_of()
    assert engine.room() >= 4
    works = [
        _work(journal, 1, "/bin/sh", "-c", "echo said; exit 3"),
        _work(journal, 2, "/no/such/program"),
        _work(journal, 3, "/bin/sh", "-c", "kill -9 $$"),
        _work(journal, 4, "/bin/sh", "-c", "echo term; kill -9 $PPID; sleep 1000"),
    ]
    engine.start(works)
    found = _all_ended(engine, 4)
    assert found[1].status == 3
    assert Path(works[0].output).read_text() == "said\n"
    assert Path(works[0].exit).read_text() == "3\n"
    assert found[2].status == NOT_STARTED
    assert "/no/such/program" in found[2].reason
    assert found[3].status == 128 + 9
    assert found[4].status is None
    assert "WorkerCrashedError" in found[4].reason
    assert is_released(works[3].lock, 20.0), "the program ends with its worker"


def test_stop_asks_and_kill_ends(engine_of: Callable[..., RayEngine], journal: Journal) -> None:
    engine = engine_of(resources={"parallel": 2})
    gentle = "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    deaf = "trap '' TERM; echo ready; sleep 1000 & sleep 1000"
    works = [_work(journal, 1, "/bin/sh", "-c", gentle), _work(journal, 2, "/bin/sh", "-c", deaf)]
    engine.start(works)
    assert engine.room() == 0
    for work in works:
        wait_until(lambda at=Path(work.output): at.exists() and "ready" in at.read_text(), 60)  # type: ignore[misc]
    engine.stop([1, 2], kill=False)
    assert _all_ended(engine, 1)[1].status == 5
    assert not is_released(works[1].lock, 0.0)
    engine.stop([2], kill=True)
    assert _all_ended(engine, 1)[2].status in {None, 128 + 9}
    assert is_released(works[1].lock, 20.0)


def test_options_are_checked(engine_of: Callable[..., RayEngine]) -> None:
    for given, told in (
        ({"adress": "auto"}, "did you mean 'address'"),
        ({"num_cpus": "many"}, "ray.num_cpus must be a whole number"),
        ({"scheduling_strategy": "SPRED"}, "did you mean 'SPREAD'"),
        ({"num_cpus": 2}, "cannot be used"),  # there is a cluster already
    ):
        with pytest.raises(SweepError, match=told):
            engine_of(ray=given)


def test_a_run_that_no_node_holds_is_refused(engine_of: Callable[..., RayEngine]) -> None:
    with pytest.raises(SweepError, match=r"takes 1 CPU, 1 GPU"):
        engine_of(resources={"gpus": 1})
    assert engine_of(resources={"gpus": 1}, ray={"autoscaling": True}).room() >= 1


IDENT = "f00f00"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Work of a sweep whose folders are not on this machine."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "state"))
    given = {"RLA_RUN_ID": "s-1", "RLA_DATA_ROOT": str(tmp_path / "root"), "RLA_RUN_FILE": "/nowhere/items"}
    command = ("/bin/sh", "-c", 'pwd; echo "{}" >>"$RLA_RUN_FILE"; exit 4')
    watcher = ray_watcher_module._Watcher()
    monkeypatch.setattr("rla_client.sweep.engines.ray_task.watcher", watcher)
    yield Work(1, command, given, "/nowhere", "/nowhere/txt", "/nowhere/exit", "/nowhere/lock")
    if watcher._pipe >= 0:
        os.close(watcher._pipe)


SWEEP = ray_task_module.Sweep("/nowhere/journal.jsonl", IDENT, sys.executable)


def test_files_of_a_node_that_shares_none_come_back(elsewhere: Work, tmp_path: Path) -> None:
    outcome = ray_task_module.run_work(elsewhere, SWEEP, again=False)
    assert outcome.status == 4
    assert outcome.output.decode() == f"{tmp_path / 'here'}\n"
    assert outcome.items == b"{}\n"
    assert not list((tmp_path / "state").rglob("*.lock")), "nothing is left there"


def test_a_finished_run_is_not_started_again(elsewhere: Work, tmp_path: Path) -> None:
    item = tmp_path / "root/log/toy/2026/11/21/09-30-01-123456_10.0.0.5_&lr=0.1"
    item.mkdir(parents=True)
    (item / "run.json").write_text(json.dumps({"state": "finished", "run_key": "s-1"}))
    assert ray_task_module.run_work(elsewhere, SWEEP, again=True).status == 0
    (item / "run.json").write_text(json.dumps({"state": "killed", "run_key": "s-1"}))
    assert ray_task_module.run_work(elsewhere, SWEEP, again=True).status == 4


def test_an_attempt_waits_for_the_one_before(elsewhere: Work, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_text(f'{{"event":"sweep","ident":"{IDENT}"}}\n')
    paths = (str(tmp_path / f"1.{kind}") for kind in ("txt", "exit", "lock"))
    shared = Work(1, elsewhere.command, elsewhere.environment, str(tmp_path), *paths)
    with subprocess.Popen(
        ["flock", shared.lock, "sh", "-c", "echo held; sleep 1"], stdout=subprocess.PIPE
    ) as former:
        assert former.stdout is not None
        assert former.stdout.readline() == b"held\n"
        began = time.monotonic()
        sweep = ray_task_module.Sweep(str(journal), IDENT, sys.executable)
        assert ray_task_module.run_work(shared, sweep, again=True).status == 4
        assert time.monotonic() - began > 0.3


def test_watcher_ends_what_holds_the_lock_not_who_waits_for_it(tmp_path: Path) -> None:
    lock = tmp_path / "1.lock"
    lock.touch()  # without a number: the worker died between fork and write
    with (
        subprocess.Popen(
            ["flock", lock, "sh", "-c", "echo held; exec sleep 1000"], stdout=subprocess.PIPE
        ) as holder,
        lock.open("rb"),
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        tell = (
            "import sys; from rla_client.sweep.engines.ray_watcher import watcher; watcher.tell(sys.argv[1])"
        )
        subprocess.run([sys.executable, "-c", tell, lock], check=True)
        released = is_released(str(lock), 20.0)
        holder.kill()
    assert released
