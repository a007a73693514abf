"""Findings of `rla-agent doctor` about the clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from rla_agent.model.problem import Finding
from rla_client.contract.agent.places import Places


def test_clock(
    fix: Callable[[Finding], None], look: Callable[..., dict[str, Finding]], places: Places
) -> None:
    places.log.write_text("")
    os.utime(places.log, (time.time() + 3600, time.time() + 3600))
    found = look()["clock"]
    fix(Finding("", "", "", found.fix.partition("; when the clock is right: ")[2]))
    assert look() == {}
    assert look(now=1000.0)["clock"].level == "fault"
