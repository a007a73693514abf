"""The lock: one agent, its name for the others, gone with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_agent.service.agent_lock import AgentLock
from rla_agent.service.lock_holder import describe_holder, read_holder
from rla_client.contract.agent.places import NOWHERE, Places
from rla_client.contract.errors import AgentRunningError

HOLD = """
import sys
from rla_agent.service.agent_lock import AgentLock
from rla_client.contract.agent.places import find_places
lock = AgentLock(find_places())
print("held", flush=True)
sys.stdin.read()
"""


def test_the_second_one_is_told_who_has_it(places: Places) -> None:
    places.create()
    lock = AgentLock(places, "user")
    with pytest.raises(AgentRunningError, match=f"pid {os.getpid()} on {os.uname().nodename} since"):
        AgentLock(places)
    assert read_holder(places)["service"] == "user"
    lock.release()
    AgentLock(places).release()


def test_while_it_starts_nobody_asks_another_agent_in_the_same_folder(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two with one RLA_RUNTIME_DIR: whoever asks for the second gets no answer of the first."""
    asked = []
    second = Places(places.runtime / "second", places.runtime)  # a short path, for its sockets
    for one in (places, second):
        one.create()
    first = AgentLock(places)
    serving = Places.serving

    def look(starting: Places, claim: Callable[[Path], bool]) -> tuple[Places, str]:
        asked.append((starting.control_socket, read_holder(starting)["pid"]))
        return serving(starting, claim)

    monkeypatch.setattr(Places, "serving", look)
    lock = AgentLock(second)
    assert asked == [(NOWHERE / "control.sock", os.getpid())]
    assert second.sockets == second.state / "sockets" != first.places.sockets
    lock.release()
    first.release()


def test_a_killed_holder_lets_go(places: Places) -> None:
    places.create()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AgentRunningError, match=f"pid {holder.pid} "):
            AgentLock(places)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    AgentLock(places).release()


def test_a_lock_file_of_nonsense_is_no_reason_to_fail(places: Places) -> None:
    places.create()
    places.lock.write_bytes(b"[1, 2")
    assert read_holder(places) == {}
    assert "unknown process" in describe_holder(places)
    AgentLock(places).release()


def test_a_file_that_is_reached_through_a_link_may_be_kept(places: Places, tmp_path: Path) -> None:
    """agent.db on another disk: the link leads to the same file, until it leads elsewhere."""
    places.create()
    (tmp_path / "agent.db").touch()
    (tmp_path / "other.db").touch()
    places.database.symlink_to(tmp_path / "agent.db")
    lock = AgentLock(places)
    lock.keep(places.database)
    assert lock.lost() == ""
    places.database.unlink()
    places.database.symlink_to(tmp_path / "other.db")
    assert "is another one now" in lock.lost()
    lock.release()
