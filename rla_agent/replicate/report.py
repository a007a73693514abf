"""What replication is doing, for people and alerts: here (`status`) and on all machines (`fleet`).

*Here* is read from the ledger, whether the worker runs or not: it notes a JSON snapshot (`meta.live`) every
few seconds; counts come from the ledger's indexes. Nothing secret is in either.

*All machines*: each leaves a small status file in `.rla-fleet/` of the master's root, every `FLEET_EVERY_S`
while it has live runs or something to send, and whenever it says something new. Its name is the host's and
`fleet_id`: hosts of one name, agents of two users and two data roots must not overwrite each other's.
`machines` reads them on any machine that may log in, and on the master itself by the `folder` protocol. What
others wrote is taken as text only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rla_agent.replicate import settings
from rla_agent.replicate.backend.target import Session, SmallFile, listing_or_empty, read_json
from rla_agent.replicate.ledger import STEPS, ledger_path
from rla_agent.store.sqlite import NewerFormatError, connect_readonly
from rla_client.config.schema import BUCKETS
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.text.terminal_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

LIVE_NAME: Final = "live"
STALE_S: Final = 30.0  # an older snapshot is a dead worker's
MAX_PARKED: Final = 50  # shown; the count tells of the rest
FLEET_FOLDER: Final = b".rla-fleet"
FLEET_ID_NAME: Final = "fleet-id"
FLEET_EVERY_S: Final = 30.0
FLEET_KEPT_S: Final = 30 * 86400.0  # of a host's own files: each new state folder begins another
MAX_STATUS_BYTES: Final = 256 << 10
MAX_RUNS: Final = 200
_LOCKED: Final = "database is locked"  # by somebody who looks into it, for a moment
_HOST: Final = re.compile(r"[^A-Za-z0-9._-]")


def replication_status(state: Path) -> dict[str, Any]:
    """A snapshot as plain data.

    Returns:
        `running` (worker alive), `paused`, `targets` (per database: name, data root, health, reason,
        fix, problem, backlog {kind: {files, bytes}}, rate_bytes_s, eta_s, last_success, sent_files,
        written_bytes, kept, unconfirmed, mended), `lost` (no more there nor here; 50),
        `parked` (path, reason, fix; at most 50, and 50 folders of each database),
        `parked_files` and `parked_folders`; `error`: what of it cannot be told, and why.
    """
    status: dict[str, Any] = {
        "running": False,
        "paused": settings.paused(state),
        "targets": [],
        "parked": [],
        "parked_files": 0,
        "parked_folders": 0,
        "kept": [],
        "lost": [],
        "problems": {},
        "databases": [entry.data_root for entry in settings.listed(state)],
    }
    path = ledger_path(state)
    problem = settings.registry_problem(state)
    if problem:
        status["error"] = problem
    try:
        path.stat()
        with closing(connect_readonly(path, STEPS)) as db:
            _fill(db, status)
    except (FileNotFoundError, NotADirectoryError):
        return status  # nothing was ever replicated
    except NewerFormatError as error:
        status["error"] = f"replication waits: {error}"
    except OSError as error:
        status["error"] = f"the ledger {path} cannot be read: {error.strerror}"
    except (sqlite3.Error, ValueError, TypeError, AttributeError, LookupError) as error:
        status["error"] = f"the ledger {path} cannot be read: {error}"
    return status


def _fill(db: sqlite3.Connection, status: dict[str, Any]) -> None:
    row = db.execute("SELECT value FROM meta WHERE name = ?", (LIVE_NAME,)).fetchone()
    live = json.loads(row[0]) if row else {}
    status["running"] = time.time() - float(live.get("at", 0)) < STALE_S and _alive(int(live.get("pid", 0)))
    status["problems"] = live.get("problems", {}) if status["running"] else {}
    by_number = {int(entry["number"]): entry for entry in live.get("databases", [])}
    for number, root, target in db.execute("SELECT id, root, target FROM databases").fetchall():
        entry = by_number.get(number)
        if entry is None and status["running"]:
            continue
        backlog = _backlog(db, number)
        arrived = db.execute("SELECT sum(acked) FROM temps WHERE db = ?", (number,)).fetchone()[0] or 0
        pending = max(0, sum(kind["bytes"] for kind in backlog.values()) - arrived)
        rate = float(entry.get("sending_bytes_s", 0.0)) if entry and status["running"] else 0.0
        status["targets"].append(
            {
                "data_root": os.fsdecode(root),
                "target": target,
                "backlog": backlog,
                "unconfirmed": _unconfirmed(db, number),
                **(entry or {}),
                "eta_s": pending / rate if rate > 0 and pending else None,
            }
        )
    status["parked_files"] = db.execute("SELECT count(*) FROM files WHERE state = 2").fetchone()[0]
    rows = db.execute(
        "SELECT d.path, f.name, f.reason, f.mend FROM files f JOIN folders d ON d.id = f.folder "
        "WHERE f.state = 2 LIMIT ?",
        (MAX_PARKED,),
    )
    status["parked"] = [
        {"path": os.fsdecode(folder + b"/" + name), "reason": reason or "", "fix": fix or ""}
        for folder, name, reason, fix in rows
    ]
    if status["running"]:
        for entry in live.get("databases", []):
            status["parked"] += entry.get("unread", [])
            status["parked_folders"] += entry.get("unread_folders", 0)
    status["kept"] = [
        name[5:] for (name,) in db.execute("SELECT name FROM meta WHERE name LIKE 'kept:%' LIMIT 50")
    ]
    status["lost"] = [
        name[5:] for (name,) in db.execute("SELECT name FROM meta WHERE name LIKE 'lost:%' LIMIT 50")
    ]


def _unconfirmed(db: sqlite3.Connection, number: int) -> int:
    """Files that the master has acknowledged and not confirmed yet."""
    if db.execute("PRAGMA user_version").fetchone()[0] < len(STEPS):
        return 0  # the worker of an earlier release has it
    query = "SELECT count(*) FROM files WHERE db = ? AND check_at IS NOT NULL"
    return int(db.execute(query, (number,)).fetchone()[0])


def _backlog(db: sqlite3.Connection, number: int) -> dict[str, dict[str, int]]:
    rows = db.execute(
        "SELECT d.kind, count(*), sum(f.pending) FROM files f JOIN folders d ON d.id = f.folder "
        "WHERE f.db = ? AND f.state = 1 GROUP BY d.kind",
        (number,),
    )
    return {kind: {"files": files, "bytes": int(size or 0)} for kind, files, size in rows}


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def attention(status: dict[str, Any]) -> list[dict[str, str]]:
    """What needs somebody, as `what` and `fix`, for the list in `rla-agent status`."""
    problems = []
    for target in status["targets"]:
        why = target.get("reason") or target.get("problem") or ""
        if why:
            blocked = target.get("health") == "blocked"
            name = shown_target(target["target"])
            what = f"replication to {name} {'has stopped' if blocked else 'is held up'}: {why}"
            fix = target.get("fix") or ("" if blocked else "it is retried automatically")
            again = again_text(target) if blocked else ""
            problems.append({"what": what, "fix": "; ".join(filter(None, (fix, again)))})
    reasons: dict[tuple[str, str], list[str]] = {}
    for parked in status["parked"]:
        reasons.setdefault((parked["reason"], parked["fix"]), []).append(parked["path"])
    for (reason, fix), paths in reasons.items():
        what = f"not replicated: {printable(paths[0])}" + (f" and {len(paths) - 1} more" if paths[1:] else "")
        problems.append({"what": f"{what}: {reason}", "fix": fix or "rla-agent replicate retry"})
    problems += [
        {"what": f"not replicated: {text}", "fix": "fix that file; it is read again automatically"}
        for text in status.get("problems", {}).values()
    ]
    if lost := status.get("lost"):
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        what = f"the master has lost {printable(lost[0])}{more}, and it is no more here"
        problems.append(
            {"what": what, "fix": "put back a copy if you have one; then: rla-agent replicate retry"}
        )
    if "error" in status:
        problems.append({"what": status["error"], "fix": "see: rla-agent logs"})
    return problems


def stopped(status: dict[str, Any]) -> dict[str, str]:
    """What goes no further until somebody acts, for alerts: target, `files` or `status`, to what and why."""
    found = {}
    for target in status["targets"]:
        if target.get("health") == "blocked":
            lines = [target.get("reason") or "has stopped", target.get("fix") or ""]
            found[str(target["target"])] = "\n".join(filter(None, lines))
    if status["parked_files"]:
        first = status["parked"][0]
        lines = [
            f"{status['parked_files']} files do not go to the master, the first: {first['path']}",
            first["reason"],
            first["fix"],
            "see: rla-agent replicate status",
        ]
        found["files"] = "\n".join(filter(None, lines))
    if "error" in status and _LOCKED not in status["error"]:
        found["status"] = f"{status['error']}\nsee: rla-agent logs"
    return found


def shown_target(name: str) -> str:
    """A target's name for people: one slash before an absolute path, `~/` before another."""
    scheme, colon, rest = name.partition("://")
    if not colon or scheme in BUCKETS:
        return name
    host, _, root = rest.partition("/")
    return f"{scheme}://{host}{root if root.startswith('/') else '/~/' + root}"


