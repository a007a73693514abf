"""Liveness of runs on this machine.

The agent writes run.json at each change of state and every 60 s. A file that says `running` and was not
written for `LIVE_S` seconds is shown as `unknown`, unless this machine knows better: from the agent of
this user, on its control socket, or, if none answers, from the locks of the run's streams in the spool,
which a living writer holds. Runs of other machines are in neither.

Without an agent, run.json is not kept up to date. Then the state follows from the run's streams in this
machine's spool: a run without run.json is `waiting`; a run that is live by run.json but has no living
writer is `silent`. Nothing is written; the next agent determines the actual state. On machines without
socket and spool all this costs nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla_client.contract.agent.places import Places, find_places
from rla_client.contract.errors import BrokenFileError
from rla_client.contract.layout import LOG
from rla_client.contract.run_file import LIVE_STATES, RUN_FILE
from rla_client.contract.spool.opening import stream_opening
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import writer_alive
from rla_client.database.json_files import read_json
from rla_client.database.records.record import SILENT, UNKNOWN, WAITING, Record

ASK_TIMEOUT_S = 0.5  # an agent answers within milliseconds unless it is busy
TAKE_IN_S = 3.0  # time for an agent to write the rows of a run that has just ended
MAX_STREAMS = 1000  # checks only the newest streams (0.1 s); older ones are not reported


def with_live_states(data_root: Path, records: Sequence[Record], now: float) -> list[Record]:
    """The same records, with states that this machine knows better replaced."""
    silent, open_ones = [], []
    for record in records:
        if record.state in LIVE_STATES:
            open_ones.append(record)
            if record.shown_state(now) == UNKNOWN:  # excludes imported runs
                silent.append(record)
        elif record.state is None and LOG in record.kinds:
            open_ones.append(record)
    if not open_ones:
        return list(records)
    known = known_states(data_root, silent) if silent else {}
    changes: dict[tuple[str, str], dict[str, Any]] = {
        run: {"state": state} for run, state in _without_agent(data_root, open_ones).items()
    }
    changes |= {run: {"state": state, "updated": now} for run, state in known.items()}
    return [
        replace(record, **changes[run]) if (run := (record.table, record.index)) in changes else record
        for record in records
    ]


def _without_agent(data_root: Path, records: Sequence[Record]) -> dict[tuple[str, str], str]:
    """(table, index) → `waiting` or `silent`, by this machine's spool while no agent serves."""
    streams = _unserved_streams(data_root)
    found = {}
    for record in records if streams else ():
        mine = streams.get(f"{record.table}/{record.index}")
        if mine is not None and record.state is None:
            found[record.table, record.index] = WAITING
        elif mine is not None and not any(map(writer_alive, mine)):
            found[record.table, record.index] = SILENT
    return found


def written_unserved(data_root: Path, runs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """(table, index) of runs that a living process writes while no agent serves, even without run.json."""
    streams = _unserved_streams(data_root)
    return {run for run in runs if any(map(writer_alive, streams.get("/".join(run), ())))}


def waiting_in_spool(data_root: Path, runs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """(table, index) of runs with rows in this machine's spool, after waiting TAKE_IN_S for an agent."""
    from rla_client.contract.agent.agent_process import agent_alive

    places = find_places()
    asked, until = set(runs), time.monotonic() + TAKE_IN_S
    while True:
        streams = _streams(places, data_root) if asked and places.spool.is_dir() else {}
        found = {run for run in asked if "/".join(run) in streams}
        if not found or not agent_alive(places) or time.monotonic() > until:
            return found
        time.sleep(0.05)


def _unserved_streams(data_root: Path) -> dict[str, list[Path]]:
    """`<table>/<index>` → its streams in this machine's spool; empty while an agent serves."""
    places = find_places()
    if not places.spool.is_dir():
        return {}
    from rla_client.contract.agent.agent_process import agent_alive

    return {} if agent_alive(places) else _streams(places, data_root, MAX_STREAMS)


def _streams(places: Places, data_root: Path, most: int = 0) -> dict[str, list[Path]]:
    """`<table>/<index>` → its streams in this machine's spool, among the newest `most` (0: all)."""
    base = os.path.realpath(data_root / LOG) + os.sep
    found: dict[str, list[Path]] = {}
    for name in stream_names(places.spool)[-most:]:
        path = log_folder(places.spool / name)
        if path is not None and path.startswith(base):
            found.setdefault(path.removeprefix(base), []).append(places.spool / name)
    return found


def known_states(data_root: Path, silent: Sequence[Record]) -> dict[tuple[str, str], str]:
    """(table, index) → state, for the runs that the agent or the spool of this machine knows."""
    places = find_places()
    answered = _ask_agent(places) if places.lock.exists() else None
    found = {}
    for record in silent:
        folder = os.path.realpath(f"{data_root}/{LOG}/{record.table}/{record.index}")
        if answered is not None and folder in answered:
            found[record.table, record.index] = answered[folder]
        elif answered is None and places.spool.is_dir() and _writer_lives(folder, places.spool):
            found[record.table, record.index] = "running"
    return {run: state for run, state in found.items() if state in LIVE_STATES}


def _ask_agent(places: Places) -> dict[str, str] | None:
    """Log folder → state of the runs that the agent knows; None if no agent answers."""
    from rla_client.contract.agent.agent_connection import ask
    from rla_client.contract.agent.agent_process import agent_alive

    if not agent_alive(places):
        return None
    answer = ask(places.control_socket, {}, ASK_TIMEOUT_S)
    if answer is None:
        return None
    return {os.path.realpath(run["log_folder"]): str(run["state"]) for run in answer.get("runs", [])}


def _writer_lives(folder: str, spool: Path) -> bool:
    with suppress(BrokenFileError):
        streams = (read_json(f"{folder}/{RUN_FILE}") or {}).get("streams")
        if isinstance(streams, list):
            names = [name for name in streams if isinstance(name, str) and os.sep not in name]
            return any(writer_alive(spool / name) for name in names if (spool / name).is_dir())
    return False


def log_folder(stream: Path) -> str | None:
    """Resolved log folder of a stream's run; None if the stream cannot be read."""
    opening = stream_opening(stream)
    return None if opening is None else os.path.realpath(opening.log_folder)
