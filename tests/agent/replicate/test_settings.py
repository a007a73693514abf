"""The list of databases, while another process holds its lock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_agent.replicate import settings
from rla_agent.replicate.settings import ListBusyError, add, entries, folder, register
from rla_client.contract.descriptors import try_lock


def test_nobody_waits_for_ever_for_the_lock_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent not at all, a command for a while; it says who holds it and changes nothing."""
    monkeypatch.setattr(settings, "ADD_WAIT_S", 0.2)
    state, root, config = tmp_path / "state", tmp_path / "data", tmp_path / "rla_config.yaml"
    state.mkdir()
    root.mkdir()
    config.write_text("")
    with (folder(state) / "databases.lock").open("w") as held:
        assert try_lock(held.fileno())
        with pytest.raises(ListBusyError, match="another process holds"):
            register(state, root, config)
        with pytest.raises(ListBusyError, match=f"process {os.getpid()} holds .*kill -CONT"):
            add(state, root, config)
        assert entries(state) == []
    register(state, root, config)
    assert add(state, root, config) == entries(state)[0]
