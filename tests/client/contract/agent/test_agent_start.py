"""Starting an agent from a client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.spooled import bare_opening

from rla_client.config.schema import password_variables
from rla_client.contract.agent.agent_environment import clean_environment
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.agent_start import detached_command, start_agent
from rla_client.contract.agent.places import Places
from rla_client.run.resume.earlier_streams import start_for

SCRIPT = """
from rla_client import exp_manager, logger
import sys
exp_manager.configure("t", rla_config={"LOG_USED": ["csv"]}, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
logger.record_tabular("a", 1)
logger.dump_tabular()
assert logger.flush(60), "not durable"
"""


@pytest.mark.slow
def test_an_agent_is_started_and_is_nobodys_child(
    places: Places, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    (tmp_path / "data").mkdir()
    held = os.open(tmp_path / "held", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(held, True)
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "data")],
            capture_output=True, text=True, timeout=60, check=False, close_fds=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert agent_alive(places)
        assert done.stderr == ""
        assert done.stdout.count("\n") == 1, done.stdout
        process = next(p for p in psutil.process_iter() if _serves(p, places))
        assert "SECRET_TOKEN" not in process.environ()
        assert process.cwd() == "/"
        assert os.getsid(process.pid) != os.getsid(0)
        assert str(tmp_path / "held") not in {file.path for file in process.open_files()}
        process.terminate()
        process.wait(60)
        wait_until(lambda: not agent_alive(places))
    finally:
        os.close(held)


def _serves(process: psutil.Process, places: Places) -> bool:
    try:
        mine = process.environ().get("RLA_STATE_DIR") == str(places.state)
        return mine and "rla_agent.daemon" in process.cmdline()
    except psutil.Error:
        return False


@pytest.mark.slow
def test_one_that_is_started_for_an_earlier_run_has_its_configuration_and_password(
    places: Places, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text("REMOTE_SETTING:\n  password_env: MASTER_PASSWORD\n")
    monkeypatch.setenv("MASTER_PASSWORD", "x")
    opening = bare_opening()._replace(config=str(config))
    assert start_for(places, [None, bare_opening(), opening])
    wait_until(lambda: agent_alive(places))
    process = next(p for p in psutil.process_iter() if _serves(p, places))
    assert process.environ()["MASTER_PASSWORD"] == "x"
    assert str(config) in process.cmdline()
    process.terminate()
    process.wait(60)
    wait_until(lambda: not agent_alive(places))


def test_a_stopped_agent_stays_stopped(places: Places) -> None:
    places.stopped_marker.touch()
    assert not start_agent(places)
    assert not agent_alive(places)


def test_environment_and_command_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "x")
    monkeypatch.setenv("WANDB_API_KEY", "x")
    environment = clean_environment()
    assert "LD_PRELOAD" not in environment
    assert "WANDB_API_KEY" not in environment
    assert detached_command(None, autostarted=True)[-1] == "--idle-exit"


def test_only_the_named_password_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text("REMOTE_SETTING:\n  password_env: MASTER_PASSWORD\n")
    assert password_variables([config, tmp_path / "none.yaml"]) == {}
    monkeypatch.setenv("MASTER_PASSWORD", "x")
    monkeypatch.setenv("OTHER_PASSWORD", "y")
    assert password_variables([config]) == {"MASTER_PASSWORD": "x"}
    assert "MASTER_PASSWORD" not in clean_environment()
