"""Messages reach the agent that serves now, wherever its socket lies."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.few_descriptors import run_with_few

from rla_client import logger
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE, Places
from rla_client.stream import messenger as messenger_module
from rla_client.stream.messenger import Messenger


@pytest.mark.slow
def test_an_agent_that_comes_back_elsewhere_is_found(
    places: Places,
    new_agent: Callable[..., Any],
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messenger_module, "LOOK_INTERVAL_S", 0.05)
    messenger = Messenger(places, autostart=False, config_path=None)

    def sends() -> bool:
        return messenger.hint("nobody", 1, 0)

    try:
        first = new_agent().start()
        wait_until(sends, what="a message taken")
        first.kill()
        wait_until(lambda: not sends(), what="the end of the connection")
        elsewhere = places.runtime / "b"
        monkeypatch.setenv(RUNTIME_VARIABLE, os.fspath(elsewhere))
        new_agent().start()
        assert places.data_socket.parent == elsewhere
        wait_until(sends, what="a message taken under the other folder")
    finally:
        messenger.close()


def test_a_slow_service_manager_does_not_hold_up_the_training(
    places: Places,
    wait_until: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    called, goes_on = tmp_path / "called", tmp_path / "goes-on"
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(f"#!/bin/sh\n: > {called}\nwhile [ ! -e {goes_on} ]; do sleep 0.02; done\n")
    systemctl.chmod(0o755)
    unit = tmp_path / "config" / "systemd" / "user" / "rla-agent.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    monkeypatch.setenv("PATH", f"{systemctl.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", os.fspath(tmp_path / "config"))
    monkeypatch.delenv(STATE_VARIABLE)  # units serve the default places only
    messenger = Messenger(places, autostart=True, config_path=None)
    messenger.start_agent_if_none()
    try:
        assert any(thread.name == "rla-start" for thread in threading.enumerate())
        wait_until(called.exists, what="a call of systemctl")
    finally:
        goes_on.touch()
    wait_until(lambda: not any(t.name == "rla-start" for t in threading.enumerate()), what="the thread's end")
    assert not caplog.text


@pytest.mark.usefixtures("agent")
def test_a_flush_asks_as_soon_as_it_is_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messenger_module, "FLUSH_ASK_AGAIN_S", 3600.0)
    logger.configure(tmp_path / "run", ["csv"])
    try:
        logger.record_tabular("a", 1)
        logger.dump_tabular()
        assert logger.flush(60)
    finally:
        logger.reset()


@pytest.fixture
def written(agent: Any, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Writes a row into a run that was opened while an agent served."""
    assert agent.alive
    logger.configure(tmp_path / "run", ["csv"])

    def write() -> None:
        logger.record_tabular("a", 1)
        logger.dump_tabular()

    write()
    assert logger.flush(60)
    yield write
    logger.reset()


def no_agents(places: Places) -> bool:
    """Kill those that were started: the one that serves, and a second one that a slow start called for."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(STATE_VARIABLE) == str(places.state) and process.pid != os.getpid():
                process.kill()
                found.append(process)
    psutil.wait_procs(found)
    return not found and not agent_alive(places)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["flush", "rows"])
def test_the_agent_that_was_killed_is_started_again(
    agent: Any,
    written: Callable[[], None],
    places: Places,
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    agent.kill()
    written()

    def rows_start_it() -> bool:
        written()
        return agent_alive(places)

    try:
        if by == "rows":
            monkeypatch.setattr(messenger_module, "START_INTERVAL_S", 6.0)
            wait_until(rows_start_it, 60)
        assert logger.flush(60)
        assert agent_alive(places)
    finally:
        wait_until(lambda: no_agents(places), what="the end of the agents")


@pytest.mark.slow
def test_a_flush_does_not_wait_for_an_agent_that_may_not_come(
    agent: Any, written: Callable[[], None], places: Places
) -> None:
    agent.kill()
    places.stopped_marker.touch()
    written()
    assert not logger.flush(3600)
    places.stopped_marker.unlink()
    messenger = Messenger(places, autostart=False, config_path=None)
    assert not messenger.await_flushed({"s": "nobody"}, time.monotonic() + 3600).done


FEW_DESCRIPTORS = """
import time
from rla_client.stream.messenger import Messenger
from rla_client.contract.agent.places import find_places
take_all()
for free in range(24):
    messenger = Messenger(find_places(), autostart=False, config_path=None)
    assert messenger.hint("nobody", 1, 0) is False
    asked = {"s": "nobody", "n": 1, "o": 0, "m": False}
    assert messenger.await_flushed(asked, time.monotonic()).done is False
    messenger.close()
    give_one()
print("alive")
"""


def test_a_process_with_few_descriptors_is_neither_ended_nor_interrupted(places: Places) -> None:
    del places
    done = run_with_few(FEW_DESCRIPTORS)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
