"""Runs that seem to be silent: what this machine knows of them beyond their run.json.

The agent writes run.json at each change of state and every 60 s. A file that says `running` and
is older than that is asked about in two places: the agent of this user, on its control socket,
and, where none answers, the locks of the run's streams in the spool, which a living writer
holds. Runs of other machines are in neither, and stay `unknown`.

Looked at only for such runs, so that nobody pays for it otherwise; on machines without an agent
there is neither socket nor spool, and nothing is imported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla_client.database.records import LIVE_STATES, RUN_FILE, UNKNOWN, Record, read_json
from rla_client.errors import BrokenFileError, RemoteProtocolError
from rla_client.layout import LOG

ASK_TIMEOUT_MS = 500  # an agent answers within milliseconds; a busy one is not waited for


def with_live_states(data_root: Path, records: Sequence[Record], now: float) -> list[Record]:
    """The same records, those that seem silent with the state that this machine knows of."""
    silent = [
        record
        for record in records
        if record.state in LIVE_STATES and record.shown_state(now) == UNKNOWN  # not an imported one
    ]
    if not silent:
        return list(records)
    known = known_states(data_root, silent)
    return [
        replace(record, state=known[record.table, record.index], updated=now)
        if (record.table, record.index) in known
        else record
        for record in records
    ]


def known_states(data_root: Path, silent: Sequence[Record]) -> dict[tuple[str, str], str]:
    """(table, index) → state, for those of some runs that the agent or the spool of this machine knows."""
    from rla_client.places import find_places

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


def _ask_agent(places: Any) -> dict[str, str] | None:  # noqa: ANN401 - Places, not imported for its type
    """Log folder → state of the runs that the agent knows; None when none answers."""
    import zmq

    from rla_client.autostart import agent_alive
    from rla_client.protocol import MessageKind, decode_message, encode_message

    if not agent_alive(places):
        return None
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"ipc://{places.control_socket}")
        socket.send(encode_message(MessageKind.STATUS, {}))
        if socket.poll(ASK_TIMEOUT_MS):
            with suppress(RemoteProtocolError):
                runs = decode_message(socket.recv())[1].get("runs", [])
                return {os.path.realpath(run["log_folder"]): str(run["state"]) for run in runs}
    finally:
        socket.close(linger=0)
        context.term()
    return None


def _writer_lives(folder: str, spool: Path) -> bool:
    from rla_client.spool import writer_alive

    with suppress(BrokenFileError):
        streams = (read_json(f"{folder}/{RUN_FILE}") or {}).get("streams")
        if isinstance(streams, list):
            names = [name for name in streams if isinstance(name, str) and os.sep not in name]
            return any(writer_alive(spool / name) for name in names if (spool / name).is_dir())
    return False
