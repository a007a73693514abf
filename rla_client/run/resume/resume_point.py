"""Point from which a run continues.

A `ResumePoint` determines, for the new stream's opening frame, how many rows and events count; the agent
truncates them before it ingests the first new record (rla_agent/pipeline/recovery.py). The clock, moving
averages, random generators and custom data are restored from the state that `save_checkpoint` stored
(`run/state/resume_state.py`).
"""

from __future__ import annotations

import os
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rla_client.checkpoint.listing import find_checkpoint, list_checkpoints
from rla_client.contract.agent.places import find_places
from rla_client.contract.checkpoint.checkpoint_age import newest_order
from rla_client.contract.checkpoint.stamp import read_stamp
from rla_client.contract.errors import FetchError, NoCheckpointError, RlaError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import CHECKPOINT, LOG, OTHER_RESULTS, PARTS_FOLDER, RESUME_FOLDER, SAMPLES
from rla_client.contract.run_file import run_duration_s
from rla_client.contract.sharded_checkpoint.files import parse_parts_name
from rla_client.contract.sharded_checkpoint.folder import look, waiting_parts
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.status import ShardedStatus, whole_status
from rla_client.contract.spool.opening import Continuation, Earlier
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders
from rla_client.run.resume.earlier_streams import await_taken_in, newest_epoch, streams_of
from rla_client.run.resume.find_run import find_item, read_run_file
from rla_client.run.resume.run_epoch import next_epoch
from rla_client.run.run_checkpoints import CHECKPOINT_NAME
from rla_client.run.state.resume_state import read_resume_state
from rla_client.stream.fetch import SETTLE_S, settle_parts

