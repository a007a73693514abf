"""Reader of `run.json` for replication."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.run_file import LIVE_STATES
from rla_client.contract.run_part import part_machine

SILENT_S: Final = 180.0  # a `running` run whose file was not updated for so long counts as dead
MAX_RUN_JSON_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ItemRun:
    """The fields of an item's run.json that replication needs."""

    host: str
    state: str
    time_step: float | None
    stamp: tuple[int, int]
    goes: bool = True  # False: its configuration, or RLA_MODE=offline, keeps it here
    part: str = ""  # the machine, where this is a part of another machine's run

    @property
    def live(self) -> bool:
        """Whether rows may still come."""
        return self.state in LIVE_STATES


def heard_s_ago(run: object, now: float) -> float | None:
    """Seconds since a live run's last update; None where run.json is not that of a live run."""
    if not isinstance(run, dict) or str(run.get("state")) not in LIVE_STATES:
        return None
    updated = run.get("updated")
    age = now - updated if isinstance(updated, int | float) else SILENT_S
    return max(0.0, age) if age < SILENT_S else None


def read_run(path: bytes, stamp: tuple[int, int]) -> ItemRun | None:
    """Parse a run.json; None where it has no meaning."""
    try:
        found = json.loads(read_small(os.fsdecode(path), MAX_RUN_JSON_BYTES))
    except (BrokenFileError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    step, goes = found.get("time_step"), found.get("replicate", True) is not False
    step = step if isinstance(step, int | float) else None
    part = part_machine(os.path.basename(os.fsdecode(path)))
    return ItemRun(str(found.get("host", "")), str(found.get("state", "")), step, stamp, goes, part)
