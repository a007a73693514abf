"""The agent's start with a database that is damaged or cannot be written, and its end while a job runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.spooled import stop_autostart

from rla_agent.daemon import EXIT_CONFIG, EXIT_FAILED, EXIT_NEWER, EXIT_PLACE, EXIT_RUNNING
from rla_agent.pipeline.stream_cleanup import sweep_memory
from rla_agent.service.control_client import ask_status
from rla_agent.service.unit_files import TEMPLATE_NAME, template
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import STATE_VARIABLE, Places
from rla_client.contract.errors import RlaError
from rla_client.contract.job.arena_layout import ARENA_FOLDER
from rla_client.contract.spool.protocol import FrameKind, pack
from rla_client.run.opening_frame import make_opening
from rla_client.stream.arena import create_arena
from rla_client.stream.outbox import Outbox

PAGE = 4096


def test_a_damaged_database_is_put_aside(places: Places, new_agent: Callable[..., Any]) -> None:
    places.create()
    places.database.write_bytes(b"no database" * 1000)
    agent = new_agent().start()
    assert agent.status()["agent"]["pid"] == agent.pid
    assert places.database.with_name("agent.db.broken").exists()
    assert agent.stop() == 0
    said = agent.log.read_text() + places.log.read_text()
    assert "agent.db was damaged" in said
    assert "Traceback" not in said


def test_a_database_that_cannot_be_opened_ends_the_agent_with_a_message(places: Places) -> None:
    places.create()
    places.database.mkdir()  # as an I/O error: sqlite3.OperationalError
    done = subprocess.run(
        [sys.executable, "-m", "rla_agent.daemon"],
        capture_output=True, text=True, env=os.environ, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == EXIT_FAILED
    assert str(places.database) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_of_a_later_release_ends_the_agent_once(places: Places) -> None:
    """With an exit code of its own, after which systemd does not try again."""
    places.create()
    with closing(sqlite3.connect(places.database)) as db:
        db.execute("PRAGMA user_version = 99")
    before = places.database.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "rla_agent", "start"],
        capture_output=True, text=True, env=os.environ, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, places.database.read_bytes()) == (EXIT_NEWER, before)
    assert "upgrade rla-agent" in done.stderr
    assert "Traceback" not in done.stderr


def test_who_asks_for_the_status_makes_no_database(
    agent: Any, places: Places, wait_until: Callable[..., Any]
) -> None:
    assert "agent.db" not in str(ask_status(places)["problems"])
    places.database.unlink()
    with suppress(RlaError):  # it may have noticed, and ends
        assert "agent.db cannot be read now" in str(ask_status(places)["problems"])
    wait_until(lambda: not agent_alive(places), what="its end")
    assert not places.database.exists()


def test_two_agents_that_were_given_one_runtime_folder(
    agent: Any, new_agent: Callable[..., Any], tmp_path: Path, wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """RLA_RUNTIME_DIR is set for all, RLA_STATE_DIR for each: nobody reaches the other one's agent."""
    second = new_agent()
    second.places = Places(tmp_path / "second", agent.places.runtime)
    with monkeypatch.context() as there:
        there.setenv(STATE_VARIABLE, str(second.places.state))
        second.start()
        assert second.status()["agent"]["pid"] == second.pid
        first = ask_status(agent.places)
        assert first is not None
        assert first["agent"]["pid"] == agent.pid
        assert second.command("stop").returncode == 0
        wait_until(lambda: not second.alive, what="the end of the second")
    assert f"another agent serves in {agent.places.runtime}" in second.log.read_text()
    assert agent.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["files", "folder"])
