"""Resume where no agent is to be had, where the clock was set back, and in a table of many runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.spooled import stop_autostart

from rla_client import exp_manager, logger
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.layout import LOG
from rla_client.contract.spool.segments import stream_names
from rla_client.run import find
from rla_client.run.find import find_unfinished
from rla_client.run.resume import prepare
from rla_client.stream.segment_writer import SegmentWriter

CONFIG = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": ["nothing"]}}
TRAINING = """
import os, sys, time
from rla_client import exp_manager, logger, time_step_holder
shift_ns = int(sys.argv[2])
if shift_ns:
    real = time.time_ns
    time.time_ns = lambda: real() + shift_ns
exp_manager.configure('t', {'LOG_USED': ['csv', 'tensorboard'], 'AGENT': {'autostart': False},
                            'BACKUP_CONFIG': {'backup_code_dir': ['nothing']}},
                      sys.argv[1], code_root=sys.argv[1], run_id='r', resume=sys.argv[3])
exp_manager.log_files_gen()
exp_manager.new_saver()
first = exp_manager.resumed_from or 0
for step in range(first + 1, first + 4):
    time_step_holder.set_time(step)
    logger.record_tabular('x', step)
    logger.dump_tabular()
exp_manager.save_checkpoint({'at': step})
print(exp_manager.flush(30), flush=True)
os._exit(1)
"""


@pytest.fixture(autouse=True)
def _closed(places: Places) -> Iterator[None]:
    del places  # the run is closed before they go
    yield
    exp_manager.close()


def train(root: Path, shift_s: float = 0.0, resume: str = "allow") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", TRAINING, str(root), str(int(shift_s * 1e9)), resume],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def run_file(root: Path, index: str, **fields: Any) -> None:
    folder = root / LOG / "t" / index
    folder.mkdir(parents=True)
    content = {"run_id": index, "run_key": "r", "state": "killed", "streams": [], **fields}
    (folder / "run.json").write_text(json.dumps(content))


@pytest.mark.slow
def test_a_clock_that_was_set_back_changes_nothing_for_a_resumed_run(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    data = tmp_path / "data"
    data.mkdir()
    for shift_s in (0, -86_400, 86_400, 0):
        done = train(data, shift_s)
        assert done.stdout.endswith("True\n"), done.stderr
        wait_until(lambda: not stream_names(agent.places.spool))
    (log,) = data.glob("log/t/*/*/*/*")
    steps = [line.split(",")[0] for line in (log / "progress.csv").read_text().splitlines()]
    assert len(steps) == 13
    assert [path.name for path in log.rglob("progress.csv")] == ["progress.csv"]
    names = sorted(path.name for path in (log / "tb" / "events").iterdir())
    assert len(names) == 4
    assert len({name.split(".")[3] for name in names}) == 4, "TensorBoard reads them by their names"


def test_the_epoch_of_a_resumed_run_is_above_all_before(tmp_path: Path, places: Places) -> None:
    stop_autostart(places)
    ahead = time.time_ns() + 10**15
    run_file(tmp_path, "2026/01/02/03-04-05-000006_noip_&", epoch=ahead)
    point = prepare(str(tmp_path), "t", "2026/01/02/03-04-05-000006", None, "checkpoint", autostart=False)
    assert point.epoch == ahead + 1


def test_allow_begins_anew_where_no_agent_is_to_be_had_and_must_says_so(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_autostart(places)
    warned: list[str] = []
    monkeypatch.setattr("rla_client.run.resume.warn", warned.append)
    waiting = SegmentWriter(places.spool, lambda _number, _rows: b"")
    waiting.close()
    run_file(tmp_path, "2026/01/02/03-04-05-000006_noip_&", streams=[waiting.name])
    began = time.monotonic()
    exp_manager.configure("t", CONFIG, tmp_path, code_root=tmp_path, run_id="r", resume="must")
    with pytest.raises(RlaError, match="rla-agent start"):
        exp_manager.log_files_gen()
    exp_manager.configure("t", CONFIG, tmp_path, code_root=tmp_path, run_id="r", resume="allow")
    exp_manager.log_files_gen()
    logger.record_tabular("x", 1)
    logger.dump_tabular()
    assert exp_manager.resumed_from is None
    assert sum("A new run begins" in text for text in warned) == 1
    assert time.monotonic() - began < 30, "it waits for nobody"


def test_the_newest_unfinished_run_is_found_without_reading_all_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "UNNOTED_MAX", 3)
    names = [f"2026/01/0{day}/03-04-05-00000{number}_noip_&" for day in (1, 2) for number in range(4)]
    for name in names:
        run_file(tmp_path, name, run_key="other")
    assert find_unfinished(str(tmp_path), "t", "r") is None
    run_file(tmp_path, "2026/01/01/03-04-05-000008_noip_&")
    run_file(tmp_path, "2026/01/02/03-04-05-000008_noip_&", state="finished")
    read: list[str] = []
    real = find._run_id

    def reading(path: str) -> tuple[str, bool] | None:
        read.append(path)
        return real(path)

    monkeypatch.setattr(find, "_run_id", reading)
    found = find_unfinished(str(tmp_path), "t", "r")
    assert found is not None
    assert found.index.path == "2026/01/01/03-04-05-000008_noip_&"
    assert len(read) == 2, "those that were there before are noted"


def test_a_run_that_another_item_went_on_with_is_left_alone(tmp_path: Path) -> None:
    first, second = "2026/01/01/03-04-05-000001_noip_&", "2026/01/02/03-04-05-000002_noip_&"
    run_file(tmp_path, first)
    run_file(tmp_path, second, state="finished", parent={"run": first, "chain": True})
    assert find_unfinished(str(tmp_path), "t", "r") is None


def test_broken_notes_are_as_none(tmp_path: Path) -> None:
    run_file(tmp_path, "2026/01/01/03-04-05-000001_noip_&")
    name = '{"2026/01/01": {"03-04-05-000001_noip_&": 1}}'
    for content in ("", "[1]", '{"2026/01/01": [1]}', "{" * 9000, name):
        (tmp_path / LOG / "t" / find.NOTES).write_text(content)
        assert find_unfinished(str(tmp_path), "t", "r") is not None
    assert os.path.exists(tmp_path / LOG / "t" / find.NOTES)


def test_a_run_whose_file_was_damaged_is_found_again_once_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "UNNOTED_MAX", 0)
    name = "2026/01/01/03-04-05-000001_noip_&"
    run_file(tmp_path, name)
    run_file(tmp_path, "2026/01/01/03-04-05-000002_noip_&", run_key="other")
    path = tmp_path / LOG / "t" / name / "run.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"run_key")])
    assert find_unfinished(str(tmp_path), "t", "r") is None
    path.write_bytes(whole)
    assert find_unfinished(str(tmp_path), "t", "r") is not None


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
    item, late = find.find_here(str(tmp_path), "t", "r", autostart=False, any_state=True, ends_s=1.0)
    goes_on.join()
    assert late == ""
    assert item is not None
    assert find.read_run_file(item)["state"] == "finished"
