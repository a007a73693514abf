"""Liveness of runs on this machine.

The agent writes run.json at each change of state and every 60 s. A file that says `running` and was not
written for `LIVE_S` seconds is shown as `unknown`, unless this machine knows better. Two places are asked:
the agent of this user, on its control socket, and, where none answers, the locks of the run's streams in the
spool, which a living writer holds. Runs of other machines are in neither.

While no agent serves, nobody keeps run.json true. Then a stream of the run in this machine's spool tells: a
run that has no run.json is `waiting`, one that is said to run, with no living writer, is `silent`. Nothing is
written; the next agent finds out what happened. On machines without an agent there is neither socket nor
spool, so nobody else pays for it.
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

ASK_TIMEOUT_S = 0.5  # an agent answers within milliseconds; a busy one is not waited for
TAKE_IN_S = 3.0  # a run that has just ended is in its files after one
MAX_STREAMS = 1000  # the newest so many are looked at, 0.1 s; older ones wait for an agent as well, unnamed


def with_live_states(data_root: Path, records: Sequence[Record], now: float) -> list[Record]:
    """The same records, those that this machine knows better with the state that it knows of."""
    silent, open_ones = [], []
    for record in records:
        if record.state in LIVE_STATES:
            open_ones.append(record)
            if record.shown_state(now) == UNKNOWN:  # not an imported one
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
    """(table, index) → `waiting` or `silent`, where no agent serves and this machine's spool tells."""
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
    """Those (table, index) that a living process writes while no agent serves, run.json or not."""
    streams = _unserved_streams(data_root)
    return {run for run in runs if any(map(writer_alive, streams.get("/".join(run), ())))}


def waiting_in_spool(data_root: Path, runs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those (table, index) of which this machine's spool may hold rows, after TAKE_IN_S for an agent."""
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
    """`<table>/<index>` → its streams in this machine's spool, of the newest `most` (0: of all)."""
    base = os.path.realpath(data_root / LOG) + os.sep
    found: dict[str, list[Path]] = {}
    for name in stream_names(places.spool)[-most:]:
        path = log_folder(places.spool / name)
        if path is not None and path.startswith(base):
            found.setdefault(path.removeprefix(base), []).append(places.spool / name)
    return found


def known_states(data_root: Path, silent: Sequence[Record]) -> dict[tuple[str, str], str]:
    """(table, index) → state, for those of some runs that the agent or the spool of this machine knows."""
    places = find_places()
    told = _ask_agent(places) if places.lock.exists() else None
    found = {}
    for record in silent:
        folder = os.path.realpath(f"{data_root}/{LOG}/{record.table}/{record.index}")
        if told is not None and folder in told:
            found[record.table, record.index] = told[folder]
        elif told is None and places.spool.is_dir() and _writer_lives(folder, places.spool):
            found[record.table, record.index] = "running"
    return {run: state for run, state in found.items() if state in LIVE_STATES}


def _ask_agent(places: Places) -> dict[str, str] | None:
    """Log folder → state of the runs that the agent knows; None when none answers."""
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
    """Log folder of the run of a stream, without links; None where that cannot be read."""
    opening = stream_opening(stream)
    return None if opening is None else os.path.realpath(opening.log_folder)
