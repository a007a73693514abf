"""Deadlines of a fetch."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from rla_client.contract.errors import ArgumentError, FetchError
from rla_client.stream.fetch import START_S, bring_back, fetch_timeout_s


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_a_deadline_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch_timeout_s() == 600
    monkeypatch.setenv("RLA_FETCH_TIMEOUT_S", text)
    with pytest.raises(ArgumentError, match="RLA_FETCH_TIMEOUT_S"):
        fetch_timeout_s()


@pytest.mark.further
def test_an_agent_that_hangs_for_a_while_is_waited_for(agent: Any, tmp_path: Path) -> None:
    """Else a job that is requeued while the disk hangs begins at 0."""
    os.kill(agent.pid, signal.SIGSTOP)
    goes_on = threading.Timer(START_S + 2, os.kill, (agent.pid, signal.SIGCONT))
    goes_on.start()
    with pytest.raises(FetchError) as told:
        bring_back(tmp_path / "checkpoint_1.pt")
    goes_on.join()
    assert "does not answer" not in str(told.value)
