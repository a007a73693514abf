"""`rla-agent forget`: give up rows whose data root is gone for good.

A stream whose data root is not there waits in the spool, for ever if need be: the root may only be
unmounted. This is how a user says that it will not come back. Without `--yes` nothing is changed.
Streams that a process still writes, and those whose root is there, are never touched. A serving
agent notices that a stream's folder is gone and drops what it holds of it (`was_forgotten`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rla_agent.model.run_states import RunEvent, RunRecord
from rla_agent.outputs.data_roots import same_root
from rla_agent.pipeline.spool import read_opening, remove_stream
from rla_agent.service.drain import DRAIN_HOLDER
from rla_agent.store.lock import AgentLock
from rla_agent.store.state import AgentDatabase, Changes
from rla_client.contract.agent_process import agent_alive
from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.opening import Opening
from rla_client.contract.paths import Places, find_places
from rla_client.contract.segments import stream_names, writer_alive

EXIT_FAILED, EXIT_USAGE = 1, 2
GIVEN_UP = "its data root is gone, and its waiting rows were given up: rla-agent forget"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A stream that waits for a data root.

    Attributes:
        folder: in the spool.
        opening: its opening frame.
        size: bytes in the spool, payloads included.
        written: Unix seconds of the last write.
    """

    folder: Path
    opening: Opening
    size: int
    written: float


def waiting_streams(spool: Path) -> list[Waiting]:
    """Streams of ended processes whose data root is not there, or another one."""
    found: list[Waiting] = []
    for name in stream_names(spool):
        folder = spool / name
        with suppress(RlaError, OSError):
            opening, _ = read_opening(folder)
            if writer_alive(folder) is False and not same_root(opening):
                files = [path.stat() for path in folder.rglob("*") if path.is_file()]
                written = max((one.st_mtime for one in files), default=0.0)
                found.append(Waiting(folder, opening, sum(one.st_size for one in files), written))
    return found


def chosen(streams: Sequence[Waiting], roots: Collection[str], *, every: bool) -> list[Waiting]:
    """Those of some data roots, or all.

    Raises:
        ArgumentError: nothing waits for one of the roots.
    """
    if every:
        return list(streams)
    known = {stream.opening.root for stream in streams}
    wanted = {os.path.abspath(root) for root in roots}
    for root in sorted(wanted - known):
        message = f"no ended stream waits for the data root {root}; those that do: rla-agent forget"
        raise ArgumentError(message)
    return [stream for stream in streams if stream.opening.root in wanted]


def give_up(places: Places, streams: Sequence[Waiting]) -> None:
    """Delete streams and say so of their runs.

    Raises:
        AgentRunningError: a drain is under way.
        OSError: a stream could not be deleted.
    """
    if agent_alive(places):
        for stream in streams:
            remove_stream(stream.folder)
        return
    lock = AgentLock(places, DRAIN_HOLDER)
    try:
        with closing(AgentDatabase(places.database)) as database:
            for stream in streams:
                remove_stream(stream.folder)
                changes = Changes(forgotten=[stream.folder.name])
                plain = database.run(stream.opening.run)
                if plain is not None:
                    now = time.time()
                    record = RunRecord.from_plain(plain).after(RunEvent.ITEM_GONE, now, GIVEN_UP)
                    changes.runs.append((record.run, now, record.live, {**plain, **record.to_plain(now)}))
                database.commit(changes)
    finally:
        lock.release()


def listing(streams: Sequence[Waiting]) -> list[str]:
    """One line for each data root, then one for each of its streams."""
    lines: list[str] = []
    for root in sorted({stream.opening.root for stream in streams}):
        some = [stream for stream in streams if stream.opening.root == root]
        size = sum(stream.size for stream in some)
        lines.append(f"{root}: {len(some)} streams, {size >> 10} KiB")
        for stream in some:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(stream.written))
            lines.append(f"  {stream.folder.name}  last written {when}  {stream.opening.title}")
    return lines


def forget(
    roots: Annotated[
        list[str] | None, typer.Argument(metavar="[DATA_ROOT]...", help="Data roots that no longer exist.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All data roots that are missing now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only list.")] = False,
) -> None:
    """Delete rows that wait for a data root which will not come back. Lists them first."""
    places = find_places()
    try:
        streams = waiting_streams(places.spool) if places.spool.is_dir() else []
        if not streams:
            typer.echo("no ended stream waits for a data root")
            return
        if yes and not roots and not every:
            typer.echo("error: name the data roots to give up, or --all", err=True)
            raise typer.Exit(EXIT_USAGE)
        some = chosen(streams, roots or (), every=every or not roots)
        typer.echo("\n".join(listing(some)))
        if not yes:
            typer.echo("nothing was changed; to delete these rows for good: rla-agent forget DATA_ROOT --yes")
            return
        give_up(places, some)
    except (RlaError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    typer.echo(f"{len(some)} streams given up")
