"""Training → agent → a bucket: rows are there while it trains, and plain objects when it has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bucket_lab import KEYS, BucketPath, S3Server, remote
from support.replicated_project import Project
from support.replication_lab import tree

RLA = "from rla_client.cli.app import main; main()"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    made = S3Server(tmp_path / "s3")
    yield made
    made.stop()


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return server.bucket()


@pytest.fixture
def project(tmp_path: Path, server: S3Server, bucket: str, places: Any) -> Iterator[Project]:
    del places  # goes after the training processes
    made = Project(tmp_path / "project", None, remote(server, bucket))  # type: ignore[arg-type]
    yield made
    made.end()


def rla(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RLA, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.further
@pytest.mark.slow
def test_a_training_into_a_bucket(
    project: Project,
    server: S3Server,
    bucket: str,
    new_agent: Callable[..., Any],
    tmp_path: Path,
    wait_until: Callable[..., Any],
) -> None:
    agent = new_agent().start()
    training = project.train()
    root = BucketPath(server, bucket)
    rows = root / str(training.log.relative_to(project.root.resolve())) / "progress.csv"

    def numbers() -> list[str]:
        lines = rows.read_bytes().decode().split("\n") if rows.exists() else []
        return [line.partition(",")[0] for line in lines if line[:1].isdigit()]

    training.tell("rows 1")
    wait_until(lambda: numbers() == ["1"], 30, what="the first row in the bucket")
    for turn in range(3):
        training.tell("rows 20")
        wait_until(lambda turn=turn: len(numbers()) == 21 + 20 * turn, 30, what="rows in the bucket")
    assert root.parts()
    agent.kill()
    training.tell("rows 30")
    agent.start()
    wait_until(lambda: len(numbers()) == 91, 30, what="rows after a kill of the agent")
    training.end()
    sums = root / str(training.log.relative_to(project.root.resolve())) / "SHA256SUMS"
    wait_until(sums.exists, 60, what="the sums in the bucket")
    wait_until(lambda: not root.parts(), 30, what="compaction")
    where = ("--config", project.config, "--data-root")
    laptop = tmp_path / "laptop"
    laptop.mkdir()

    def pulled() -> dict[str, str]:
        done = rla("pull", *where, laptop, "--table", "tab*")
        assert done.returncode == 0, done.stderr + done.stdout
        return tree(laptop)

    wait_until(lambda: pulled() == project.here(), 60, what="equal trees")
    found = rla("verify", *where, project.root)
    assert "0 fault(s)" in found.stdout, found.stdout + found.stderr
    fleet = agent.command("status", "--fleet")
    assert "file(s) waiting" in fleet.stdout, fleet.stdout + fleet.stderr
    told = json.loads(agent.command("status", "--json").stdout)
    assert "test-secret" not in json.dumps(told)
    shown = agent.command("replicate", "status").stdout
    assert f"s3://127.0.0.1:{server.port}/{bucket}/some/prefix" in shown
    looked = agent.command("doctor", "--master", "--config", str(project.config))
    assert "without encryption" in looked.stdout, looked.stdout + looked.stderr
    assert "does not take files" not in looked.stdout
    assert not [key for key in root.objects() if ".rla-tmp-" in key]
    assert agent.command("stop").returncode == 0
