"""Parts of a run from other machines.

A part is the item of the run's index below the data root of its machine, or the same folder where they share
one. Its agent writes `run.part.<machine>.json` there: the fields of run.json, and `ranks`, the state of each
process of the part.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.run_file import LIVE_STATES, MAX_RUN_FILE_BYTES, RUN_FILE, seconds
from rla_client.contract.text.bounded_parsing import parse_json

MACHINE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,30}")
PART: Final = "part"  # field of a part's file: its machine
RANKS: Final = "ranks"  # field of a part's file: label → state, reason, rows, lost
MAX_PARTS: Final = 4096
_PART_FILE: Final = re.compile(rf"run\.part\.({MACHINE.pattern})\.json")


def run_file_name(machine: str) -> str:
    """Name of the status file of a run, or of a part where there is a machine."""
    return f"run.part.{machine}.json" if machine else RUN_FILE


def system_file_name(machine: str) -> str:
    """Name of the file of system metrics of a run, or of a part where there is a machine."""
    return f"system.{machine}.csv" if machine else "system.csv"


def part_machine(name: str) -> str:
    """The machine of a part's file; empty for other names."""
    found = _PART_FILE.fullmatch(name)
    return "" if found is None else found[1]


def run_parts(log_folder: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    """Machine → content of its part's file; those that cannot be read are left out."""
    try:
        names = sorted(name for name in os.listdir(log_folder) if part_machine(name))
    except OSError:
        return {}
    found = {}
    for name in names[:MAX_PARTS]:
        try:
            content = parse_json(read_small(os.path.join(log_folder, name), MAX_RUN_FILE_BYTES))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict):
            found[part_machine(name)] = content
    return found


def newest_part(log_folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The last updated file of a part, for a run whose run.json is not here."""
    return max(
        run_parts(log_folder).values(), key=lambda part: seconds(part.get("updated")) or 0.0, default={}
    )


def ranks_of(part: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Label → how that process of a part stands."""
    found = part.get(RANKS)
    if not isinstance(found, dict):
        return {}
    return {str(label): told for label, told in found.items() if isinstance(told, dict)}


def part_problem(part: Mapping[str, Any], now: float, silent_s: float) -> str:
    """What is wrong with a part; empty where it runs, or ended well.

    Args:
        part: content of its file.
        now: Unix seconds.
        silent_s: after which a living one counts as not heard of.
    """
    dead = [label for label, told in ranks_of(part).items() if told.get("state") in {"killed", "failed"}]
    state, updated = str(part.get("state")), part.get("updated")
    if dead:
        words = ", ".join(f"{label} {ranks_of(part)[label]['state']}" for label in dead[:8])
        return words + (f" and {len(dead) - 8} more" if len(dead) > 8 else "")  # noqa: PLR2004
    if state in LIVE_STATES and isinstance(updated, int | float) and now - updated > silent_s:
        return "not heard of"
    return "" if state in LIVE_STATES or state in {"finished", "interrupted"} else state