def again_text(target: dict[str, Any]) -> str:
    """When a target that has stopped is looked at again, and how to have it done at once."""
    return f"tried again in {_duration(target.get('retry_in_s', 0.0))}, or at once: rla-agent replicate retry"


def _duration(seconds: float) -> str:
    """`45 s`, `12 min`, `5 h`."""
    for most, unit, unit_s in ((120, "s", 1), (7200, "min", 60)):
        if seconds < most:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds / 3600:.0f} h"


def headline(status: dict[str, Any]) -> list[str]:
    """A line for each target, for the head of `rla-agent status`; none where nothing is replicated."""
    lines = []
    for target in status["targets"]:
        files = sum(kind["files"] for kind in target["backlog"].values())
        size = sum(kind["bytes"] for kind in target["backlog"].values())
        word = "paused" if status["paused"] else target.get("health", "unknown")
        if not status["running"]:
            word = "not running"
        last = target.get("last_success")
        when = f", last success {time.strftime('%H:%M:%S', time.localtime(last))}" if last else ""
        eta = f", done in about {_duration(target['eta_s'])}" if target.get("eta_s") else ""
        lines.append(
            f"{shown_target(target['target'])}: {word}; {files} file(s), {size_text(size)} waiting{eta}{when}"
        )
    return lines


