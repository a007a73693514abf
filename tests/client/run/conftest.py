"""Runs as the agent writes them, for what reads their files; a manager with an open run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.spooled import stop_autostart
from support.written_runs import make_run, old_pickle_fixture, root  # noqa: F401 - fixtures

from rla_client import exp_manager, time_step_holder
from rla_client.contract.agent.places import Places
from rla_client.manager import ExpManager

CONFIG = {"LOG_USED": ["csv"], "BACKUP_CONFIG": {"backup_code_dir": []}}


@pytest.fixture
def manager(agent: Any, tmp_path: Path) -> Iterator[ExpManager]:
    made = ExpManager()
    made.configure("t", CONFIG, tmp_path / "data", code_root=tmp_path)
    made.log_files_gen()
    time_step_holder.set_time(0)
    yield made
    made.close()
    time_step_holder.set_time(0)


@pytest.fixture
def open_run(tmp_path: Path, places: Places) -> Iterator[Any]:
    """Data of an open run whose rows wait in the spool."""
    stop_autostart(places)
    config = {"AGENT": {"autostart": False}, "LOG_USED": ["csv"]}
    exp_manager.configure("t", config, tmp_path / "data", code_root=tmp_path)
    exp_manager.log_files_gen()
    yield exp_manager._data
    exp_manager.close()
