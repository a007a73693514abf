"""Findings about interpreters that somebody else could exchange."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from rla_agent.model.problem import Finding
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.service.doctor.surroundings import Surroundings
from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.trusted_paths import program_problem
from rla_client.contract.spool.segments import stream_names


def check_interpreters(around: Surroundings) -> Iterator[Finding]:
    """Interpreters that somebody else could exchange: this one, and those of the runs in the spool."""
    programs = {sys.executable}
    with suppress(OSError):
        for name in stream_names(around.places.spool):
            with suppress(RlaError, OSError):
                programs.add(read_opening(around.places.spool / name)[0].python)
    for program in sorted(filter(os.path.exists, programs)):
        problem = program_problem(program)
        if problem is not None:
            what = f"the agent draws no figures with {program}: {problem.what}"
            other = (
                "train with an interpreter that only you and root can change, such as: python3 -m venv ~/venv"
            )
            fix = problem.fix.removeprefix("run: ") if problem.fix.startswith("run: ") else other
            yield Finding("interpreter-unsafe", "warning", what, fix)
