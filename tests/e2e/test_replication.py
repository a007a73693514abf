"""Training → agent → real sshd: what is here is there, at once while it runs, exactly after trouble."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.replicated_project import Project
from support.replication_lab import Sshd, tree
from support.waiting import TIME_FACTOR


@pytest.fixture
def project(tmp_path: Path, master: Sshd, places: Any) -> Iterator[Project]:
    del places  # goes after the training processes
    made = Project(tmp_path / "project", master)
    yield made
    made.end()


@pytest.fixture
def agent(new_agent: Callable[..., Any]) -> Iterator[Any]:
    made = new_agent().start()
    yield made
    made.stop()


class Reader(threading.Thread):
    """Reads a growing CSV of the master all the time, as a plot does."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.torn: list[bytes] = []
        self.reads = 0
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.001):
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                continue
            self.reads += 1
            if not data.endswith(b"\n") or data.count(b'"') % 2:
                self.torn.append(data[-80:])


def last_number(path: Path) -> int:
    import csv

    try:
        with path.open() as file:
            return max((int(row["number"]) for row in csv.DictReader(file)), default=0)
    except FileNotFoundError:
        return 0


@pytest.mark.slow
def test_rows_are_there_at_once_and_everything_after_trouble(
    project: Project, agent: Any, wait_until: Callable[..., Any]
) -> None:
    training = project.train()
    rows = project.there(training.log) / "progress.csv"
    training.tell("rows 1")
    wait_until(lambda: last_number(rows) == 1, 15, what="the first row on the master")
    reader = Reader(rows)
    reader.start()
    lags = []
    for _ in range(12):
        number = int(training.tell("rows 7"))
        dumped = time.monotonic()
        wait_until(lambda number=number: last_number(rows) == number, what="rows on the master")
        lags.append(time.monotonic() - dumped)
    print(f"rows were on the master after {sorted(lags)[len(lags) // 2]:.2f} s (median)")  # noqa: T201
    assert training.tell("checkpoint 4") == "True"
    agent.kill()
    training.tell("rows 500")
    agent.start()
    training.tell("rows 300")
    wait_until(lambda: last_number(rows) == 885, 20, what="rows after a kill of the agent")
    project.master.stop()
    training.tell("rows 1000")
    wait_until(lambda: targets(agent)[0]["health"] == "retrying", 30, what="status that says retrying")
    wait_until(
        lambda: "refused" in agent.command("replicate", "status").stdout, 20, what="the reason in status"
    )
    project.master.start()
    training.tell("rows 100")
    training.end()
    wait_until(project.same, 60, what=lambda: f"equal trees: {project.differences()}")
    wait_until((project.there(training.log) / "SHA256SUMS").exists, 20, what="sums on the master")
    wait_until(project.same, 20)
    reader.done.set()
    reader.join()
    assert reader.torn == []
    assert reader.reads > 0
    checked = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"],
        cwd=project.there(training.log),
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert ".resume" in checked.stdout  # what exact resume needs goes along
    there = "\n".join(tree(project.master.root))
    assert "scratch.txt" in there
    assert "own/kept.bin" in there
    assert ".objects" not in there
    assert ".kept-" not in there
    assert [path.name for path in project.master.root.rglob(".rla*")] in ([], [".rla-fleet"])


