"""Status report of the agent (`rla-agent status --json`). Pure.

Facts in, plain data out. The JSON is stable and described in docs/reference/status.md: fields are added,
never renamed or removed while `format` stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rla_agent.model.problem import OTHERWISE, WITHOUT_AGENT, WITHOUT_LIMITS, problem
from rla_agent.model.run_record import RunRecord
from rla_client.config.machine_config import machine_config_path
from rla_client.contract import __version__
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.losses import lost_lines
from rla_client.contract.spool.protocol import SEGMENT_MAX_BYTES

STATUS_FORMAT = 1
ENDED_SHOWN = 10  # runs that ended lately and are still listed
SLOW_COMMIT_S = 5.0  # beyond, a disk is worth a line under "needs attention"


@dataclass(frozen=True, slots=True)
class Facts:
    """Input of `build_status` beside the volumes.

    Attributes:
        pid: of the agent.
        places: its folders.
        started: Unix seconds.
        now: Unix seconds.
        state: serving or draining.
        service: user or system under systemd, else empty.
        spool_bytes: of all streams, blobs included.
        spool_max_bytes: the limit.
        settings: key of AGENT → its `value` in force, and its `source`.
        settings_faults: of the machine's file.
        lags: stream → bytes in the spool that are not durable in every output.
        rates: run → rows per second of late.
        ended: plain records of runs that ended, newest first.
        unreadable: stream → why it cannot be ingested.
        garbage: number of foreign messages.
        newer: messages of a later protocol version.
        limits: of the agent's process, which keep outputs from being written.
    """

    pid: int
    places: Places
    started: float
    now: float
    state: str = "serving"
    service: str = ""
    spool_bytes: int = 0
    spool_max_bytes: int = 0
    settings: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    settings_faults: tuple[str, ...] = ()
    lags: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    ended: tuple[dict[str, Any], ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    garbage: int = 0
    newer: int = 0
    limits: tuple[str, ...] = ()


def build_status(facts: Facts, volumes: list[dict[str, Any]]) -> dict[str, Any]:
    """Assemble the output of `rla-agent status --json`.

    Args:
        facts: see there.
        volumes: of `Volume.snapshot`; changed here.
    """
    runs: list[dict[str, Any]] = []
    problems: list[dict[str, str]] = []
    for volume in volumes:
        _volume(volume, facts)
        lag_bytes, lag_rows = _lags(volume["streams"])
        records: dict[str, RunRecord] = volume.pop("runs")
        for record in records.values():
            run = _run(record.to_plain(facts.now), facts, live=record.live)
            run["lag_bytes"], run["lag_rows"] = lag_bytes.get(record.run, 0), lag_rows.get(record.run, 0)
            runs.append(run)
        problems += _volume_problems(volume)
    problems += [one for run in runs if run["live"] for one in _losses(run)]
    shown = {run["run_id"] for run in runs}
    runs += [_run(plain, facts, live=False) for plain in facts.ended if plain["run_id"] not in shown]
    runs.sort(key=lambda run: (run["live"], run["opened"]))
    return {
        "format": STATUS_FORMAT,
        "agent": _agent(facts),
        "spool": {
            "folder": str(facts.places.spool),
            "bytes": facts.spool_bytes,
            "max_bytes": facts.spool_max_bytes,
            "lag_bytes": sum(facts.lags.values()),
        },
        "settings": dict(facts.settings),
        "commit_lag_s": max((volume["commit_lag_s"] for volume in volumes), default=0.0),
        "open_files": sum(volume["open_files"] for volume in volumes),
        "internal_errors": sum(volume["internal_errors"] for volume in volumes),
        "messages": {"garbage": facts.garbage, "newer": facts.newer},
        "volumes": volumes,
        "runs": runs,
        "alerts": {"rules": 0, "waiting": 0, "channels": [], "recent": []},
        "problems": problems + _own_problems(facts),
    }


def absent_status(
    places: Places, what: str, *, state: str, spool_bytes: int, waiting: int = 0
) -> dict[str, Any]:
    """The same shape when no agent answers; `waiting`: processes whose rows lie in the spool for that."""
    facts = Facts(pid=0, places=places, started=0.0, now=0.0, state=state, spool_bytes=spool_bytes)
    status = build_status(facts, [])
    status["agent"].update(pid=None, started=None, uptime_s=None)
    status["problems"] = [{"what": what, "fix": "rla-agent start --detach"}]
    if waiting:
        said = f"rows of {waiting} process(es) wait in {places.spool} until an agent runs"
        status["problems"].append({"what": said, "fix": WITHOUT_AGENT})
    return status


def _agent(facts: Facts) -> dict[str, Any]:
    return {
        "pid": facts.pid,
        "version": __version__,
        "state": facts.state,
        "service": facts.service,
        "started": facts.started,
        "uptime_s": round(facts.now - facts.started, 1),
        "state_dir": str(facts.places.state),
        "runtime_dir": str(facts.places.runtime),
    }


def _volume(volume: dict[str, Any], facts: Facts) -> None:
    works = volume["streams"] or volume["roots"]
    volume["commit_lag_s"] = max(volume["commit_s"], volume["last_turn_s"] if works else 0.0)
    for stream in volume["streams"]:
        stream["lag_bytes"] = facts.lags.get(stream["stream"], 0)


def _lags(streams: list[dict[str, Any]]) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes and (estimated from the stream's mean row) rows per run that are not durable yet."""
    in_bytes: dict[str, int] = {}
    in_rows: dict[str, int] = {}
    for stream in streams:
        number, offset = stream["position"]
        passed = (number - 1) * SEGMENT_MAX_BYTES + offset
        rows = round(stream["lag_bytes"] * stream["rows"] / passed) if passed > 0 else 0
        in_bytes[stream["run"]] = in_bytes.get(stream["run"], 0) + stream["lag_bytes"]
        in_rows[stream["run"]] = in_rows.get(stream["run"], 0) + rows
    return in_bytes, in_rows


