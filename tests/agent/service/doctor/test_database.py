"""Findings of `rla-agent doctor` about the agent's database."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from rla_agent.model.problem import Finding
from rla_agent.store.agent_db import AgentDatabase
from rla_client.contract.agent.places import Places


@pytest.mark.slow
def test_database(places: Places, look: Callable[..., dict[str, Finding]], new_agent: Any) -> None:
    AgentDatabase(places.database).close()
    assert look() == {}
    with places.database.open("r+b") as file:
        file.write(b"not a database at all" * 100)
    assert look()["database"].fix.startswith("rla-agent restart")
    new_agent().start()
    found = look()
    assert set(found) == {"database-aside"}
    subprocess.run(found["database-aside"].fix.partition("; then: ")[2], shell=True, check=True)
    assert look() == {}
