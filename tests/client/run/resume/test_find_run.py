"""Runs that are found by their run_id, or left alone."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from rla_client import exp_manager, logger
from rla_client.contract.agent.places import Places
from rla_client.contract.layout import LOG
from rla_client.run.resume import find_run
from rla_client.run.resume.find_run import find_unfinished

CONFIG = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]}}


def run_file(root: Path, index: str, **fields: Any) -> None:
    folder = root / LOG / "t" / index
    folder.mkdir(parents=True)
    content = {"run_id": index, "run_key": "r", "state": "killed", "streams": [], **fields}
    (folder / "run.json").write_text(json.dumps(content))


def test_a_run_that_another_item_went_on_with_is_left_alone(tmp_path: Path) -> None:
    first, second = "2026/01/01/03-04-05-000001_noip_&", "2026/01/02/03-04-05-000002_noip_&"
    run_file(tmp_path, first)
    run_file(tmp_path, second, state="finished", parent={"run": first, "chain": True})
    assert find_unfinished(str(tmp_path), "t", "r") is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", True),
        (b"\0" * 300, True),
        (b'{"run_id": "x", "run_key": "r", "state": "kil', True),
        (b'{"run_id": "x", "run_key": "other", "state": "kil', False),
        (b'{"run_id": "x", "run_key": "r", "state": [}', True),
    ],
)
def test_a_run_that_is_not_continued_for_a_damaged_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, content: bytes, told: bool
) -> None:
    name = "2026/01/01/03-04-05-000001_noip_&"
    run_file(tmp_path, name)
    (tmp_path / LOG / "t" / name / "run.json").write_bytes(content)
    assert find_unfinished(str(tmp_path), "t", "r") is None
    assert (f"{name}/run.json is damaged" in capsys.readouterr().out) is told


def test_a_run_that_was_closed_a_moment_ago_has_finished(tmp_path: Path, places: Places, agent: Any) -> None:
    """Though the agent has not taken that in yet."""
    exp_manager.configure("t", CONFIG, tmp_path, code_root=tmp_path, run_id="r", resume="allow")
    exp_manager.log_files_gen()
    logger.record_tabular("x", 1)
    logger.dump_tabular()
    assert exp_manager.flush(30)
    os.kill(agent.pid, signal.SIGSTOP)
    goes_on = threading.Timer(0.5, os.kill, [agent.pid, signal.SIGCONT])
    goes_on.start()
    exp_manager.close()
    item, late = find_run.find_here(str(tmp_path), "t", "r", autostart=False, any_state=True, ends_s=1.0)
    goes_on.join()
    assert late == ""
    assert item is not None
    assert find_run.read_run_file(item)["state"] == "finished"
