"""Findings about the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from rla_agent.model.problem import Finding
from rla_agent.service.doctor.surroundings import Surroundings


def check_config(around: Surroundings) -> Iterator[Finding]:
    """Every fault of the configuration."""
    for fault in around.config_faults:
        what = f"{around.config_path}: {fault}"
        yield Finding("config", "fault", what, "correct that line, then: rla-agent check-config")