def as_text(status: dict[str, Any]) -> str:
    """The snapshot for people."""
    word = "paused" if status["paused"] else "on" if status["running"] else "not running"
    if "error" in status:
        lines = [
            f"replication: {word if status['running'] else 'unknown'}",
            f"  {printable(status['error'])}",
        ]
        lines.append("  → see: rla-agent logs")
        shown = {target["data_root"] for target in status["targets"]}
        lines += [
            f"  {printable(root)}: what is sent and what waits is not known"
            for root in dict.fromkeys(status["databases"])
            if root not in shown
        ]
    else:
        lines = [f"replication: {word}"]
    if not status["targets"] and "error" not in status:
        lines.append(
            "  no database is replicated (SEND_LOG_FILE and REMOTE_SETTING in rla_config.yaml switch it on)"
        )
    for target in status["targets"]:
        lines += _target_lines(target)
    if status["parked_files"]:
        lines.append(f"parked: {status['parked_files']} file(s)")
    if status["parked_folders"]:
        lines.append(f"parked: {status['parked_folders']} folder(s), checked again every minute")
    for parked in status["parked"]:
        fix = [f"    → {parked['fix']}"] if parked["fix"] else []
        lines.extend([f"  {printable(parked['path'])}", f"    {parked['reason']}", *fix])
    lines += [f"not replicated: {text}" for text in status.get("problems", {}).values()]
    lines += [f"kept beside ours on the master: {printable(name)}" for name in status.get("kept", [])]
    lines += [f"lost by the master, and no more here: {printable(name)}" for name in status.get("lost", [])]
    return "\n".join(lines)


def _target_lines(target: dict[str, Any]) -> list[str]:
    name = shown_target(target["target"])
    lines = [f"  {printable(target['data_root'])} → {name}: {target.get('health', 'unknown')}"]
    lines += [
        f"    {'→ ' if name == 'fix' else ''}{target[name]}"
        for name in ("reason", "fix", "problem")
        if target.get(name)
    ]
    if target.get("health") == "blocked":
        lines.append(f"    → {again_text(target)}")
    lines += [
        f"    waiting {kind}: {count['files']} file(s), {size_text(count['bytes'])}"
        for kind, count in sorted(target["backlog"].items())
    ]
    if target.get("unconfirmed"):
        lines.append(
            f"    sent, not yet confirmed to be on the master's disk: {target['unconfirmed']} file(s)"
        )
    if target.get("mended"):
        lines.append(f"    lost or damaged there, and sent again: {target['mended']} file(s)")
    if target.get("last_success"):
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(target["last_success"]))
        lines.append(f"    last success {when}; {size_text(int(target.get('rate_bytes_s', 0)))}/s")
    if target.get("eta_s"):
        lines.append(f"    done in about {_duration(target['eta_s'])}")
    return lines


