"""The agent's start with a database that is damaged or cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from rla_agent.daemon import EXIT_FAILED
from rla_client.places import Places


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
