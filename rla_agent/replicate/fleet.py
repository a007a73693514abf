"""Status files of all machines on their common master.

Each machine leaves a small file in `.rla-fleet/` of the master's root, every `FLEET_EVERY_S` while it has
live runs or something to send, and whenever its content changes. It is named after the host and `fleet_id`,
because hosts of one name, agents of two users and two data roots must not overwrite each other's. `machines`
reads them on any machine that may log in, and on the master itself by the `folder` protocol. Their content is
untrusted text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rla_agent.replicate.backend.session import TargetSession, listing_or_empty, read_json
from rla_agent.replicate.backend.small_file import SmallFile
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.text.terminal_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable


FLEET_FOLDER: Final = b".rla-fleet"
FLEET_ID_NAME: Final = "fleet-id"
FLEET_EVERY_S: Final = 30.0
FLEET_KEPT_S: Final = 30 * 86400.0  # of a host's own files: each new state folder adds one
MAX_STATUS_BYTES: Final = 256 << 10
MAX_RUNS: Final = 200
_HOST: Final = re.compile(r"[^A-Za-z0-9._-]")


def _version() -> str:
    """This release."""
    from importlib import metadata  # noqa: PLC0415 - takes 20 ms, which `rla-agent status` need not wait for

    try:
        return metadata.version("rla-agent")
    except metadata.PackageNotFoundError:
        return "unknown"


def fleet_id(private: Path, root: bytes) -> str:
    """Suffix of this agent's status file of a data root, unique among hosts of one name: 8 digits.

    Args:
        private: `<state>/replicate`, where the value drawn at first use is stored.
        root: the data root.
    """
    path = private / FLEET_ID_NAME
    try:
        if not path.exists():
            write_atomic(path, secrets.token_hex(16).encode(), mode=0o600)
        drawn = path.read_bytes()
    except OSError:  # a full disk: files are sent all the same
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


def leave_status(session: TargetSession, host: str, machine: str, content: bytes, mode: int = 0o644) -> None:
    """Put this machine's file on the master; its permission bits matter, for it names runs."""
    name = f"{_fleet_name(host)}-{machine}".encode()
    path = FLEET_FOLDER + b"/" + name + b".json"
    session.make_folders([FLEET_FOLDER])
    now = int(time.time())
    temp = FLEET_FOLDER + b"/.rla-tmp-" + name
    session.put_own(SmallFile(path, temp, content, now, None, lambda: True, mode=mode, durable=False))


def remove_old_status(session: TargetSession, host: str) -> None:
    """Delete status files of state folders of this host that are gone (a batch job's, a container's).

    An agent that still works writes its file again.
    """
    name = _fleet_name(host).encode()
    own = re.compile(re.escape(name) + rb"-[0-9a-f]{8}\.json")
    for entry, state in listing_or_empty(session, FLEET_FOLDER):
        if own.fullmatch(entry) and state.kind == "file" and time.time() - state.mtime_s > FLEET_KEPT_S:
            session.remove(FLEET_FOLDER + b"/" + entry)


def _fleet_name(host: str) -> str:
    return _HOST.sub("_", host)[:100] or "unnamed"


def machines(session: TargetSession) -> list[dict[str, Any]]:
    """The status files on the master; other files are skipped. `age_s` is by their times."""
    statuses = []
    for name, state in sorted(listing_or_empty(session, FLEET_FOLDER)):
        if not name.endswith(b".json") or state.kind != "file" or state.size > MAX_STATUS_BYTES:
            continue
        status = read_json(session, FLEET_FOLDER + b"/" + name, state.size)
        if isinstance(status, dict) and isinstance(status.get("runs"), list):
            statuses.append({**status, "age_s": max(0.0, time.time() - state.mtime_s)})
    return statuses


def machines_text(machines: list[dict[str, Any]]) -> str:
    """The status of machines as text for people."""
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
                progress = f"time-step {step:g}" if isinstance(step, int | float) else "no row yet"
                words = (str(run.get("state", "")), progress, str(run.get("item", "")))
                lines.append("  " + "  ".join(printable(word) for word in words))
    return "\n".join(lines) if lines else "no machine has reported yet"
