"""All machines at a glance: each leaves a small status file in `.rla-fleet/` of the master's root.

Written every `EVERY_S` while the machine has live runs or something to send, and whenever it says
something new. `read` shows them on any machine that may log in, and on the master itself by the
`folder` protocol. What others wrote is taken as text only.
"""

from __future__ import annotations

import json
import re
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from rla_agent.replicate.backend.target import MissingError, Session, SmallFile
from rla_client.contract.textformat import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER: Final = b".rla-fleet"
EVERY_S: Final = 30.0
MAX_BYTES: Final = 256 << 10
MAX_RUNS: Final = 200
_HOST: Final = re.compile(r"[^A-Za-z0-9._-]")


def version() -> str:
    """This release."""
    try:
        return metadata.version("rla-agent")
    except metadata.PackageNotFoundError:
        return "unknown"


def compose(host: str, version: str, runs: Iterable[dict[str, Any]], backlog: dict[str, int]) -> bytes:
    """A machine's status file."""
    status = {
        "format": 1,
        "host": host,
        "version": version,
        "backlog": backlog,
        "runs": list(runs)[:MAX_RUNS],
    }
    return json.dumps(status).encode()


def leave(session: Session, host: str, content: bytes, mode: int = 0o644) -> None:
    """Put this machine's file on the master, with permission bits: it names runs."""
    name = _HOST.sub("_", host)[:100].encode() or b"unnamed"
    path = FOLDER + b"/" + name + b".json"
    session.make_folders([FOLDER])
    now = int(time.time())
    temp = FOLDER + b"/.rla-tmp-" + name
    session.put_own(SmallFile(path, temp, content, now, None, lambda: True, mode=mode))


def read(session: Session) -> list[dict[str, Any]]:
    """The status files on the master; what is not a status is left out. `age_s` is by their times."""
    found = []
    try:
        names = session.listing(FOLDER)
    except MissingError:
        return []
    for name, state in sorted(names):
        if not name.endswith(b".json") or state.kind != "file" or state.size > MAX_BYTES:
            continue
        try:
            status = json.loads(session.read(FOLDER + b"/" + name, 0, state.size))
        except (ValueError, RecursionError):
            continue
        if isinstance(status, dict) and isinstance(status.get("runs"), list):
            found.append({**status, "age_s": max(0.0, time.time() - state.mtime_s)})
    return found


def as_text(machines: list[dict[str, Any]]) -> str:
    """For people."""
    lines = []
    for machine in machines:
        backlog = machine.get("backlog")
        files = backlog.get("files", 0) if isinstance(backlog, dict) else 0
        host, version = printable(str(machine.get("host"))), printable(str(machine.get("version")))
        lines.append(f"{host}  seen {machine['age_s']:.0f} s ago  version {version}  {files} file(s) waiting")
        for run in machine["runs"]:
            if isinstance(run, dict):
                step = run.get("time_step")
                shown = f"time-step {step:g}" if isinstance(step, int | float) else "no row yet"
                words = (str(run.get("state", "")), shown, str(run.get("item", "")))
                lines.append("  " + "  ".join(printable(word) for word in words))
    return "\n".join(lines) if lines else "no machine has reported yet"
