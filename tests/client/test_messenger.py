"""Messages reach the agent that serves now, wherever its socket lies."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from rla_client import messenger as messenger_module
from rla_client.messenger import Messenger
from rla_client.places import RUNTIME_VARIABLE, Places


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
