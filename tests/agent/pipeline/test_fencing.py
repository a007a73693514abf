"""A stream whose run went on elsewhere: when it is one, and that it leaves the run's files alone."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.run_record import RunRecord
from rla_agent.pipeline.run_file import further_than, newer_than, read_run_file, write_run_file
from rla_agent.store.sqlite import database_files
from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE, Places

TRAINING = """
import sys
from rla_client import exp_manager, logger
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
for number in range(50):
    logger.record_tabular("number", number)
    logger.dump_tabular()
    if number == int(sys.argv[2]):
        print(flush=True)
        input()
"""


@pytest.mark.parametrize(
    ("content", "newer"),
    [
        ({"run_id": "r", "epoch": 6}, True),
        ({"run_id": "r", "epoch": 5}, False),
        ({"run_id": "s", "epoch": 6}, False),
        ({"run_id": "r"}, False),
        ({"run_id": "r", "epoch": "6"}, False),
        ({}, False),
    ],
)
def test_which_run_file_is_that_of_a_later_stream(content: dict[str, Any], newer: bool) -> None:
    assert newer_than(content, "r", 5) is newer


@pytest.mark.parametrize(
    ("taken", "further"),
    [
        ({"s": [2, 9]}, True),
        ({"s": [3, 0]}, True),
        ({"s": [2, 8]}, False),
        ({"s": [1, 99]}, False),
        ({"other": [9, 9]}, False),
        ({"s": ["9", 9]}, False),
        ({"s": 9}, False),
        ([], False),
        (None, False),
    ],
)
def test_which_run_file_is_of_more_than_a_spool_holds(taken: Any, further: bool) -> None:
    assert further_than({"run_id": "r", "taken": taken}, "r", {"s": (2, 8)}) is further
    assert not further_than({"run_id": "q", "taken": taken}, "r", {"s": (2, 8)})


def test_a_run_file_that_cannot_be_read(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read_run_file(folder) == {}
        for text in ("no JSON", "[" * 100_000):
            (tmp_path / "run.json").write_text(text)
            assert read_run_file(folder) == {}
        (tmp_path / "other").write_text("{}")
        (tmp_path / "run.json").unlink()
        (tmp_path / "run.json").symlink_to("other")
        assert read_run_file(folder) == {}, "a link is not followed"
    finally:
        os.close(folder)


def test_the_run_file_of_a_later_stream_is_not_overwritten(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    record = RunRecord("r", str(tmp_path), "", "", str(log), "h", "u", 1, 1.0, "0", extra={"epoch": 5})
    assert not write_run_file(record, 1.0)
    assert json.loads((log / "run.json").read_text())["epoch"] == 5
    (log / "run.json").write_text(json.dumps({"run_id": "r", "epoch": 6, "state": "finished"}))
    assert not write_run_file(record, 2.0)
    assert json.loads((log / "run.json").read_text())["state"] == "finished"


def test_an_older_copy_writes_no_run_file_and_a_resumed_run_does(tmp_path: Path) -> None:
    """What was taken in of an earlier stream says nothing of a run that was resumed since."""
    log = tmp_path / "log"
    log.mkdir()
    older = RunRecord("r", str(tmp_path), "", "", str(log), "h", "u", 1, 1.0, "0", extra={"epoch": 5})
    older = older.taken_in("old", (1, 2000))
    told = {"run_id": "r", "epoch": 5, "state": "finished", "taken": {"old": [1, 5000]}}
    (log / "run.json").write_text(json.dumps(told))
    assert not write_run_file(older, 2.0)
    assert json.loads((log / "run.json").read_text()) == told
    assert not write_run_file(replace(older, extra={"epoch": 9}), 3.0)
    written = json.loads((log / "run.json").read_text())
    assert (written["epoch"], written["state"]) == (9, "running")


@pytest.mark.slow
def test_it_is_taken_in_beside_and_survives_kills(
    places: Places, tmp_path: Path, new_agent: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    """The files of the later stream stay byte for byte, also when the agent is killed in between."""
    places.stopped_marker.touch()
    (tmp_path / "data").mkdir()
    subprocess.run(
        [sys.executable, "-c", TRAINING, str(tmp_path / "data"), "-1"], check=True, capture_output=True
    )
    (log,) = tmp_path.glob("data/log/table/*/*/*/*")
    (stream,) = places.spool.iterdir()
    opening = (stream / "000001.seg").read_bytes()
    run = next(part for part in opening.decode("latin-1").split("\xa3run")[1:])[2:34]
    (log / "run.json").write_text(json.dumps({"run_id": run, "epoch": 1 << 62, "state": "finished"}))
    (log / "progress.csv").write_text("number\n0\n1\n")
    before = {path: path.read_bytes() for path in log.iterdir() if path.is_file()}
    agent = new_agent().start()
    agent.restart()
    wait_until(lambda: not list(places.spool.glob("*-*")))
    agent.stop()
    assert {path: path.read_bytes() for path in log.iterdir() if path.is_file()} == before
    (beside,) = log.glob("abandoned-*/progress.csv")
    assert beside.read_text().count("\n") == 51


@pytest.mark.slow
@pytest.mark.parametrize("database", ["kept", "gone"])
def test_a_spool_that_a_backup_brought_back(
    places: Places,
    tmp_path: Path,
    new_agent: Callable[..., Any],
    wait_until: Callable[..., Any],
    database: str,
) -> None:
    """It ends before what was taken in of it since: the files of the run stay as they are."""
    places.stopped_marker.touch()
    (tmp_path / "data").mkdir()
    command = [sys.executable, "-c", TRAINING, str(tmp_path / "data"), "20"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as training:
        assert training.stdin is not None
        assert training.stdout is not None
        training.stdout.readline()
        shutil.copytree(places.spool, tmp_path / "backup")
        training.communicate(b"\n")
    agent = new_agent().start()
    wait_until(lambda: not list(places.spool.glob("*-*")))
    agent.stop()
    (log,) = tmp_path.glob("data/log/table/*/*/*/*")
    before = {path: path.read_bytes() for path in log.iterdir() if path.is_file()}
    assert before[log / "progress.csv"].count(b"\n") == 51
    shutil.copytree(tmp_path / "backup", places.spool, dirs_exist_ok=True)
    if database == "gone":
        for path in database_files(places.database):
            path.unlink(missing_ok=True)
    agent = new_agent().start()
    wait_until(lambda: not list(places.spool.glob("*-*")))
    agent.stop()
    assert {path: path.read_bytes() for path in log.iterdir() if path.is_file()} == before
    assert json.loads((log / "run.json").read_text())["state"] == "finished"


LIVE_TRAINING = """
import sys, time
from pathlib import Path
from rla_client import exp_manager, logger
data, go_on, end = Path(sys.argv[1]), Path(sys.argv[2]), time.monotonic() + 120
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=data, code_root=data)
exp_manager.log_files_gen()
for number in range(100):
    logger.record_tabular("number", number)
    logger.dump_tabular()
    if number == 49:
        assert logger.flush(60)
        (data / "half").touch()
    while number >= 49 and not go_on.exists() and time.monotonic() < end:
        time.sleep(0.02)
