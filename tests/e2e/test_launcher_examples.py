"""The launchers in examples/ run as they are, and torch training resumes bit by bit."""

# (the agent fixture acts by being there)
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client" / "launcher"))
import launchers

from rla_client.launcher import relaunch
from rla_client.launcher.pending_streams import await_end

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def own_folder(agent: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # small nets: threads only cost


def start(name: str, *arguments: Any) -> Any:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_the_smallest_launcher(tmp_path: Path) -> None:
    process = start("garage_style.py")
    output, _ = process.communicate(timeout=launchers.DEADLINE_S)
    assert process.returncode == 0, output
    folder = tmp_path / "data" / "local" / "experiment" / "random_search_seed=3"
    await_end(folder)
    found = launchers.rows(folder)
    assert len(found) == 20
    assert float(found[-1]["perf/best"]) > float(found[0]["perf/best"])
    assert sorted(path.name for path in folder.glob("*.pkl")) == [f"itr_{n}.pkl" for n in (0, 10, 15, 5)]


@pytest.mark.further
@pytest.mark.slow
def test_torch_training_killed_and_resumed_has_the_same_weights(tmp_path: Path) -> None:
    arguments = ("--epochs", "5", "--batch-size", "60")
    whole = start("reinforce_launcher.py", *arguments)
    output, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0, output
    killed = start("reinforce_launcher.py", *arguments)
    for line in killed.stdout:
        if "epoch #2 | EpochTime" in line:
            break
    killed.kill()
    killed.communicate(timeout=launchers.DEADLINE_S)
    first, second = sorted((tmp_path / "data" / "local" / "experiment").iterdir())
    assert relaunch.resume(second) == 0
    await_end(first)
    await_end(second)
    assert len(launchers.rows(first)) == 5
    assert launchers.rows(first) == launchers.rows(second)
    assert weights(first) == weights(second)


def weights(folder: Path) -> Any:
    with open(folder / "params.pkl", "rb") as file:
        saved = cloudpickle.load(file)
    moments = saved["algo"]._optimizer.state_dict()["state"]
    return (
        [value.tolist() for value in saved["algo"].policy.state_dict().values()],
        [(one["exp_avg"].tolist(), float(one["step"])) for one in moments.values()],
        saved["rng"]["torch"],
    )
