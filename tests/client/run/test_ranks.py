"""Where the ranks of a job meet."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.spooled import bare_opening

from rla_client.run import start


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*start.JOB_VARIABLES, "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(start, "_opened", {})


def test_outside_of_a_job_nothing_is_published(tmp_path: Path) -> None:
    assert start.job_file(str(tmp_path), "t", 1) is None
    start.publish(str(tmp_path), "t", None, ())
    assert list(tmp_path.iterdir()) == []


def test_ranks_find_rank_zero_and_each_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("WORLD_SIZE", "2")
    began = time.time()
    first, second = (start.job_file(str(tmp_path), "t", number) for number in (1, 2))
    assert start.read_published(first, began) is None
    start.publish(str(tmp_path), "t", bare_opening(run="a"), ("csv",))
    start.publish(str(tmp_path), "t", bare_opening(run="b"), ("csv",))
    runs = [(start.read_published(path, began) or {})["opening"]["run"] for path in (first, second)]
    assert runs == ["a", "b"]
    assert start.job_file(str(tmp_path), "other", 1) != first
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    assert start.job_file(str(tmp_path), "t", 1) != first


def test_a_job_of_one_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "1")
    start.publish(str(tmp_path), "t", None, ())
    assert list(tmp_path.iterdir()) == []


def test_old_descriptions_are_not_joined(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"opening": {}, "time": time.time() - 2 * start.FRESH_S}))
    assert start.read_published(path, time.time()) is None
    path.write_text("{half")
    assert start.read_published(path, time.time()) is None


def test_on_one_machine_the_launcher_tells_jobs_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    here = start.job_file(str(tmp_path), "t", 1)
    monkeypatch.setattr("os.getppid", lambda: 1)
    assert start.job_file(str(tmp_path), "t", 1) != here
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    over_machines = start.job_file(str(tmp_path), "t", 1)
    monkeypatch.undo()
    assert over_machines is not None
