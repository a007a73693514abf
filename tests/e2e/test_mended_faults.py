"""Faults of the original that show only in a whole run: the clock, the next experiment, requeued jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

HEAD = """
import os, sys, json
from rla_client import exp_manager, logger, time_step_holder
root = sys.argv[1]
config = {'LOG_USED': ['csv', 'tensorboard'], 'BACKUP_CONFIG': {'backup_code_dir': []}}
exp_manager.configure('t', config, root, code_root='.')
def row(**values):
    logger.logkvs(values)
    return logger.dump_tabular()
"""


def run(code: str, data: Path, **environment: str) -> list[str]:
    """Run a script; the words of its last line."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(code), str(data)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1].split("|")


def steps(folder: Path, tag: str) -> list[int]:
    """Time-steps of a scalar, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder / "tb" / "events"))
    reader.Reload()
    return [event.step for event in reader.Scalars(tag)]


@pytest.mark.slow
def test_rows_before_the_first_set_time_are_of_step_0_everywhere(agent: Any, tmp_path: Path) -> None:
    log, exact = run(
        """
        exp_manager.log_files_gen()
        first = row(x=1)
        time_step_holder.set_time(5)
        row(x=2)
        logger.flush(60)
        print(exp_manager.log_dir, repr(first['timestamp']), sep='|')
        """,
        tmp_path,
    )
    assert agent.alive
    table = pd.read_csv(Path(log, "progress.csv"), dtype={"timestamp": str})
    assert list(table["time-step"]) == steps(Path(log), "x") == [0, 5]
    assert table["timestamp"][0] == exact, "not cut to float32"


@pytest.mark.slow
def test_the_next_experiment_keeps_nothing_of_the_former(agent: Any, tmp_path: Path) -> None:
    """Time-step 0, own event files, freq and averages afresh, and its checkpoints are its own."""
    pytest.importorskip("torch", reason="needs PyTorch")
    folders = run(
        """
        found = []
        for number in range(2):
            exp_manager.log_files_gen()
            exp_manager.new_saver(max_to_keep=1)
            assert time_step_holder.get_time() == 0
            assert exp_manager.get_custom_data('seen') is None
            exp_manager.add_custom_data('seen', number)
            logger.record_tabular('rare', number, freq=100)
            logger.ma_record_tabular('mean', float(number), 2)
            row(x=number)
            exp_manager.save_checkpoint({'n': number})
            time_step_holder.set_time(50)
            row(x=number)
            found += [exp_manager.log_dir, exp_manager.checkpoint_dir]
            logger.flush(60)
        print(*found, sep='|')
        """,
        tmp_path,
    )
    logs, checkpoints = [Path(name) for name in folders[::2]], [Path(name) for name in folders[1::2]]
    assert agent.alive
    for number, (log, checkpoint) in enumerate(zip(logs, checkpoints, strict=True)):
        table = pd.read_csv(log / "progress.csv")
        assert list(table["time-step"]) == steps(log, "x") == [0, 50]
        assert list(table["x"]) == [number, number]
        assert table["rare"][0] == number, "freq begins anew"
        assert "mean" not in table, "a window of two is not full after one"
        assert (checkpoint / "checkpoint_0.pt").exists(), "the former's keep-list is not used"
    assert len(set(logs)) == 2


@pytest.mark.further
@pytest.mark.slow
def test_a_requeued_job_goes_on_by_its_environment(agent: Any, tmp_path: Path) -> None:
    """The same command with RLA_RUN_ID and RLA_RESUME: the newest run of that id, at its checkpoint."""
    code = """
        exp_manager.log_files_gen()
        start = exp_manager.load_checkpoint()[0] if exp_manager.resumed_from is not None else 0
        for step in range(start + 1, 31):
            time_step_holder.set_time(step)
            row(x=step)
            if step % 10 == 0:
                exp_manager.save_checkpoint({'step': step})
            if step == 15 and not start:
                logger.flush(60)
                print(exp_manager.log_dir, 'cut', sep='|', flush=True)
                exp_manager.run.outbox.close('failed', 'preempted')
                os._exit(0)
        logger.flush(60)
        print(exp_manager.log_dir, start, sep='|')
        """
    job = {"RLA_RUN_ID": "job-7", "RLA_RESUME": "allow"}
    run(code, tmp_path, RLA_RUN_ID="job-6", RLA_RESUME="allow")
    first = run(code, tmp_path, **job)
    second = run(code, tmp_path, **job)
    assert (first[1], second[1]) == ("cut", "10")
    assert first[0] == second[0]
    folder = Path(first[0])
    assert list(pd.read_csv(folder / "progress.csv")["time-step"]) == list(range(1, 31))
    assert steps(folder, "x") == list(range(1, 31))
    third = run(code, tmp_path, **job)
    assert third == [first[0], "30"], "a finished run goes on at its last checkpoint"
    assert list(pd.read_csv(folder / "progress.csv")["time-step"]) == list(range(1, 31))
    assert json.loads((folder / "run.json").read_text())["state"] == "finished"
    assert agent.alive