exp_manager.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["lives", "has ended", "has ended, and agent.db is lost"])
def test_a_copied_state_leaves_the_files_of_its_runs_alone(
    when: str,
    places: Places,
    tmp_path: Path,
    new_agent: Callable[..., Any],
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody copies the state folder and starts an agent on the copy, while the run lives or later."""
    data, go_on, copy = tmp_path / "data", tmp_path / "go-on", tmp_path / "copy"
    data.mkdir()
    first, second = new_agent().start(), new_agent()
    training = subprocess.Popen([sys.executable, "-c", LIVE_TRAINING, str(data), str(go_on)])
    wait_until((data / "half").exists)
    subprocess.run(["cp", "-a", str(places.state), str(copy)], check=True)

    def go_to_the_end() -> None:
        go_on.touch()
        assert training.wait(60) == 0
        wait_until(lambda: not list(places.spool.glob("*-*")))

    if when != "lives":
        go_to_the_end()
    if when == "has ended, and agent.db is lost":
        for path in copy.glob("agent.db*"):
            path.unlink()
    second.places = Places(copy, Path(tempfile.mkdtemp(prefix="rla-", dir="/tmp")))
    with monkeypatch.context() as there:
        there.setenv(STATE_VARIABLE, str(copy))
        there.setenv(RUNTIME_VARIABLE, str(second.places.runtime))
        second.start()
        if when == "lives":
            wait_until(lambda: list(data.glob("log/table/*/*/*/*/abandoned-*/progress.csv")))
            second.restart()  # what it decided holds, also where the other stream is gone by then
            go_to_the_end()
            second.restart()
        wait_until(lambda: not list(second.places.spool.glob("*-*")))
        second.stop()
    first.stop()
    shutil.rmtree(second.places.runtime)
    (log,) = data.glob("log/table/*/*/*/*")
    with (log / "progress.csv").open(newline="") as file:
        assert [row["number"] for row in csv.DictReader(file)] == [str(number) for number in range(100)]
    assert json.loads((log / "run.json").read_text())["state"] == "finished"
