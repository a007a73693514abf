"""What the agent says of itself. Pure: snapshots in, plain data out.

The JSON is stable: fields are added, never renamed. `agent.pid`, `agent.state`, `spool.bytes`,
`volumes[]`, `runs[]` with `run_id state reason table index time_step rows rows_per_s lag_rows`,
`problems[]` with `what` and `mend`.
"""

from __future__ import annotations

import os
import time
from typing import Any

from rla_agent.runs import RunRecord
from rla_client import __version__
from rla_client.places import Places
from rla_client.spool import spool_bytes

STATUS_FORMAT = 1


def build_status(
    places: Places,
    started: float,
    volumes: list[dict[str, Any]],
    unreadable: dict[str, str],
    garbage: int,
    newer: int,
) -> dict[str, Any]:
    """Put together what `rla-agent status --json` prints."""
    now = time.time()
    runs: list[dict[str, Any]] = []
    problems: list[dict[str, str]] = []
    for volume in volumes:
        lag = {s["run"]: 0 for s in volume["streams"]}
        for stream in volume["streams"]:
            ahead = stream["position"][0] == stream["durable"][0]
            lag[stream["run"]] += stream["position"][1] - stream["durable"][1] if ahead else 0
            problems += _stream_problems(stream)
        records: dict[str, RunRecord] = volume.pop("runs")
        runs += [_run(record, lag.get(record.run, 0), now) for record in records.values()]
        problems += [{"what": text, "mend": _mend(text)} for text in volume["faults"].values()]
    problems += [
        {"what": f"{name}: {why}", "mend": "rla-agent drain --spool shows what can be saved"}
        for name, why in unreadable.items()
    ]
    if newer:
        problems.append(
            {
                "what": f"{newer} messages of a newer client; its rows wait in the spool",
                "mend": "update rla-agent and restart it",
            }
        )
    return {
        "format": STATUS_FORMAT,
        "agent": {
            "pid": os.getpid(),
            "version": __version__,
            "state": "serving",
            "started": started,
            "uptime_s": round(now - started, 1),
            "state_dir": str(places.state),
            "runtime_dir": str(places.runtime),
        },
        "spool": {"bytes": spool_bytes(places.spool), "folder": str(places.spool)},
        "messages": {"garbage": garbage, "newer": newer},
        "volumes": volumes,
        "runs": sorted(runs, key=lambda run: run["opened"]),
        "problems": problems,
    }


def _run(record: RunRecord, lag_bytes: int, now: float) -> dict[str, Any]:
    plain = record.to_plain(now)
    span = (record.last_row or now) - record.opened
    plain["rows_per_s"] = round(record.rows / span, 2) if span > 0 else 0.0
    plain["uncommitted_bytes"] = lag_bytes
    plain["silent_s"] = round(now - (record.last_row or record.opened), 1)
    return plain


def _stream_problems(stream: dict[str, Any]) -> list[dict[str, str]]:
    problems = [{"what": error, "mend": _mend(error)} for error in stream["errors"]]
    if stream["parked"]:
        problems.append({"what": f"stream {stream['stream']} waits: {stream['parked']}", "mend": "see there"})
    if stream["damaged_bytes"]:
        problems.append(
            {
                "what": f"{stream['damaged_bytes']} bytes of stream {stream['stream']} were damaged",
                "mend": "check the disk of the state folder",
            }
        )
    return problems


def _mend(text: str) -> str:
    if "No space" in text or "quota" in text or "full" in text:
        return "free space on that disk; rows are kept in the spool and written then"
    if "ermission" in text:
        return "give this user the right to write there"
    return "see rla-agent logs"
