"""Import of runs of garage's launcher.

Each run is a folder. variant.json holds the hyper-parameters; metadata.json (git, packages, machine) becomes
the item's environment.json; secrets are hidden in both. A repetition that `rla rerun` made beside a run would
count twice in every mean, so it is skipped unless asked for. Folders of this form that our own launcher wrote
hold a run.json. The item's run.json takes over the state of the run, but not its identity (id, streams,
parent), because nobody continues the copy. A run that was still running has the state `unknown`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rla_client.contract.run_file import LIVE_STATES, RUN_FILE
from rla_client.database.imports.source import Look, RunContent, look
from rla_client.database.imports.tables import read_table, with_steps
from rla_client.database.imports.tensorboard import EVENTS, event_files
from rla_client.database.json_files import read_json
from rla_client.database.records.record import UNKNOWN
from rla_client.database.records.record_reader import MAX_TIME

RERUN_ENDING = "-rerun"  # of the folder that `rla rerun` makes, with code/ and run/
STATE_FIELDS = (  # fields of our run.json
    "format", "state", "reason", "exit_code", "signal", "opened", "reopened", "ran_before_s", "last_row",
    "closed", "user", "host", "versions", "updated",
)  # fmt: skip


def find_garage(folder: Path) -> Iterator[Look]:
    """Each folder below with files of garage's launcher."""
    for path in sorted(folder.rglob("progress.csv")):
        here = path.parent
        if (here / "variant.json").exists() or (here / "metadata.json").exists():
            yield os.fspath(here), partial(look, _read_garage, here, folder)


def is_rerun(path: Path, folder: Path) -> bool:
    """Whether a folder is the `run` of a `<run>-rerun` that `rla rerun` made beside `<run>`."""
    above = path.parent
    return path.name == "run" and above.name.endswith(RERUN_ENDING) and folder not in {path, above}


def _read_garage(path: Path) -> tuple[float, RunContent]:
    table = read_table(path / "progress.csv")
    columns, rows, _ = with_steps(table)
    params, metadata = (read_json(path / name) or {} for name in ("variant.json", "metadata.json"))
    around = metadata.pop("environment", {})
    environment = {**around, **metadata} if isinstance(around, dict) else metadata
    state = _state(path / RUN_FILE)
    began = state.get("opened")
    if not isinstance(began, int | float) or not 0 <= began < MAX_TIME:
        began = min(entry.stat().st_mtime for entry in path.iterdir())
    events = [(file, file.name) for file in (*event_files(path), *sorted((path / "tb").rglob(f"*{EVENTS}*")))]
    log = path / "debug.log"
    return began, RunContent(columns, rows, params, events, log, state, environment, remarks=table.remarks)


def _state(path: Path) -> dict[str, Any]:
    """Fields of a run.json that describe the run's state; empty without the file.

    Raises:
        BrokenFileError: it is not a JSON object.
    """
    found = read_json(path) or {}
    state = {name: found[name] for name in STATE_FIELDS if name in found}
    if state.get("state") in LIVE_STATES:
        state |= {"state": UNKNOWN, "reason": "it was running when it was imported"}
    return state
