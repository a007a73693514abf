"""A stream whose run went on elsewhere: when it is one, and that it leaves the run's files alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.run_states import RunRecord
from rla_agent.pipeline.commit import write_run_file
from rla_agent.pipeline.fencing import newer_than, read_run_file
from rla_client.contract.paths import Places

TRAINING = """
import sys
from rla_client import exp_manager, logger
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
for number in range(50):
    logger.record_tabular("number", number)
    logger.dump_tabular()
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
    subprocess.run([sys.executable, "-c", TRAINING, str(tmp_path / "data")], check=True, capture_output=True)
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