MAX_NAMED: Final = 10  # saves in a message


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a run continues.

    Attributes:
        item: the run.
        run: its identity in run.json.
        epoch: of the opening that continues: higher than all before.
        time_step: of the checkpoint; None when there is no checkpoint, and the run begins again.
        order: of its save; None where it has no stamp.
        saved_before: order of the run's last save of any name.
        name: of the checkpoint's series.
        state: stored beside it by `save_checkpoint`.
        continues: for the opening frame.
    """

    item: ItemFolders
    run: str
    epoch: int
    time_step: int | None
    order: int | None
    saved_before: int
    name: str
    state: dict[str, Any]
    continues: Continuation


def over_text(run_id: str, index: str) -> str:
    """The message about a run that `is_over`."""
    return f"the run {run_id!r} ({index}) has finished, without a checkpoint to continue from"


def is_over(item: ItemFolders) -> bool:
    """Whether a run has finished and has no checkpoint to continue from, now or later."""
    if read_run_file(item).get("state") != "finished":
        return False
    folder = Path(item.folder(CHECKPOINT))
    if list_checkpoints(folder, CHECKPOINT_NAME, pruned=True):
        return False
    return newest_sharded(folder, CHECKPOINT_NAME, None) is None and not _waiting(folder, CHECKPOINT_NAME)


def newest_sharded(folder: Path, name: str, at: int | None) -> ShardedStatus | None:
    """The whole sharded checkpoint that was saved last, or that of time-step `at`; None without one.

    Saves that all ranks had finished are published first. The checkpoint may be on the master alone.
    """
    with suppress(OSError):  # one that cannot be published does not count
        publish_all(folder)
    found = [one for one in whole_status(folder, name) if at in {None, one.step}]
    return found[-1] if found else None


def _settle(folder: Path, *, autostart: bool) -> FetchError | None:
    """Wait a while for saves of several machines on the master; why their state is unknown, else None."""
    try:
        settle_parts(folder, SETTLE_S, autostart=autostart)
    except FetchError as error:
        return error
    return None


def _waiting(folder: Path, name: str, after: int = 0) -> list[str]:
    """Saves later than `after` of which this machine has its part, and the master not all parts yet."""
    found = []
    for parts in waiting_parts(folder):
        parsed = parse_parts_name(parts)
        with suppress(FileNotFoundError):  # it has its name by now
            order = max((one.order for one in look(folder, parts).receipts.values()), default=0)
            if parsed is not None and parsed[0] == name and order > after:
                found.append((order, f"{name}_{parsed[1]}"))
    return [save for _, save in sorted(found)]


def _check_waiting(
    folder: Path, name: str, step: int | None, after: int, unknown: FetchError | None, *, over: bool
) -> None:
    """Warn of saves that the resume ignores although this machine has its part of them.

    Args:
        folder: of the checkpoints.
        name: of their series.
        step: of the checkpoint from which the run continues; None: from the beginning.
        after: order of its save.
        unknown: why the master could not be asked; None where it could.
        over: the run has finished.

    Raises:
        FetchError: a later save may be complete, which only the master knows.
        NoCheckpointError: a run that has finished would begin at 0.
    """
    waiting = _waiting(folder, name, after)
    if not waiting:
        return
    start = "the beginning" if step is None else f"{name}_{step}"
    named = ", ".join(waiting[-MAX_NAMED:])
    if unknown is not None:
        raise FetchError(
            f"the run would continue from {start}, but {len(waiting)} later saves ({named}) may be whole: "
            f"{unknown}. Resume it once the master can be asked; to go on without these saves, move them "
            f"out of {folder / PARTS_FOLDER}"
        ) from unknown
    if over and step is None:
        raise NoCheckpointError(f"the run has finished, and {named} wait for parts of other machines")
    warn(
        f"the run continues from {start}: the master lacks parts that other machines have of {named}. Ours "
        f"go to {PARTS_FOLDER}/abandoned-N, and are deleted once the run has a new whole checkpoint"
    )


def prepare(
    root: str, table: str, which: str | ItemFolders, at: int | None, name: str, *, autostart: bool
) -> ResumePoint:
    """Wait for the ingest of a run's earlier streams, and choose the checkpoint to continue from.

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
        FetchError: a save may be complete on the master, which cannot be asked.
        RlaError: it has no run.json, or no agent ingests its records.
    """
    item = which if isinstance(which, ItemFolders) else find_item(root, table, which)
    content = read_run_file(item)
    places = find_places()
    streams = streams_of(places, item, content)
    late = await_taken_in(places, streams, autostart=autostart)
    if late:
        raise RlaError(f"the run {item.index.path} cannot be resumed: {late}")
    content = read_run_file(item)
    if not content.get("run_id"):
        raise RlaError(
            f"{item.folder(LOG)} has no run.json, so it cannot be resumed in place; "
            "start a new run from it with ExperimentLoader and fork_log_files()"
        )
    folder = Path(item.folder(CHECKPOINT))
    unknown = _settle(folder, autostart=autostart)
    step, order = _checkpoint_at(folder, name, at, autostart=autostart)
    if at is None:
        over = content.get("state") == "finished"
        _check_waiting(folder, name, step, order or 0, unknown, over=over)
    elif unknown is not None:
        warn(str(unknown))
    marks = read_marks(folder, name, step)
    abandoned = next_abandoned(item)
    outputs = marks.get("outputs", {})
    events = outputs.get("tensorboard", [0, 0, 0, None])
    samples = outputs.get(SAMPLES)
    continues = Continuation(
        rows=0 if step is None else marks.get("rows"),
        time_step=None if step is None else float(step),
        event_file=events[3],
        event_size=events[2],
        abandoned=abandoned,
        after=tuple(stream.folder.name for stream in streams),
        earlier=earlier_times(content),
        samples=0 if step is None else None if samples is None else samples[1],
    )
    state = {} if step is None else read_resume_state(folder, name, step) or {}
    epoch = next_epoch(newest_epoch(content, streams))
    if order is not None and state.get("order", order) != order:
        warn(
            "random generators, moving averages and custom data are those of a later save of time-step "
            f"{step}, whose checkpoint was lost: the run does not continue exactly as it was"
        )
    return ResumePoint(
        item, content["run_id"], epoch, step, order, newest_order(folder), name, state, continues
    )


def _checkpoint_at(
    folder: Path, name: str, at: int | None, *, autostart: bool
) -> tuple[int | None, int | None]:
    """Time-step and order of a checkpoint, in a file or sharded; by `at` None, of the newest of both.

    Raises:
        NoCheckpointError: `at` names none.
    """
    sharded = newest_sharded(folder, name, at)
    if sharded is not None and at is not None:
        return at, sharded.order
    if at is None:
        found = _newest_whole(folder, name, autostart=autostart)
    else:
        found = find_checkpoint(folder, name, at, autostart=autostart)
    stamp = None if found is None else read_stamp(found[1])
    if sharded is not None and (found is None or stamp is None or stamp.order < sharded.order):
        return sharded.step, sharded.order
    return (None if found is None else found[0]), (None if stamp is None else stamp.order)


def _newest_whole(folder: Path, name: str, *, autostart: bool) -> tuple[int, Path] | None:
    """Time-step and path of the newest checkpoint that is a complete file; None without one.

    A truncated file (the disk was full, a copy was interrupted) is skipped, with a warning.

    Raises:
        OSError: one cannot be opened, so that its content is unknown.
    """
    for step, path in reversed(list_checkpoints(folder, name, pruned=True)):
        found = find_checkpoint(folder, name, step, autostart=autostart)[1]
        with open(found, "rb") as file:
            begins = file.read(2)
            if zipfile.is_zipfile(file) or begins[:1] == b"\x80":  # torch's format before 1.6: a bare pickle
                return step, found
        warn(f"{path} is damaged; the run continues from the newest checkpoint before it")
    return None


def earlier_times(content: dict[str, Any]) -> Earlier:
    """Start and duration of the run of this run.json, for an agent that does not know it."""
    began = content.get("opened")
    return Earlier(began, run_duration_s(content) or 0.0) if isinstance(began, int | float) else Earlier()


def read_marks(folder: Path, name: str, step: int | None) -> dict[str, Any]:
    """Length of each output when a checkpoint was saved; empty where it was not recorded."""
    with suppress(OSError, ValueError):
        content = parse_json(read_small(folder / RESUME_FOLDER / f"{name}_{step}.marks.json"))
        if isinstance(content, dict):
            return content
    return {}


def next_abandoned(item: ItemFolders) -> str:
    """A name that no earlier resume of this run has used."""
    number = 1
    kinds = (LOG, CHECKPOINT, OTHER_RESULTS, SAMPLES)
    while any(os.path.exists(os.path.join(item.folder(kind), f"abandoned-{number}")) for kind in kinds):
        number += 1
    return f"abandoned-{number}"
