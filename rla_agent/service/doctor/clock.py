"""Findings about the clock."""

from __future__ import annotations

from collections.abc import Iterator

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings

CLOCK_SLACK_S = 60.0
FIRST_YEAR_S = 1_704_067_200  # 2024-01-01: an earlier clock was never set


def check_clock(around: Surroundings) -> Iterator[Finding]:
    """A clock that was never set, or that went back."""
    if around.now < FIRST_YEAR_S:
        yield Finding("clock", "fault", "the clock was never set", "timedatectl set-ntp true")
        return
    ahead = [
        (path.stat().st_mtime, path)
        for path in (around.places.log, around.places.database, around.places.lock)
        if path.exists()
    ]
    newest, path = max(ahead, default=(0.0, around.places.state))
    if newest > around.now + CLOCK_SLACK_S:
        what = f"{path} was written {newest - around.now:.0f} s in the future: the clock went back"
        fix = f"timedatectl set-ntp true; when the clock is right: touch {path}"
        yield Finding("clock", "warning", what, fix)