def test_sockets_that_were_deleted_come_back(
    agent: Any, places: Places, tmp_path: Path, wait_until: Callable[..., Any], gone: str
) -> None:
    """A cleaner took them, or a logout their folder: new clients and commands find the agent again."""
    for count in range(2):
        if gone == "folder":
            shutil.rmtree(places.runtime)
        else:
            places.data_socket.unlink()
            places.control_socket.unlink()
        wait_until(lambda: places.data_socket.exists() and places.control_socket.exists(), what="the sockets")
        assert agent.status()["agent"]["pid"] == agent.pid
        assert stat.S_IMODE(places.control_socket.stat().st_mode) == 0o600
        root = tmp_path / f"run{count}"
        root.mkdir()
        opening = make_opening(root=root, folders={"log": "."}, sinks=("csv",), names={}, item={})
        outbox = Outbox(places, opening, AgentConfig(autostart=False))
        outbox.put(FrameKind.ROW, pack([1, 1.0, {"x": 1}]), 1.0, 1)
        assert outbox.flush(60)
        outbox.close("finished", "")
    assert agent.stop() == 0


@pytest.mark.parametrize("unit", ["rla-agent.service", TEMPLATE_NAME])
def test_systemd_tries_no_more_what_trying_again_does_not_change(unit: str) -> None:
    (line,) = [line for line in template(unit).splitlines() if line.startswith("RestartPreventExitStatus=")]
    codes = {int(code) for code in line.partition("=")[2].split()}
    assert codes == {EXIT_RUNNING, EXIT_PLACE, EXIT_CONFIG, EXIT_NEWER}


@pytest.mark.slow
def test_an_agent_that_stops_keeps_the_lock_while_it_writes_and_takes_its_jobs_with_it(
    places: Places, new_agent: Callable[..., Any], tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """Two agents at one job: the slower one gave the half of the other the final name."""
    begun, may_end = tmp_path / "begun", tmp_path / "may-end"
    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\necho >> {begun}\nwhile [ ! -e {may_end} ]; do sleep 0.05; done\n")
    slow.chmod(0o755)
    root = tmp_path / "data"
    for folder in ("log", "results"):
        (root / folder).mkdir(parents=True)
    opening = make_opening(
        root=root, folders={"log": "log", "results": "results"}, sinks=["csv"], names={}, item={}
    )
    stop_autostart(places)
    first = new_agent().start()
    outbox = Outbox(places, opening._replace(python=str(slow)), AgentConfig(autostart=False))
    try:
        blobs = outbox.blobs_folder
        assert blobs is not None
        (blobs / "b").write_bytes(bytes(18))
        image = {"name": "x.png", "format": "png", "cover": True, "blob": "b", "shape": [1, 2, 3, 3]}
        assert outbox.job("image", {**image, "dtype": "uint8"})
        wait_until(begun.exists, what="the job")
        first.send_signal(signal.SIGTERM)
        wait_until(lambda: not agent_alive(places), what="the end of the lock")
        wait_until(lambda: not first.alive, what="the end of the process")
        assert len(begun.read_text()) == 1
        second = new_agent().start()
        wait_until(lambda: len(begun.read_text()) == 2, what="the job's second begin")
        may_end.touch()
        assert second.stop() == 0
    finally:
        may_end.touch()
        outbox.close("finished", "")


@pytest.mark.slow
def test_shared_memory_whose_lock_is_held_beyond_the_end_of_its_stream_goes_later(
    places: Places, agent: Any, wait_until: Callable[..., Any]
) -> None:
    """A child of the training process holds it; no other stream ends after that."""
    ended = places.spool / "stream-of-an-ended-run"
    arena = create_arena(ended, PAGE)
    assert arena is not None
    path = Path(ARENA_FOLDER, arena.name)
    sweep_memory(places)
    assert path.exists()
    arena.close(unlink=False)
    wait_until(lambda: not path.exists(), what="a later sweep")
    assert agent.alive


def test_two_sweepers_do_not_take_each_other_for_a_living_client(places: Places) -> None:
    arena = create_arena(places.spool / "gone", PAGE)
    assert arena is not None
    arena.close(unlink=False)
    path = Path(ARENA_FOLDER, arena.name)
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        sweep_memory(places)
    assert not path.exists()
