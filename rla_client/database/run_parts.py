"""The parts of a run as readers show them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rla_client.contract.run_file import LIVE_STATES
from rla_client.contract.run_part import part_problem, run_parts
from rla_client.contract.spool.losses import lost_lines
from rla_client.database.records.record import LIVE_S


def parts_text(log_folder: str | os.PathLike[str], run: Mapping[str, Any], now: float) -> list[str]:
    """`2 of 2 parts`, then a line for each that is not well; empty where one machine has written all.

    Args:
        log_folder: of the run.
        run: content of run.json; empty where only parts of it lie here.
        now: Unix seconds.
    """
    parts = run_parts(log_folder)
    if not parts:
        return []
    problems = {machine: part_problem(part, now, LIVE_S) for machine, part in parts.items()}
    bad = {machine: words for machine, words in problems.items() if words}
    state = str(run.get("state") or "")
    well = len(parts) - len(bad) + (state in {*LIVE_STATES, "finished", "interrupted"})
    total = len(parts) + bool(run)
    lines = [f"{well} of {total} parts"] if run else [f"{well} of {total} parts that are here"]
    lines += [f"{machine}: {words}" for machine, words in bad.items()]
    for machine, part in parts.items():
        lines += [f"{machine} {line}" for line in lost_lines(part)]
    return lines
