"""Messages reach the agent that serves now, wherever its socket lies."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_client import logger
from rla_client import messenger as messenger_module
from rla_client.messenger import Messenger
from rla_client.places import RUNTIME_VARIABLE, STATE_VARIABLE, Places


def test_an_agent_that_comes_back_elsewhere_is_found(
    places: Places,
    new_agent: Callable[..., Any],
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messenger_module, "LOOK_INTERVAL_S", 0.05)
    messenger = Messenger(places, autostart=False, config_path=None)

    def sends() -> bool:
        return messenger.send({"s": "nobody", "n": 1, "o": 0}, b"")

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
        assert logger.flush(20)
    finally:
        logger.reset()
