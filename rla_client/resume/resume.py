"""Exact resume: a run continues where a checkpoint was taken, in its own files.

`cut_back` moves figures and checkpoints of later time-steps to `abandoned-N/`, and says in the
new stream's opening frame how much of the rows and events counts; the agent cuts them before it
takes the first new record in (rla_agent/pipeline/recovery.py). The clock, moving averages, random
generators and custom data come back from the state that `save_checkpoint` stored.
"""

from __future__ import annotations

import os
import re
import time
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.checkpoint.files import find_checkpoint, list_checkpoints
from rla_client.contract.checkpoints import FETCHED_MARK, drop_note, pruned_files, write_note
from rla_client.contract.errors import RlaError
from rla_client.contract.files import read_small
from rla_client.contract.layout import CHECKPOINT, LOG, OTHER_RESULTS, RESUME_FOLDER
from rla_client.contract.opening import RUN_FILE, Continuation, Earlier, ran_s
from rla_client.contract.parsing import parse_json
from rla_client.contract.paths import find_places
from rla_client.resume import find
from rla_client.resume.earlier_streams import (
    all_streams,
    await_ended,
    await_taken_in,
    newest_epoch,
    root_of,
    streams_of,
)
from rla_client.resume.find import find_item, read_run_file
from rla_client.run.current import warn
from rla_client.run.item import Item
from rla_client.run.state import read_resume_state

