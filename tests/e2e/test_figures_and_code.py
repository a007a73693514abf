"""Figures, media and code of a real run, through a real agent, also when somebody is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rla_agent.store.sqlite import database_files
from rla_client.contract.agent.places import Places

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
from rla_client import ImgRecorder, MatplotlibRecorder, VideoRecorder, exp_manager, time_step_holder

project, root, end = sys.argv[1:]
exp_manager.configure("table", {"LOG_USED": ["csv"], "AGENT": {"autostart": False}}, root, code_root=project)
exp_manager.log_files_gen()
with open(os.path.join(project, "net.py"), "w") as file:
    file.write("edited while the run goes on")
time_step_holder.set_time(5)
for number in range(3):
    MatplotlibRecorder.pretty_plot_wrapper(f"curve{number}", lambda: plt.plot([1, 2], label="x"))
ImgRecorder.save("image", np.arange(60, dtype=np.uint8).reshape(4, 5, 3))
frames = np.random.default_rng(0).integers(0, 255, (40, 128, 128, 3), dtype=np.uint8)
VideoRecorder.save("at_once.gif", frames)
with VideoRecorder("one_by_one.gif") as video:
    for frame in frames[:3]:
        video.add(frame)
print(exp_manager.results_dir, flush=True)
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if end in ("flush", "lose"):
    assert exp_manager.flush(150)
if end == "lose":
    Path(root, "flushed").touch()
    while Path(root, "flushed").exists():
        time.sleep(0.01)
    assert exp_manager.flush(150)
"""
EXPECTED = {
    "5-curve0.png",
    "5-curve1.png",
    "5-curve2.png",
    "5-image.png",
    "5-at_once.gif",
    "5-one_by_one.gif",
}


@pytest.fixture
def train(places: Places, tmp_path: Path) -> Callable[[str], Path]:
    """Run the script to its end; returns the results folder."""
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "train.py").write_text(SCRIPT)
    (project / "net.py").write_text("as it was at the start")
    (project / "pkg" / "__init__.py").touch()

    def train(end: str) -> Path:
        assert places.state.is_dir()
        command = [sys.executable, str(project / "train.py"), str(project), str(tmp_path / "data"), end]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr
        return Path(done.stdout.splitlines()[-1])

    return train


def complete(results: Path) -> bool:
    return {path.name for path in results.iterdir()} >= EXPECTED


def check_all(results: Path) -> None:
    assert {path.name for path in results.iterdir()} == EXPECTED
    for name in EXPECTED:
        with Image.open(results / name) as picture:
            picture.load()
    with Image.open(results / "5-at_once.gif") as video:
        assert video.n_frames == 40
    assert Image.open(results / "5-image.png").tobytes() == bytes(range(60))
    code = Path(str(results).replace("/results/", "/code/"))
    assert (code / "net.py").read_text() == "as it was at the start"
    assert {path.name for path in code.iterdir()} >= {"net.py", "train.py", "pkg"}
    log = Path(str(results).replace("/results/", "/log/"))
    environment = json.loads((log / "environment.json").read_text())
    assert environment["code_backup"]["files"] == 3
    assert environment["command"][1].endswith("train.py")


@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_all_is_there_after_a_flush(train: Callable[[str], Path]) -> None:
    check_all(train("flush"))


@pytest.mark.further
@pytest.mark.slow
@pytest.mark.usefixtures("agent")
def test_what_had_returned_survives_the_kill_of_the_trainer(
    train: Callable[[str], Path], wait_until: Callable[..., Any]
) -> None:
    results = train("kill")

    wait_until(lambda: complete(results), 20)
    check_all(results)


@pytest.mark.slow
def test_an_agent_killed_in_between_and_started_again_finishes_all(
    train: Callable[[str], Path], new_agent: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    agent = new_agent().start()
    results = train("exit")
    for _ in range(2):
        count = len(list(results.iterdir()))
        agent.kill()
        agent.start()
        wait_until(lambda count=count: complete(results) or len(list(results.iterdir())) > count, 20)

    wait_until(lambda: complete(results), 20)
    visible = {path.name for path in results.iterdir() if not path.name.startswith(".")}
    assert visible == EXPECTED
    for path in results.iterdir():
        if path.name.startswith("."):
            path.unlink(missing_ok=True)  # a temp file of a killed agent
    check_all(results)


@pytest.mark.further
@pytest.mark.slow
def test_what_was_made_before_agent_db_was_lost_did_not_fail(
    train: Callable[[str], Path],
    new_agent: Callable[..., Any],
    wait_until: Callable[..., Any],
    places: Places,
) -> None:
    """The next agent meets the jobs again, whose payloads are gone: they were done."""
    agent = new_agent().start()
    flushed = places.state.parent / "data" / "flushed"
    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(train, "lose")
        wait_until(lambda: flushed.exists() or trained.done(), 60)
        agent.kill()
        for path in database_files(places.database):
            path.unlink(missing_ok=True)
        agent.start()
        flushed.unlink()
        check_all(trained.result())
    assert "dropped" not in (places.state / "agent.log").read_text()


@pytest.mark.slow
def test_without_an_agent_figures_wait_in_the_spool(
    train: Callable[[str], Path], new_agent: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    results = train("exit")
    assert not list(results.iterdir())

    new_agent().start()

    wait_until(lambda: complete(results), 20)
    check_all(results)