def size_text(count: int) -> str:
    """`3.2 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:  # noqa: PLR2004
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _version() -> str:
    """This release."""
    from importlib import metadata  # noqa: PLC0415 - takes 20 ms, which `rla-agent status` need not wait for

    try:
        return metadata.version("rla-agent")
    except metadata.PackageNotFoundError:
        return "unknown"


def fleet_id(private: Path, root: bytes) -> str:
    """What tells this agent's status file of a data root from others of one host name: 8 digits.

    Args:
        private: `<state>/replicate`; what is drawn at first use is kept there.
        root: the data root.
    """
    path = private / FLEET_ID_NAME
    try:
        if not path.exists():
            write_atomic(path, secrets.token_hex(16).encode(), mode=0o600)
        drawn = path.read_bytes()
    except OSError:  # a full disk: files go all the same
        drawn = os.fsencode(private)
    return hashlib.sha256(drawn + b"\n" + root).hexdigest()[:8]


def machine_status(host: str, machine: str, runs: Iterable[dict[str, Any]], backlog: dict[str, int]) -> bytes:
    """A machine's status file; `machine`: its `fleet_id`."""
    status = {
        "format": 1,
        "host": host,
        "machine": machine,
        "version": _version(),
        "backlog": backlog,
        "runs": list(runs)[:MAX_RUNS],
    }
    return json.dumps(status).encode()


def leave_status(session: Session, host: str, machine: str, content: bytes, mode: int = 0o644) -> None:
    """Put this machine's file on the master, with permission bits: it names runs."""
    name = f"{_fleet_name(host)}-{machine}".encode()
    path = FLEET_FOLDER + b"/" + name + b".json"
    session.make_folders([FLEET_FOLDER])
    now = int(time.time())
    temp = FLEET_FOLDER + b"/.rla-tmp-" + name
    session.put_own(SmallFile(path, temp, content, now, None, lambda: True, mode=mode, durable=False))


def remove_old_status(session: Session, host: str) -> None:
    """Take away what this host left and renews no more; one still at work makes its file anew.

    That is the file of an earlier release, under the host's name alone, and those of state folders that went
    (a batch job's, a container's).
    """
    name = _fleet_name(host).encode()
    session.remove(FLEET_FOLDER + b"/" + name + b".json")
    own = re.compile(re.escape(name) + rb"-[0-9a-f]{8}\.json")
    for found, state in listing_or_empty(session, FLEET_FOLDER):
        if own.fullmatch(found) and state.kind == "file" and time.time() - state.mtime_s > FLEET_KEPT_S:
            session.remove(FLEET_FOLDER + b"/" + found)


def _fleet_name(host: str) -> str:
    return _HOST.sub("_", host)[:100] or "unnamed"


def machines(session: Session) -> list[dict[str, Any]]:
    """The status files on the master; what is not a status is left out. `age_s` is by their times."""
    found = []
    for name, state in sorted(listing_or_empty(session, FLEET_FOLDER)):
        if not name.endswith(b".json") or state.kind != "file" or state.size > MAX_STATUS_BYTES:
            continue
        status = read_json(session, FLEET_FOLDER + b"/" + name, state.size)
        if isinstance(status, dict) and isinstance(status.get("runs"), list):
            found.append({**status, "age_s": max(0.0, time.time() - state.mtime_s)})
    return found


def machines_text(machines: list[dict[str, Any]]) -> str:
    """For people."""
    lines = []
    hosts = Counter(str(machine.get("host")) for machine in machines)
    for machine in machines:
        backlog = machine.get("backlog")
        files = backlog.get("files", 0) if isinstance(backlog, dict) else 0
        host, version = printable(str(machine.get("host"))), printable(str(machine.get("version")))
        if hosts[str(machine.get("host"))] > 1 and "machine" in machine:
            host += f" ({printable(str(machine['machine']))[:8]})"
        lines.append(f"{host}  seen {machine['age_s']:.0f} s ago  version {version}  {files} file(s) waiting")
        for run in machine["runs"]:
            if isinstance(run, dict):
                step = run.get("time_step")
                shown = f"time-step {step:g}" if isinstance(step, int | float) else "no row yet"
                words = (str(run.get("state", "")), shown, str(run.get("item", "")))
                lines.append("  " + "  ".join(printable(word) for word in words))
    return "\n".join(lines) if lines else "no machine has reported yet"
