"""Machines of a fleet by their status files.

The master keeps a status file of each machine in `.rla-fleet/` of its data root.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.database.clock import clock

FLEET_FOLDER = ".rla-fleet"
MAX_STATUS_BYTES = 256 << 10  # of one machine
MAX_MACHINES = 500
MAX_RUNS = 200  # of one machine


def fleet_files(root: Path) -> list[dict[str, Any]]:
    """The machines, see `described`; `age_s` is the age of their files. Broken files are left out."""
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
        return []  # no master
    return told_apart(found)


def told_apart(machines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The machines, with the machine id added to host names that occur more than once."""
    hosts = Counter(one["host"] for one in machines)
    return [
        {**one, "host": f"{one['host']} ({one['machine']})"}
        if hosts[one["host"]] > 1 and one["machine"]
        else one
        for one in machines
    ]


def described(status: dict[str, Any]) -> dict[str, Any]:
    """`host`, `machine`, `version`, `age_s`, `backlog` and `runs` of a status, even if it is malformed."""
    runs, age_s = status.get("runs"), status.get("age_s")
    return {
        "host": str(status.get("host"))[:200],
        "machine": str(status.get("machine") or "")[:8],
        "version": str(status.get("version"))[:50],
        "age_s": age_s if isinstance(age_s, int | float) else 0.0,
        "backlog": status.get("backlog"),
        "runs": [run for run in runs if isinstance(run, dict)][:MAX_RUNS] if isinstance(runs, list) else [],
    }
