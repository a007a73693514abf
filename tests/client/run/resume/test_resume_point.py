"""Where a run continues, also where the clock was set back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sharded_folders import identity, write_part
from support.spooled import stop_autostart

from rla_client import exp_manager
from rla_client.checkpoint.direct_write import write_final
from rla_client.contract.agent.places import Places
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.checkpoint.stamp import Stamp
from rla_client.contract.errors import FetchError, NoCheckpointError
from rla_client.contract.layout import CHECKPOINT, LOG, PARTS_FOLDER, RESUME_FOLDER
from rla_client.contract.sharded_checkpoint.files import WHOLE_FILE
from rla_client.contract.sharded_checkpoint.folder import waiting_parts
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.records import KeptFile, SaveIdentity, Whole
from rla_client.contract.sharded_checkpoint.removal import remove
from rla_client.contract.spool.protocol import pack
from rla_client.contract.spool.segments import stream_names
from rla_client.run.resume import resume_point
from rla_client.run.resume.find_run import find_item
from rla_client.run.resume.resume_point import is_over, newest_sharded, prepare
from rla_client.run.state.archive import STATE_FORMAT

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


def train(root: Path, shift_s: float = 0.0, resume: str = "allow") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", TRAINING, str(root), str(int(shift_s * 1e9)), resume],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def run_file(root: Path, index: str, **fields: Any) -> None:
    folder = root / LOG / "t" / index
    folder.mkdir(parents=True, exist_ok=True)
    content = {"run_id": index, "run_key": "r", "state": "killed", "streams": [], **fields}
    (folder / "run.json").write_text(json.dumps(content))


@pytest.mark.further
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


@pytest.mark.parametrize("later", [False, True])
def test_a_state_of_a_later_save_than_its_checkpoint_is_told(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """A time-step was saved once more, and the machine lost its power before that was a file."""
    pytest.importorskip("torch", reason="needs PyTorch")
    stop_autostart(places)
    told: list[str] = []
    monkeypatch.setattr(resume_point, "warn", told.append)
    index = "2026/01/02/03-04-05-000006_noip_&"
    run_file(tmp_path, index)
    folder = tmp_path / CHECKPOINT / "t" / index
    (folder / RESUME_FOLDER).mkdir(parents=True)
    write_final({"at": 7}, folder, Stamp("0" * 16, 5, index, "checkpoint", 7, {}), Retention())
    state = {"format": STATE_FORMAT, "order": 6 if later else 5}
    (folder / RESUME_FOLDER / "checkpoint_7.state").write_bytes(pack(state))
    point = prepare(str(tmp_path), "t", index, None, "checkpoint", autostart=False)
    assert (point.time_step, point.state) == (7, state)
    assert ["later save of time-step 7" in line for line in told] == [True] * later


def test_a_save_in_the_making_that_cannot_be_read_hides_no_whole_checkpoint(tmp_path: Path) -> None:
    final = tmp_path / "checkpoint_3.dcp" / WHOLE_FILE
    final.parent.mkdir(parents=True)
    save = SaveIdentity("cd" * 16, 1, "ab" * 8, "checkpoint", 3, 1, "")
    final.write_bytes(Whole(save, 7, (), KeptFile(".metadata", 0, "0" * 64), {}).encode())
    parts = tmp_path / PARTS_FOLDER
    parts.mkdir()
    (parts / f"checkpoint_4.{'ef' * 8}").write_text("no folder")
    found = newest_sharded(tmp_path, "checkpoint", None)
    assert found is not None
    assert found.step == 3
    assert newest_sharded(tmp_path, "checkpoint", 4) is None


INDEX = "2026/01/02/03-04-05-000006_noip_&"


@pytest.fixture
def spread(tmp_path: Path, places: Places) -> Path:
    """Checkpoint folder of a killed run; two saves wait for the master, which nobody asks."""
    stop_autostart(places)
    run_file(tmp_path, INDEX)
    folder = tmp_path / CHECKPOINT / "t" / INDEX
    for step in (7, 8):
        write_part(folder, identity(step), 0, step, beside=(0,))
    publish_all(folder)
    assert len(waiting_parts(folder)) == 2
    return folder


@pytest.mark.parametrize("earlier", [False, True])
def test_a_run_is_not_resumed_before_a_save_that_may_be_whole_on_the_master(
    tmp_path: Path, spread: Path, earlier: bool
) -> None:
    if earlier:
        for rank in (0, 1):
            write_part(spread, identity(3), rank, 3)
        publish_all(spread)
    start = "checkpoint_3" if earlier else "the beginning"
    with pytest.raises(FetchError, match=rf"continue from {start}, .*checkpoint_7, checkpoint_8.*no agent"):
        prepare(str(tmp_path), "t", INDEX, None, "checkpoint", autostart=False)
    if earlier:  # which is what was asked for
        assert prepare(str(tmp_path), "t", INDEX, 3, "checkpoint", autostart=False).time_step == 3
    for rank in (0, 1):
        write_part(spread, identity(9), rank, 9)
    publish_all(spread)
    assert prepare(str(tmp_path), "t", INDEX, None, "checkpoint", autostart=False).time_step == 9


@pytest.mark.parametrize("mode", ["allow", "must"])
def test_no_new_run_begins_where_a_save_may_be_whole_on_the_master(
    tmp_path: Path, spread: Path, mode: Any
) -> None:
    exp_manager.configure(
        "t", {"AGENT": {"autostart": False}}, str(tmp_path), code_root=str(tmp_path), run_id="r", resume=mode
    )
    with pytest.raises(FetchError, match="checkpoint_8"):
        exp_manager.log_files_gen()
    assert len(waiting_parts(spread)) == 2


def test_a_finished_run_whose_checkpoints_wait_for_the_master_is_not_over(
    tmp_path: Path, spread: Path
) -> None:
    run_file(tmp_path, INDEX, state="finished")
    item = find_item(str(tmp_path), "t", INDEX)
    assert not is_over(item)
    for parts in waiting_parts(spread):
        remove(spread, parts)
    assert is_over(item)


def test_what_the_master_lacks_is_not_resumed_from_and_said(
    spread: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(resume_point, "warn", told.append)
    resume_point._check_waiting(spread, "checkpoint", None, 0, None, over=False)
    resume_point._check_waiting(spread, "checkpoint", 7, 7, None, over=True)
    resume_point._check_waiting(spread, "checkpoint", 8, 8, None, over=True)
    first, second = told
    assert "from the beginning: the master lacks" in first
    assert "of checkpoint_7, checkpoint_8." in first
    assert "from checkpoint_7: the master lacks" in second
    with pytest.raises(NoCheckpointError, match="has finished, and checkpoint_7, checkpoint_8 wait"):
        resume_point._check_waiting(spread, "checkpoint", None, 0, None, over=True)