def targets(agent: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = agent.status()["replication"]["targets"]
    return found or [{"health": "", "backlog": {}}]


@pytest.mark.slow
def test_status_tells_of_replication(project: Project, agent: Any, wait_until: Callable[..., Any]) -> None:
    training = project.train()
    training.tell("rows 3")

    def succeeded() -> dict[str, Any]:
        """The target, once all but the rows that may still come has gone."""
        (target,) = targets(agent)
        return target if target.get("last_success") and set(target["backlog"]) <= {"log"} else {}

    target = wait_until(succeeded, 30, what="a success in status")
    assert target["target"].endswith(str(project.master.root))
    assert target["health"] == "ok"
    assert f":{project.master.port}" in agent.command("status").stdout
    training.tell("rows 20")

    def fleet() -> str:
        return str(agent.command("status", "--fleet").stdout)

    shown = wait_until(lambda: "time-step" in (text := fleet()) and text, 40, what="a time-step in the fleet")
    assert os.uname().nodename in shown
    training.end()
    wait_until(project.same, 30, what="equal trees")
    added = Path(str(training.log).replace("/log/", "/results/", 1)) / "afterwards.txt"
    wait_until((project.there(training.log) / "SHA256SUMS").exists, 20)
    changed = 0.0

    def noticed() -> bool:  # written again and again, for the folder may not be watched yet
        nonlocal changed
        if time.monotonic() - changed > 3:
            changed = time.monotonic()
            added.write_text(f"by hand {changed}")
        return project.there(added).exists()

    wait_until(noticed, 30, what="a file that was added to an ended run, before the look at everything")


@pytest.mark.slow
def test_what_is_parked_is_shown_with_its_fix(
    project: Project, agent: Any, wait_until: Callable[..., Any]
) -> None:
    training = project.train()
    training.tell("rows 3")
    wait_until(lambda: last_number(project.there(training.log) / "progress.csv") == 3, 15)
    moved = project.there(training.log)
    wait_until(project.same, 15, what="all that is there so far")
    moved.rename(moved.with_name("moved"))
    training.tell("rows 3")
    training.tell("sync")
    parked = wait_until(lambda: agent.status()["replication"]["parked"], 20, what="a parked file")
    assert all("moved on master" in file["reason"] and "retry" in file["fix"] for file in parked)
    shown = agent.command("status").stdout
    assert "moved on master" in shown.replace("\n", " ")
    problems = agent.status()["problems"]
    assert any("moved on master" in problem["what"] and problem["fix"] for problem in problems)
    assert agent.command("replicate", "retry").returncode == 0
    wait_until(lambda: last_number(project.there(training.log) / "progress.csv") == 6, 20)


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_replicate_now_and_wait(project: Project) -> None:
    training = project.train()
    training.tell("rows 5")
    results = Path(str(training.log).replace("/log/", "/results/", 1))
    (results / "figure.bin").write_bytes(os.urandom(300_000))
    assert training.tell("sync wait") == "True"
    assert project.differences() == {"missing": [], "extra": [], "other": []}
    assert training.tell("sync") == "True"
    project.master.stop()
    training.tell("rows 5")
    assert training.tell("sync") == "True"  # asked for, not waited for: it goes when the master is back
    project.master.start()
    assert training.tell("sync wait") == "True"
    assert last_number(project.there(training.log) / "progress.csv") == 10


@pytest.mark.slow
def test_a_run_on_the_master_itself_stays_there(project: Project, agent: Any) -> None:
    training = project.train("master")
    training.tell("rows 5")
    assert training.tell("sync wait") == "False"
    other = project.train()
    other.tell("rows 5")
    said = other.tell("sync wait")
    own = [path for paths in project.differences().values() for path in paths if other.log.name in path]
    assert said == "True", (own, agent.command("replicate", "status").stdout)
    assert not project.there(training.log).exists()
    registered = json.loads((agent.places.state / "replicate" / "databases.json").read_bytes())
    assert len(registered["databases"][0]["off"]) == 1


RLA = "from rla_client.cli.app import main; main()"


def rla(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RLA, *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
def test_pull_verify_push(
    project: Project, agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    training = project.train()
    training.tell("rows 20")
    training.end()
    sums = project.there(training.log) / "SHA256SUMS"
    wait_until(lambda: sums.exists() and project.same(), 30, what="equal trees")
    where = ("--config", project.config, "--data-root")
    laptop = tmp_path / "laptop"
    laptop.mkdir()
    done = rla("pull", *where, laptop, "--table", "tab*", "--kind", "log")
    assert done.returncode == 0, done.stderr
    assert tree(laptop) == {path: sha for path, sha in project.here().items() if path.startswith("log/")}
    fresh = tmp_path / "fresh"  # the project on another machine, before its first run
    fresh.mkdir()
    shutil.copy(project.config, fresh)
    done = rla("pull", "--kind", "log", cwd=fresh)
    assert done.returncode == 0, done.stderr
    assert tree(fresh / "data") == tree(laptop)
    assert "rla-agent transfer pull --help" in rla("pull", "a-run", cwd=fresh).stderr
    assert "0 fault(s)" in rla("verify", *where, project.root).stdout
    csv = project.there(training.log) / "progress.csv"
    data, times = bytearray(csv.read_bytes()), csv.stat()
    data[7] ^= 1
    csv.write_bytes(data)
    os.utime(csv, (times.st_atime, times.st_mtime))
    found = rla("verify", *where, project.root, "--fix")
    assert found.returncode == 1
    assert "progress.csv" in found.stdout
    assert agent.command("replicate", "now").returncode == 0
    there = csv.read_bytes  # the damaged one stays beside it: nothing on the master is thrown away
    wait_until(lambda: there() == (training.log / "progress.csv").read_bytes(), 20, what="a fixed file")
    assert project.differences()["other"] == project.differences()["missing"] == []
    assert rla("push", *where, project.root).returncode == 0
    assert project.differences()["other"] == project.differences()["missing"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_pull_follow(project: Project, tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    training = project.train()
    training.tell("rows 5")
    wait_until(lambda: last_number(project.there(training.log) / "progress.csv") == 5, 20)
    laptop = tmp_path / "laptop"
    laptop.mkdir()
    words = (
        "pull",
        "--config",
        project.config,
        "--data-root",
        laptop,
        "--kind",
        "log",
        "--follow",
        "--every",
        0.3,
    )
    with (tmp_path / "follow.log").open("w") as output:
        following = subprocess.Popen(
            [sys.executable, "-c", RLA, *map(str, words)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        rows = laptop / training.log.relative_to(project.root.resolve()) / "progress.csv"
        wait_until(lambda: last_number(rows) == 5, 30, what="the rows on the laptop")
        inode = rows.stat().st_ino
        training.tell("rows 10")
        wait_until(lambda: last_number(rows) == 15, 20, what="new rows on the laptop")
        assert rows.stat().st_ino == inode
        project.master.stop()
        training.tell("rows 10")
        wait_until(lambda: "trying again" in (tmp_path / "follow.log").read_text(), 30)
        project.master.start()
        wait_until(lambda: last_number(rows) == 25, 60, what="rows after the master came back")
    finally:
        following.send_signal(signal.SIGINT)
        assert following.wait(20 * TIME_FACTOR) == 0
    assert "Traceback" not in (tmp_path / "follow.log").read_text()
