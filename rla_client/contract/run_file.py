"""The file run.json of a run.

The agent writes it from the opening frames and the run's end; all readers use `run_file`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import LOG
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.contract.text.number_parsing import INT64

RUN_FILE = "run.json"
MAX_RUN_FILE_BYTES = 1 << 20
LIVE_STATES = ("running", "stalled")  # no set: an invalid state in a file may be an unhashable list
CLOSED_STATES = frozenset({"finished", "interrupted", "failed"})  # states that the program itself recorded


def run_file(data_root: str | os.PathLike[str], table: str, index: str) -> dict[str, Any]:
    """Content of a run.json; empty where there is none, or it cannot be read."""
    try:
        path = f"{os.fspath(data_root)}/{LOG}/{table}/{index}/{RUN_FILE}"
        found = parse_json(read_small(path, MAX_RUN_FILE_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def seconds(value: object) -> float | None:
    """A number of a record; None for other values, or numbers out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -INT64 < value < INT64 else None


def run_duration_s(run: Mapping[str, Any], last_row: float | None = None) -> float | None:
    """Duration of a run in seconds; None while it is unknown.

    Args:
        run: content of run.json, with `opened`.
        last_row: time of the last row of progress.csv, Unix seconds, where it is known.
    """
    opened, before = seconds(run.get("opened")), seconds(run.get("ran_before_s"))
    reopened, closed = seconds(run.get("reopened")), seconds(run.get("closed"))
    begun = opened if reopened is None else reopened
    if begun is None:
        return None
    rows = [when for when in (last_row, seconds(run.get("last_row"))) if when is not None]
    state = run.get("state")
    over = isinstance(state, str) and state in CLOSED_STATES
    ends = [*rows, closed] if over and closed is not None else rows
    end = max(ends, default=closed)
    if end is None:
        return before or None
    return (before or 0.0) + max(end - begun, 0.0)
