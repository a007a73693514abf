"""A flush after the end of runs: their rows are in their files once it returns True."""

from __future__ import annotations

import csv
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.spooled import stop_autostart

import rla_client
from rla_client import logger
from rla_client.contract.agent.places import Places
from rla_client.manager import ExpManager

CONFIG = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": []}}


def open_run(root: Path) -> ExpManager:
    made = ExpManager()
    made.configure("t", CONFIG, root, code_root=root)
    made.log_files_gen()
    return made


def rows(run: ExpManager) -> list[str]:
    with open(Path(str(run.log_dir), "progress.csv"), newline="") as file:
        return [row["x"] for row in csv.DictReader(file)]


def log_and_close(run: ExpManager) -> None:
    for step in range(50):
        rla_client.log({"x": step}, step=step)
    run.close()


@pytest.mark.parametrize("flush", ["handle", "logger"])
def test_a_flush_behind_the_end_waits_for_the_rows(agent: Any, tmp_path: Path, flush: str) -> None:
    run = open_run(tmp_path)
    log_and_close(run)
    assert agent.alive
    assert run.flush(30) if flush == "handle" else logger.flush(30)
    assert len(rows(run)) == 50


def test_a_thread_without_a_run_waits_for_those_of_all_threads(agent: Any, tmp_path: Path) -> None:
    """Trials of Optuna in threads, of which some are closed and some are not; then the main thread asks."""
    runs: list[ExpManager] = []
    ready, leave = threading.Barrier(4), threading.Event()

    def trial(number: int) -> None:
        run = open_run(tmp_path)
        runs.append(run)
        for step in range(50):
            rla_client.log({"x": step}, step=step)
        if number:
            run.close()
        ready.wait(30)
        leave.wait(30)

    threads = [threading.Thread(target=trial, args=(number,)) for number in range(3)]
    try:
        for thread in threads:
            thread.start()
        ready.wait(30)
        assert agent.alive
        assert logger.flush(30)
        assert [len(rows(run)) for run in runs] == [50] * 3
    finally:
        leave.set()
        for thread in threads:
            thread.join()
        for run in runs:
            run.close()


def test_a_flush_behind_the_end_says_that_no_agent_wrote_the_rows(places: Places, tmp_path: Path) -> None:
    stop_autostart(places)
    run = open_run(tmp_path)
    log_and_close(run)
    assert not run.flush(0.2)
    assert not logger.flush(0.2)
    child = os.fork()
    if child == 0:  # the parent's runs are not its own
        os._exit(0 if logger.flush(0.2) and run.flush(0.2) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_a_closed_run_lost_is_told_once(
    new_agent: Callable[..., Any], places: Places, tmp_path: Path
) -> None:
    stop_autostart(places)
    places.spool.rmdir()
    places.spool.touch()  # nothing can be put there
    log_and_close(open_run(tmp_path))
    places.spool.unlink()
    assert new_agent().start().alive
    assert not logger.flush(10)
    assert logger.flush(10)
