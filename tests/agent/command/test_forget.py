"""`rla-agent forget`: rows of a data root that is gone for good; shown first, deleted on request."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.spooled import stop_autostart

from rla_client.contract.agent.places import Places
from rla_client.contract.spool.segments import stream_names

TRAINING = """
import sys
from rla_client import exp_manager, logger
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
logger.record_tabular("number", 1)
logger.dump_tabular()
print("up", flush=True)
sys.stdin.readline()
"""


def train(root: Path, *, wait: bool = False) -> subprocess.Popen[str]:
    root.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert any(line == "up\n" for line in process.stdout)
    if not wait:
        process.communicate("\n", timeout=60)
    return process


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rla_agent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def gone(places: Places, tmp_path: Path) -> Path:
    """A data root that was deleted while a run's rows waited; another one is still there."""
    stop_autostart(places)
    train(tmp_path / "gone")
    train(tmp_path / "there")
    shutil.rmtree(tmp_path / "gone")
    return tmp_path / "gone"


@pytest.mark.slow
def test_it_shows_first_and_deletes_on_request(gone: Path, places: Places) -> None:
    before = stream_names(places.spool)
    shown = cli("forget")
    assert shown.returncode == 0
    assert f"{gone}: 1 streams" in shown.stdout
    assert "there" not in shown.stdout
    assert "nothing was changed" in shown.stdout
    assert stream_names(places.spool) == before
    assert cli("forget", "--yes").returncode == 2, "which ones?"
    other = cli("forget", str(gone.parent / "there"), "--yes")
    assert (other.returncode, "no ended stream waits" in other.stderr) == (1, True)
    assert stream_names(places.spool) == before
    done = cli("forget", str(gone), "--yes")
    assert (done.returncode, "1 streams given up" in done.stdout) == (0, True)
    assert len(stream_names(places.spool)) == 1
    assert "no ended stream waits" in cli("forget").stdout
    assert cli("drain").returncode == 0
    assert list((gone.parent / "there").rglob("progress.csv"))


@pytest.mark.slow
def test_beside_a_serving_agent(gone: Path, new_agent: Any, wait_until: Callable[..., Any]) -> None:
    agent = new_agent().start()

    def waiting() -> list[dict[str, str]]:
        return [problem for problem in agent.status()["problems"] if str(gone) in problem["what"]]

    assert any("rla-agent forget" in problem["fix"] for problem in wait_until(waiting))
    assert cli("forget", "--all", "--yes").returncode == 0
    wait_until(lambda: not waiting(), what="the agent has dropped it")

    def states() -> list[tuple[bool, str]]:
        runs = [run for run in agent.status()["runs"] if run["root"] == str(gone)]
        return [(run["live"], run["state"]) for run in runs]

    wait_until(
        lambda: states() == [(False, "removed")], what=lambda: f"a run that is removed, not {states()}"
    )
    agent.restart()
    assert agent.status()["problems"] == []
    agent.stop()
    assert not gone.exists()


@pytest.mark.slow
def test_a_run_that_was_known_is_marked(
    new_agent: Any, places: Places, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """Without an agent, its database is told too: the next agent does not show the run as live."""
    agent = new_agent().start()
    process = train(tmp_path / "data", wait=True)
    wait_until(  # until a commit: only then the database knows of it
        lambda: any(
            stream["durable"] != [0, 0]
            for volume in agent.status()["volumes"]
            for stream in volume["streams"]
        )
    )
    agent.kill()
    places.stopped_marker.touch()
    process.kill()
    process.communicate()
    shutil.rmtree(tmp_path / "data")
    assert cli("forget", "--all", "--yes").returncode == 0
    agent.start()
    (run,) = agent.status()["runs"]
    assert (run["live"], run["state"]) == (False, "removed")
    assert "given up" in run["reason"]


@pytest.mark.slow
def test_a_run_that_is_being_written_is_left_alone(places: Places, tmp_path: Path) -> None:
    stop_autostart(places)
    process = train(tmp_path / "data", wait=True)
    shutil.rmtree(tmp_path / "data")
    assert "no ended stream waits" in cli("forget").stdout
    process.communicate("\n")
    assert f"{tmp_path / 'data'}: 1 streams" in cli("forget").stdout


def test_a_spool_that_is_not_there(places: Places) -> None:
    shutil.rmtree(places.state)
    done = cli("forget")
    assert (done.returncode, done.stdout) == (0, "no ended stream waits for a data root\n")
    assert json.dumps(done.stderr) == '""'
