"""Ends of the runs that a wrapped command opened.

They are recognized by RLA_LAUNCH, which the command inherits and the opening frame of each run has.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace

from rla_agent.command.wrapped_command.agent_keeper import RUN_FILE_WAIT_S, SETTLE_S, AgentKeeper
from rla_agent.command.wrapped_command.command_launch import CommandLaunch
from rla_agent.command.wrapped_command.log_writer import LogWriter
from rla_agent.model.run_record import RunRecord
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.service.control_client import ask_status
from rla_agent.service.flush_client import wait_durable
from rla_agent.store.agent_db import AgentDatabase, CommitChanges
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.spool.losses import lost_lines
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import writer_alive

ASK_TIMEOUT_S = 1.0  # signals wait so long for an agent that hangs


def place_console(places: Places, launch: str, keeper: LogWriter) -> None:
    """Pass the log folders of the runs to the keeper of the command's output."""
    with suppress(RlaError, OSError):
        for run in ask_status(places, ASK_TIMEOUT_S)["runs"]:
            if run.get("launch") == launch:
                keeper.place(run["root"], run["log_folder"])


def _streams_of(places: Places, launch: str) -> list[str]:
    """Streams in the spool that this command's runs write or wrote."""
    found: list[str] = []
    with suppress(OSError):
        for name in stream_names(places.spool):
            with suppress(RlaError, OSError):
                if read_opening(places.spool / name)[0].launch == launch:
                    found.append(name)
    return found


def await_end(
    places: Places, keeping: AgentKeeper, launch: CommandLaunch, keeper: LogWriter, deadline: float
) -> None:
    """Wait for the data and the ends of the runs, then record the command's exit."""
    left: set[str] = set(_streams_of(places, launch.name))
    while keeping.serves(deadline) and left:
        left = wait_durable(places, left, deadline)
        if agent_alive(places):
            break  # else it was another job's agent, which ended: the next one continues
    while not left and time.monotonic() < deadline:
        ended = [name for name in _streams_of(places, launch.name) if not writer_alive(places.spool / name)]
        if not ended or not keeping.serves(deadline):
            break
        time.sleep(SETTLE_S)
    try:
        note_ending(places, launch, keeper, max(0.0, min(deadline - time.monotonic(), RUN_FILE_WAIT_S)))
    except (RlaError, OSError, sqlite3.Error) as error:
        sys.stderr.write(f"rla-agent run: cannot record how the command ended: {error}\n")
    if not keeper.finish(time.monotonic() + RUN_FILE_WAIT_S + SETTLE_S * 20):
        sys.stderr.write(
            "rla-agent run: a data root does not answer; console.txt and run.json will be written "
            "when it does\n"
        )
    if left:
        sys.stderr.write(
            f"rla-agent run: {len(left)} streams are not durable within the limit; they wait in "
            f"{places.spool}; later: rla-agent drain\n"
        )


def note_ending(places: Places, launch: CommandLaunch, keeper: LogWriter, wait_s: float) -> None:
    """Write exit code or signal into agent.db and run.json of the launch's runs that have ended.

    `keeper` writes the files, and waits `wait_s` for the agent's last run.json of each run.
    """
    if not places.database.exists():
        return
    with closing(AgentDatabase(places.database, beside=True)) as database:
        plains = [run for run in database.runs() if run.get("launch") == launch.name]
        last = max((run["opened"] for run in plains), default=0.0)
        for plain in plains:
            before = RunRecord.from_plain(plain)
            keeper.place(before.root, before.log_folder)
            record = ended_record(before, launch, last=before.opened >= last)
            if record is not None:
                now = time.time()
                content = {**plain, **record.to_plain(now)}
                database.commit(CommitChanges(runs=[(record.run, now, record.live, content)]))
                keeper.write_run_file(record.root, record.log_folder, content, wait_s)
                for line in lost_lines(content):
                    sys.stderr.write(f"rla-agent run: {record.table}/{record.index}: {line}\n")


def ended_record(record: RunRecord, launch: CommandLaunch, *, last: bool = True) -> RunRecord | None:
    """The record with the command's end in it; None while the run continues: see `process_ended`."""
    if record.live:
        return None
    ending, told = launch.ending, launch.told
    after = replace(record, exit_code=ending.code, signal=ending.signal)
    return after.process_ended(
        ending.words,
        own=record.pid == launch.pid,
        last=last,
        told=told.number.name if told is not None and told.ended(record) else "",
    )
