"""Reader of a record from a run's files.

Broken files raise no error: the record gets a problem that names the file (except environment.json, of
which a record has only a few values). The state comes from run.json, which runs of RLA lack.

The duration of a run (`run_duration_s`) is the time in which a process of it ran: up to its end if that is
known (`finished`, `failed`), else up to its last row, since a death may be noticed much later. For a
resumed run the time before counts, the pause does not. Without run.json (runs of RLA), or if run.json does
not record the resume, it is the time from the start to the last row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG, TIME_STEP, TIMESTAMP
from rla_client.contract.run_file import LIVE_STATES, RUN_FILE, run_duration_s, seconds
from rla_client.contract.run_index import NO_IP, RunIndex
from rla_client.contract.run_part import newest_part
from rla_client.database.curves.csv_tail import read_tail
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.curves.stream_tables import SHARED, roles_of, table_of, with_role
from rla_client.database.json_files import read_json
from rla_client.database.records.environment import read_told
from rla_client.database.records.likely_metric import likely_metric, numeric
from rla_client.database.records.record import MOMENTS, Record, to_json
from rla_client.database.records.told_fields import ENVIRONMENT_FILE, names_from
from rla_client.database.run_parts import PARTS, parts_told
from rla_client.database.tree.chains import chain_of, link_of
from rla_client.database.tree.run_names import tracked_texts
from rla_client.run.parameters.hyper_params import HyperParams, read_hyper_params

MAX_NAME_CHARS = 1000  # of a column or a parameter; names from frameworks have about 200
TORN_LINES = 100  # of a quoted text that may still be being written
MAX_TIME = 1e11  # Unix seconds: the year 5138
NOTE_FILE = "note.json"
_OF_RUN_FILE = names_from(RUN_FILE)
MAX_ROLES = 64  # of one run, whose last values a record has


def read_record(data_root: Path, table: str, index: str, kinds: tuple[str, ...]) -> Record:
    """Read the record of one run; see the module docstring about broken files."""
    folder = f"{data_root}/{LOG}/{table}/{index}"
    problems: list[str] = []
    main = _guarded(f"{folder}/{RUN_FILE}", problems)
    run, parts = main or newest_part(folder), parts_told(folder, main)
    note = _guarded(f"{folder}/{NOTE_FILE}", problems)
    surroundings = read_told(f"{folder}/{ENVIRONMENT_FILE}")
    hyper, broken = read_hyper_params(data_root, table, index)
    problems += broken
    hyper_json = to_json(hyper)
    if len(hyper_json) > MAX_NAME_CHARS:  # shorter JSON has no longer name
        flat = hyper.flat()
        found = _shown_names(flat, f"parameters of {table}/{index}", problems)
        if len(found) < len(flat):
            hyper = HyperParams(found)
            hyper_json = to_json(hyper)
    metrics: dict[str, Any] = {}
    try:
        ended = run.get("state") not in LIVE_STATES  # a live run is read often: check only its tail
        tail = read_tail(f"{folder}/{PROGRESS_FILE}", all_quotes=ended)
        metrics = _shown_names(tail.last, f"{folder}/{PROGRESS_FILE}", problems)
        if tail.quoted_lines and (ended or tail.quoted_lines > TORN_LINES):
            behind = f"the {tail.quoted_lines} lines behind it are one cell"
            problems.append(f"{folder}/{PROGRESS_FILE}: a quote is never closed: {behind}")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (DatabaseError, OSError) as error:
        problems.append(str(error))
    metrics |= _of_roles(folder, metrics, problems)
    likely = likely_metric(numeric(metrics))
    parsed = RunIndex.parse(index)
    opened = _moment(run.get("opened"))
    if opened is None:
        opened = start_seconds(parsed)
    own_s = run_duration_s({**run, "opened": opened}, seconds(metrics.get(TIMESTAMP)))
    time_step = seconds(metrics.get(TIME_STEP))
    host = run.get("host") or (parsed.ip if parsed and parsed.ip != NO_IP else "")
    tags = note.get("tags")
    link = link_of(run, table)
    if time_step is None:
        time_step = seconds(run.get("time_step"))
    if time_step is None and link is not None:
        time_step = link.time_step  # that of its checkpoint: the run had nothing left to do
    return Record(
        table=table,
        index=index,
        kinds=kinds,
        opened=opened,
        host=str(host),
        state=str(run["state"]) if isinstance(run.get("state"), str) else None,
        updated=_moment(run.get("updated")),
        time_step=time_step,
        duration_s=own_s if link is None else _chain_duration(data_root, table, index, own_s),
        hyper_json=hyper_json,
        metrics_json=to_json(metrics),
        tags=tuple(str(tag) for tag in tags) if isinstance(tags, list) else (),
        note=str(note.get("note") or ""),
        problems=tuple(problems),
        parent=link.index if link is not None else "",
        tracked_json=_unlike_split(index, hyper),
        told_json=to_json({**_told(run), **surroundings, **({PARTS: parts} if parts else {})}),
        likely=likely or "",
        likely_text=repr(to_float(metrics[likely])) if likely else "",
        display_name=str(note.get("display_name") or "")[:MAX_NAME_CHARS],
    )


def _of_roles(folder: str, own: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Last values in the tables of the run's roles, and their times if the main process has no rows."""
    found: dict[str, Any] = {}
    for role in roles_of(folder)[:MAX_ROLES]:
        path = table_of(f"{folder}/{PROGRESS_FILE}", role)
        try:
            last = _shown_names(read_tail(path).last, path, problems)
        except FileNotFoundError:
            continue
        except (DatabaseError, OSError) as error:
            problems.append(str(error))
            continue
        for name, value in last.items():
            if name not in SHARED:
                found.setdefault(with_role(name, role), value)
            elif name not in own and isinstance(value, int | float):
                found[name] = max(found.get(name, value), value)
    return found