_FIGURE = re.compile(r"^(\d+)-")
_CHECKPOINT = re.compile(r"^.+[_-](\d+)\.pt$")


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a run continues.

    Attributes:
        item: the run.
        run: its identity in run.json.
        epoch: of the opening that continues: higher than all before.
        time_step: of the checkpoint; None when there is no checkpoint, and the run begins again.
        name: of the checkpoint's series.
        state: what `save_checkpoint` stored beside it.
        continues: for the opening frame.
    """

    item: Item
    run: str
    epoch: int
    time_step: int | None
    name: str
    state: dict[str, Any]
    continues: Continuation


def find_unfinished(root: str, table: str, run_id: str, *, any_state: bool = False) -> Item | None:
    """The newest run of a table with this `run_id` that did not finish; with `any_state` one that did, too.

    Left out are copies of runs that another machine began, and runs that a later one has gone on with in an
    item of its own. One whose run.json is damaged is passed over with a warning.
    """
    gone_on: set[str] = set()
    for index in find.newest_first(Path(root, LOG, table), run_id):
        item = Item(os.path.abspath(root), table, index, index.opened)
        content = read_run_file(item)
        if not content:
            file = os.path.join(item.folder(LOG), RUN_FILE)
            warn(f"{file} is damaged: if it is the run {run_id!r}, it is not continued")
        parent = content.get("parent")
        if isinstance(parent, dict) and parent.get("chain") is True:
            gone_on.add(str(parent.get("run")))
        if content.get("run_key") != run_id or (content.get("state") == "finished" and not any_state):
            continue
        if index.path not in gone_on and not os.path.exists(os.path.join(item.folder(LOG), FETCHED_MARK)):
            return item
    return None


def find_here(
    root: str,
    table: str,
    run_id: str,
    *,
    autostart: bool,
    any_state: bool = False,
    ends_s: float | None = None,
) -> tuple[Item | None, str]:
    """`find_unfinished`, once an agent has taken in a run of that name of which only the spool knows.

    `ends_s`: wait so long for a living process that writes the run, which may have finished then; where it
    is None, `prepare` says so.

    Returns:
        The run; and why one is left in the spool, empty where none is.

    Raises:
        StillWritingError: a living process writes it.
    """
    places, where = find_places(), (os.path.realpath(root), table, run_id)
    found = find_unfinished(root, table, run_id, any_state=any_state)
    if found is not None and ends_s is not None:
        streams = streams_of(places, found, read_run_file(found))
        if await_ended(streams, ends_s) and not await_taken_in(places, streams, autostart=autostart):
            found = find_unfinished(root, table, run_id, any_state=any_state)
    if found is not None:
        return found, ""
    waiting = [
        stream
        for stream in all_streams(places)
        if (told := stream.opening) and (root_of(told), told.table, told.run_key) == where
    ]
    await_ended(waiting, ends_s or 0.0)
    late = await_taken_in(places, waiting, autostart=autostart)
    if late or not waiting:
        return None, late
    return find_unfinished(root, table, run_id, any_state=any_state), ""


def prepare(
    root: str, table: str, which: str | Item, at: int | None, name: str, *, autostart: bool
) -> ResumePoint:
    """Wait for a run's earlier streams to be taken in, and find the checkpoint to continue from.

    Args:
        root: data root.
        table: task table name.
        which: record date, index, or the item.
        at: time-step of a checkpoint; None takes the newest.
        name: series of checkpoints.
        autostart: start an agent where one is needed and none runs.

    Raises:
        RunNotFoundError: there is no such run.
        StillWritingError: a living process writes it.
        NoCheckpointError: `at` names none.
        RlaError: it has no run.json, or no agent takes its records in.
    """
    item = which if isinstance(which, Item) else find_item(root, table, which)
    content = read_run_file(item)
    places = find_places()
    streams = streams_of(places, item, content)
    late = await_taken_in(places, streams, autostart=autostart)
    if late:
        message = f"the run {item.index.path} cannot be resumed: {late}"
        raise RlaError(message)
    content = read_run_file(item)
    if not content.get("run_id"):
        message = (
            f"{item.folder(LOG)} has no run.json, so it cannot be resumed in place; "
            "start a new run from it with ExperimentLoader and fork_log_files()"
        )
        raise RlaError(message)
    folder = Path(item.folder(CHECKPOINT))
    step = _newest_whole(folder, name) if at is None else find_checkpoint(folder, name, at)[0]
    marks = read_marks(folder, name, step)
    abandoned = next_abandoned(item)
    events = marks.get("outputs", {}).get("tensorboard", [0, 0, 0, None])
    continues = Continuation(
        rows=0 if step is None else marks.get("rows"),
        time_step=None if step is None else float(step),
        event_file=events[3],
        event_size=events[2],
        abandoned=abandoned,
        after=tuple(stream.folder.name for stream in streams),
        earlier=earlier_times(content),
    )
    state = {} if step is None else read_resume_state(folder, name, step) or {}
    epoch = max(time.time_ns(), newest_epoch(content, streams) + 1)  # also where the clock was set back
    return ResumePoint(item, content["run_id"], epoch, step, name, state, continues)


def _newest_whole(folder: Path, name: str) -> int | None:
    """The time-step of the newest checkpoint that is a whole file; None without one.

    A file without its end (the disk was full, a copy was cut off) is passed over, with a warning.

    Raises:
        OSError: one cannot be opened: that says nothing of what it holds.
    """
    for step, path in reversed(list_checkpoints(folder, name, pruned=True)):
        found = find_checkpoint(folder, name, step)[1]
        with open(found, "rb") as file:
            begins = file.read(2)
            if zipfile.is_zipfile(file) or begins[:1] == b"\x80":  # torch's format before 1.6: a bare pickle
                return step
        warn(f"{path} is damaged; the run continues from the newest checkpoint before it")
    return None


def earlier_times(content: dict[str, Any]) -> Earlier:
    """When the run of this run.json began and how long it ran, for an agent that does not know it."""
    began = content.get("opened")
    return Earlier(began, ran_s(content) or 0.0) if isinstance(began, int | float) else Earlier()


def read_marks(folder: Path, name: str, step: int | None) -> dict[str, Any]:
    """How long each output was when a checkpoint was taken; empty when nobody noted it."""
    with suppress(OSError, ValueError):
        content = parse_json(read_small(folder / RESUME_FOLDER / f"{name}_{step}.marks.json"))
        if isinstance(content, dict):
            return content
    return {}


def next_abandoned(item: Item) -> str:
    """A name that no earlier resume of this run has used."""
    number = 1
    kinds = (LOG, CHECKPOINT, OTHER_RESULTS)
    while any(os.path.exists(os.path.join(item.folder(kind), f"abandoned-{number}")) for kind in kinds):
        number += 1
    return f"abandoned-{number}"


def abandon_later(point: ResumePoint) -> None:
    """Move figures and checkpoints of later time-steps away; can be repeated."""
    limit = -1 if point.time_step is None else point.time_step
    target = point.continues.abandoned
    for kind, pattern in ((CHECKPOINT, _CHECKPOINT), (OTHER_RESULTS, _FIGURE)):
        root = Path(point.item.folder(kind))
        for folder, folders, files in os.walk(root):
            folders[:] = [entry for entry in folders if not entry.startswith(("abandoned-", "."))]
            for file in files:
                match = pattern.match(file)
                if match is None or int(match[1]) <= limit:
                    continue
                source = Path(folder, file)
                final = root / target / source.relative_to(root)
                with suppress(OSError):
                    final.parent.mkdir(parents=True, exist_ok=True)
                    source.rename(final)
    _abandon_notes(Path(point.item.folder(CHECKPOINT)), target, limit)


def _abandon_notes(folder: Path, target: str, limit: int) -> None:
    """The same for checkpoints that are on the master alone: their notes move."""
    for note in pruned_files(folder):
        match = _CHECKPOINT.match(note.name)
        if match is None or int(match[1]) <= limit:
            continue
        with suppress(OSError):
            (folder / target).mkdir(parents=True, exist_ok=True)
            write_note(folder / target, note)
            drop_note(folder, note.name)
