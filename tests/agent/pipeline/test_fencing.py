"""A stream whose run went on elsewhere: when it is one, and that it leaves the run's files alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.run_states import RunRecord
from rla_agent.pipeline.commit import write_run_file
from rla_agent.pipeline.fencing import further_than, newer_than, read_run_file
from rla_agent.store.sqlite import database_files
from rla_client.contract.paths import Places

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
    assert write_run_file(record, 1.0)
    assert json.loads((log / "run.json").read_text())["epoch"] == 5
    (log / "run.json").write_text(json.dumps({"run_id": "r", "epoch": 6, "state": "finished"}))
    assert write_run_file(record, 2.0)
    assert json.loads((log / "run.json").read_text())["state"] == "finished"


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
