"""`rla-agent status` beside a run that has just asked for an agent."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.spooled import stop_autostart
from typer.testing import CliRunner

from rla_agent.command import status as module
from rla_agent.command.group import app
from rla_client.contract.agent.places import Places
from rla_client.stream.segment_writer import SegmentWriter


def test_an_agent_that_starts_is_waited_for(
    new_agent: Callable[..., Any], places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right behind a first short run it said to start one by hand."""
    monkeypatch.setattr(module, "STARTS_S", 60.0)
    places.create()
    SegmentWriter(places.spool, lambda _number, _rows: b"").close()
    starter = threading.Timer(0.5, lambda: new_agent().start())
    starter.start()
    shown = CliRunner().invoke(app, ["status"])
    starter.join()
    assert shown.exit_code == 0, shown.output
    assert "serving" in shown.output


@pytest.mark.parametrize("why", ["stopped", "long ago", "nothing waits"])
def test_one_that_does_not_start_is_not_waited_for(places: Places, why: str) -> None:
    places.create()
    if why != "nothing waits":
        stream = SegmentWriter(places.spool, lambda _number, _rows: b"")
        stream.close()
        if why == "stopped":
            stop_autostart(places)
        else:
            os.utime(places.spool / stream.name, (0, 0))
    began = time.monotonic()
    assert not module._one_starts(places)
    assert time.monotonic() - began < module.STARTS_S / 2
