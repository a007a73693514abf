"""The status of the agent on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Agent
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


@pytest.fixture(autouse=True)
def some_run(make_run: MakeRun) -> None:
    make_run()


def test_without_an_agent_it_says_what_to_do(root: Path, page_server: Callable[..., PageServer]) -> None:
    found = page_server(root).ask("status")
    assert found["status"]["agent"]["state"] == "not running"
    assert found["status"]["problems"][0]["fix"] == "rla-agent start --detach"
    assert found["databases"] == [str(root)]


@pytest.mark.slow
def test_with_an_agent(
    root: Path, agent: Agent, page_server: Callable[..., PageServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLA_STATE_DIR", str(agent.places.state))
    found = page_server(root).ask("status")
    assert (found["status"]["agent"]["state"], found["status"]["agent"]["pid"]) == ("serving", agent.pid)
