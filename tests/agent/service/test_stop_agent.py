"""Stop of an agent, also of one that hangs or cannot be signalled from here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import wait_until

from rla_agent.service import agent_lock
from rla_agent.service.control_client import ask_status
from rla_agent.service.lock_holder import read_holder
from rla_agent.service.stop_agent import stop_agent
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.errors import AgentNotRunningError, AgentRunningError, RlaError


@pytest.mark.slow
def test_stop_waits_for_the_drain(agent: Any) -> None:
    assert stop_agent(agent.places) is True
    assert not agent_alive(agent.places)
    assert stop_agent(agent.places) is False
    with pytest.raises(AgentNotRunningError, match="start --detach"):
        ask_status(agent.places)


@pytest.mark.slow
def test_an_agent_that_hangs_is_reported(agent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.send_signal(signal.SIGSTOP)
    with pytest.raises(RlaError, match=f"does not answer within 0.3 s: pid {agent.pid}"):
        ask_status(agent.places, 0.3)
    monkeypatch.setattr("rla_agent.service.stop_agent.STOP_TIMEOUT_S", 0.3)
    with pytest.raises(RlaError, match="did not end"):
        stop_agent(agent.places)
    agent.send_signal(signal.SIGCONT)


@pytest.fixture
def bystander(agent: Any) -> Iterator[subprocess.Popen[bytes]]:
    """An unrelated process, which has the number that the lock names: the agent's, in another container."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        told = read_holder(agent.places) | {"pid": process.pid}
        agent.places.lock.write_text(json.dumps(told))
        yield process
        process.kill()


def test_stop_never_ends_another_process_of_the_same_number(
    agent: Any, bystander: subprocess.Popen[bytes]
) -> None:
    """The agent is asked over its socket instead."""
    assert stop_agent(agent.places) is True
    assert not agent_alive(agent.places)
    assert bystander.poll() is None


@pytest.mark.slow
def test_stop_says_where_to_stop_an_agent_that_cannot_be_told(
    agent: Any, bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rla_agent.service.stop_agent.ASK_TIMEOUT_S", 0.3)
    agent.send_signal(signal.SIGSTOP)
    with pytest.raises(RlaError, match=f"pid {bystander.pid} on .*run there: rla-agent stop"):
        stop_agent(agent.places)
    monkeypatch.setattr(agent_lock, "TAKE_OVER_S", 0.3)
    with pytest.raises(AgentRunningError):
        agent_lock.take_lock(agent.places, "user")
    assert bystander.poll() is None
    agent.send_signal(signal.SIGCONT)


@pytest.mark.slow
def test_stop_from_another_pid_namespace(agent: Any) -> None:
    stop = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "rla_agent", "stop"]
    done = subprocess.run(stop, capture_output=True, text=True, check=False)
    if "ermitted" in done.stderr:
        pytest.skip("a pid namespace needs root")
    assert done.returncode == 0, done
    wait_until(lambda: not agent.alive)