def to_float(value: float) -> float:
    """A number as a float; infinite if it exceeds the range of floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _told(run: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: run[name] for name in _OF_RUN_FILE if isinstance(run.get(name), str | int | float)}
    parent = run.get("parent")
    if isinstance(parent, dict):
        found["parent"] = f"{parent.get('run')} at {parent.get('time_step')}"
    return {
        name: value
        for name, value in found.items()
        if value != "" and (name not in MOMENTS or _moment(value))
    }


def _shown_names(values: Mapping[str, Any], source: str, problems: list[str]) -> dict[str, Any]:
    """Values without those of extremely long names, which would fill every list and page."""
    found = {name: value for name, value in values.items() if len(name) <= MAX_NAME_CHARS}
    if long := [name for name in values if len(name) > MAX_NAME_CHARS]:
        names = f"{len(long)} name(s) of more than {MAX_NAME_CHARS} characters are left out"
        problems.append(f"{source}: {names}, the first {long[0][:40]!r}…")
    return found


def _guarded(path: str, problems: list[str]) -> dict[str, Any]:
    try:
        return read_json(path) or {}
    except (DatabaseError, OSError) as error:
        problems.append(str(error))
        return {}


def _moment(value: object) -> float | None:
    """Unix seconds within the calendar's range; None for other values."""
    found = seconds(value)
    return found if found is not None and 0 <= found < MAX_TIME else None


def start_seconds(parsed: RunIndex | None) -> float:
    """Start of a run by its index (local time); 0 if the index has no valid date."""
    if parsed is None:
        return 0.0
    try:
        return parsed.opened.timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def _chain_duration(data_root: Path, table: str, index: str, own: float | None) -> float:
    """Total duration of a run and those that it continues."""
    total = own or 0.0
    for link in chain_of(data_root, table, index)[:-1]:
        earlier = _guarded(f"{data_root}/{LOG}/{table}/{link.index}/{RUN_FILE}", [])
        total += run_duration_s(earlier) or 0.0
    return total


def _unlike_split(index: str, hyper: HyperParams) -> str:
    if index.count("&") < 2:  # noqa: PLR2004 - the first & starts the info
        return ""
    found = tracked_texts(index, hyper)
    return to_json(found) if found != tracked_texts(index) else ""
