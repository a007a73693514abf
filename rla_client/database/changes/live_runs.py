"""Live runs, which no change may touch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rla_client.contract.errors import BrokenFileError, LiveRunError
from rla_client.contract.layout import LOG
from rla_client.contract.run_file import LIVE_STATES, RUN_FILE
from rla_client.database.json_files import read_json
from rla_client.database.records.liveness import known_states, waiting_in_spool, written_unserved
from rla_client.database.records.record_reader import read_record
from rla_client.database.tree.items import Item


def refuse_live(data_root: Path, items: Iterable[Item], now: float) -> None:
    """Refuse a change of runs that are being written, or that have rows in this machine's spool.

    Raises:
        LiveRunError: some are; the message lists them.
    """
    items = list(items)
    live = live_runs(data_root, items, now)
    if live:
        message = f"{len(live)} of these runs are being written; stop them first, or choose others:"
        raise LiveRunError(_with_names(message, live))
    waiting = waiting_in_spool(data_root, {(item.table, item.index) for item in items})
    if waiting:
        message = (
            f"{len(waiting)} of these runs have rows that are not written yet and would be lost; start the "
            "agent first (rla-agent start; rla-agent status says what holds it up), or choose others:"
        )
        raise LiveRunError(_with_names(message, waiting))


def _with_names(message: str, runs: Iterable[tuple[str, str]]) -> str:
    return "\n".join([message, *(f"  {table}/{index}" for table, index in sorted(runs))])


def live_runs(data_root: Path, items: Iterable[Item], now: float) -> set[tuple[str, str]]:
    """(table, index) of the runs that are being written, by run.json, or else by this machine's spool."""
    found = set()
    silent = []
    unrecorded = []
    for table, index in {(item.table, item.index) for item in items}:
        try:
            run = read_json(f"{data_root}/{LOG}/{table}/{index}/{RUN_FILE}")
        except BrokenFileError:
            continue
        if run is None:
            unrecorded.append((table, index))
            continue
        if run.get("state") not in LIVE_STATES:
            continue
        record = read_record(data_root, table, index, ())
        if record.is_live(now):
            found.add((table, index))
        else:
            silent.append(record)
    if unrecorded:
        found |= written_unserved(data_root, unrecorded)
    return found | known_states(data_root, silent).keys() if silent else found