def _run(plain: dict[str, Any], facts: Facts, *, live: bool) -> dict[str, Any]:
    last = plain["last_row"] or plain["opened"]
    return {
        **plain,
        "live": live,
        "rows_per_s": round(facts.rates.get(plain["run_id"], 0.0), 2) if live else 0.0,
        "silent_s": round(max(0.0, facts.now - last), 1),
        "lag_bytes": 0,
        "lag_rows": 0,
    }


def _volume_problems(volume: dict[str, Any]) -> list[dict[str, str]]:
    problems = [problem(text) for text in volume["faults"].values()]
    for stream in volume["streams"]:
        problems += [problem(error) for error in stream["errors"]]
        if stream["parked"]:
            problems.append(problem(f"stream {stream['stream']} waits: {stream['parked']}"))
        if stream["damaged_bytes"]:
            what = f"{stream['damaged_bytes']} bytes of stream {stream['stream']} were damaged"
            problems.append({"what": what, "fix": "check the disk of the state folder"})
    if volume["commit_lag_s"] > SLOW_COMMIT_S:
        roots = f", with {', '.join(volume['roots'])}" if volume["roots"] else ""
        what = f"{volume['name']} waits {volume['commit_lag_s']:.0f} s for its disk{roots}"
        problems.append({"what": what, "fix": "check that disk or its server; rows wait in the spool"})
    return problems


def _losses(run: dict[str, Any]) -> list[dict[str, str]]:
    """Losses of a live run: one line with the newest reason."""
    lines = lost_lines(run)
    if not lines:
        return []
    title = f"{run['table']}/{run['index']}" if run["table"] else run["root"]
    why = f"; {lines[-1]}" if len(lines) > 1 else ""
    known = problem(f"{title} {lines[0].replace('lost:', 'lost', 1)}{why}")
    if known["fix"] == OTHERWISE:
        known["fix"] = "see: rla show, or for more: rla-agent logs"
    return [known]


def _own_problems(facts: Facts) -> list[dict[str, str]]:
    problems = [problem(f"{name}: {why}") for name, why in facts.unreadable.items()]
    problems += [{"what": f"limits of the agent: {limit}", "fix": WITHOUT_LIMITS} for limit in facts.limits]
    for fault in facts.settings_faults:
        path = machine_config_path()
        what = f"{path}, {fault}: the file is ignored"
        problems.append({"what": what, "fix": f"rla-agent check-config {path}; then: rla-agent restart"})
    if facts.newer:
        problems.append(
            problem(f"{facts.newer} messages of a newer client version; its rows wait in the spool")
        )
    if facts.spool_max_bytes and facts.spool_bytes > 0.8 * facts.spool_max_bytes:
        what = f"the spool holds {facts.spool_bytes >> 20} MiB of {facts.spool_max_bytes >> 20} MiB"
        problems.append({"what": what, "fix": "see below what it waits for, or raise AGENT.spool_max_bytes"})
    return problems
