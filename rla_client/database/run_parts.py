"""Display data of a run's parts.

A part is what one of several machines writes of a run. A record keeps the content of the parts' files
(`parts_told`); `parts_text` turns that into text as of now: one line with the count, then a line for each
part with a problem.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from rla_client.contract.run_file import LIVE_STATES, seconds
from rla_client.contract.run_part import part_problem, run_parts
from rla_client.contract.spool.losses import lost_lines
from rla_client.database.records.record import LIVE_S, Record

PARTS: Final = "parts"  # key in a record's fields of run.json
_MARK: Final = f'"{PARTS}":'
_HERE, _WELL, _LOST = "here", "well", "lost"
_MACHINES = "machines"  # name → problem of its part; of a live part: when it was last updated


def parts_told(log_folder: str | os.PathLike[str], run: Mapping[str, Any]) -> dict[str, Any]:
    """What a record keeps of a run's parts; empty if one machine wrote the whole run.

    Args:
        log_folder: log folder of the run.
        run: content of run.json; empty if only parts of the run are here.
    """
    parts = run_parts(log_folder)
    if not parts:
        return {}
    machines: dict[str, str | float] = {}
    for machine, part in parts.items():
        words, heard = part_problem(part, 0.0, LIVE_S), seconds(part.get("updated"))
        living = not words and part.get("state") in LIVE_STATES and heard is not None
        machines[machine] = heard if living and heard is not None else words
    return {
        _HERE: bool(run),
        _WELL: str(run.get("state") or "") in {*LIVE_STATES, "finished", "interrupted"},
        _MACHINES: machines,
        _LOST: [f"{machine} {line}" for machine, part in parts.items() for line in lost_lines(part)],
    }


def parts_text(told: Mapping[str, Any], now: float) -> list[str]:
    """`2 of 2 parts`, then a line for each part with a problem; empty for a run without parts.

    Args:
        told: result of `parts_told`.
        now: Unix seconds.
    """
    if not told:
        return []
    bad = {}
    for machine, words in told[_MACHINES].items():
        silent = not isinstance(words, str) and now - words > LIVE_S
        if silent or (isinstance(words, str) and words):
            bad[machine] = "not heard of" if silent else words
    here = bool(told[_HERE])
    well, total = len(told[_MACHINES]) - len(bad) + bool(told[_WELL]), len(told[_MACHINES]) + here
    lines = [f"{well} of {total} parts" + ("" if here else " that are here")]
    lines += [f"{machine}: {words}" for machine, words in bad.items()]
    return [*lines, *map(str, told[_LOST])]


def parts_of(record: Record, now: float) -> list[str]:
    """`parts_text` of a run."""
    if _MARK not in record.told_json:  # skips parsing JSON for most of 10,000 runs in a list
        return []
    return parts_text(record.told.get(PARTS) or {}, now)
