"""The machines of a fleet, by the status files in `.rla-fleet/` of the data root of their master."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.files import held_folder, open_plain
from rla_client.contract.parsing import parse_json
from rla_client.database.records import clock

FLEET_FOLDER = ".rla-fleet"
MAX_STATUS_BYTES = 256 << 10  # of one machine, as its agent writes it
MAX_MACHINES = 500
MAX_RUNS = 200  # of one machine


def fleet_files(root: Path) -> list[dict[str, Any]]:
    """The machines, see `described`; `age_s` counts from their files, and broken files are left out."""
    found = []
    try:
        with held_folder(root, FLEET_FOLDER) as folder:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and name[0] != ".")
            for name in names[:MAX_MACHINES]:
                with suppress(OSError, ValueError, BrokenFileError), open_plain(folder / name) as file:
                    status = parse_json(file.read(MAX_STATUS_BYTES))
                    age_s = max(0.0, clock() - os.fstat(file.fileno()).st_mtime)
                    if isinstance(status, dict):
                        found.append(described({**status, "age_s": age_s}))
    except OSError:
        return []  # it is not a master
    return found


def described(status: dict[str, Any]) -> dict[str, Any]:
    """`host`, `version`, `age_s`, `backlog` and `runs` of a machine's status, whatever is wrong with it."""
    runs, age_s = status.get("runs"), status.get("age_s")
    return {
        "host": str(status.get("host"))[:200],
        "version": str(status.get("version"))[:50],
        "age_s": age_s if isinstance(age_s, int | float) else 0.0,
        "backlog": status.get("backlog"),
        "runs": [run for run in runs if isinstance(run, dict)][:MAX_RUNS] if isinstance(runs, list) else [],
    }
