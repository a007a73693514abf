"""Going on with a run: in its own files exactly where a checkpoint was taken, in a new item, or as a fork.

In place, `abandon_later` moves figures and checkpoints that came later to `abandoned-N/` (time-steps may
have begun again since: the order of the saves counts, and of figures the time, too), and a
`ResumePoint` says for the new stream's opening frame how much of the rows and events counts; the agent
cuts them before it takes the first new record in (rla_agent/pipeline/resume_fork.py). The clock, moving
averages, random generators and custom data come back from the state that `save_checkpoint` stored.

Of a run that another machine began, the checkpoint that was saved last comes from the master: the agent finds
the newest run of this `run_id` there and brings it here. It is not written any more: a new item begins, whose
`parent` in run.json names it, with `chain` set; its checkpoint lies in the new item too, so that the
chain can be gone on with on a third machine. Queries show the chain as one run
(`rla_client.database.tree.chain_of`).

When the master or the agent is away, `resume='must'` raises and `resume='allow'` begins a new run with a
warning: training does not stand still because of the network, and nothing is lost by it, for the older
run stays as it is on the master. Who would rather wait than begin anew says `must`.

In a fork (`put_under`) the data of an earlier run are put under the open one, which continues in them.
Checkpoints, results and the like are copied to their places. Logs are copied into a hidden folder, and a
new stream of the run says in its opening frame that they are to take their places when it begins; the
agent does so after the last record of the stream before (rla_agent/pipeline/resume_fork.py). So it does not
matter whether an agent runs, or when it comes, and the run's own records stay in the spool that has them.
A kill leaves the run as it was, or forked: what is visible is whole, and nothing of the run's own is
replaced: it is moved to `before-fork/`.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.checkpoint.listing import find_checkpoint, list_checkpoints
from rla_client.config.schema import Config
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.agent_start import start_agent
from rla_client.contract.agent.places import find_places
from rla_client.contract.checkpoint.checkpoint_age import SaveTime, newest_order, save_time
from rla_client.contract.checkpoint.provenance import is_foreign
from rla_client.contract.checkpoint.prune_notes import drop_note, pruned_files, write_note
from rla_client.contract.checkpoint.stamp import read_stamp
from rla_client.contract.errors import ArgumentError, FetchError, RlaError, StillWrittenError
from rla_client.contract.filesystem.atomic_write import (
    FORK_COPY_PREFIX,
    TEMP_PREFIX,
    claim_name,
    replacing,
    temp_path,
    write_atomic,
)
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import (
    CHECKPOINT,
    FETCHED_MARK,
    FOREIGN_MARK,
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    RESUME_FOLDER,
    TMP_DATA,
)
from rla_client.contract.run_file import ran_s
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.opening import Continuation, Earlier
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.run.archive import arrays_of, read_resume_state
from rla_client.run.data import CHECKPOINT_NAME
from rla_client.run.find import (
    ENDS_S,
    StillWritingError,
    await_taken_in,
    find_here,
    find_item,
    newest_epoch,
    read_run_file,
    streams_of,
)
from rla_client.run.item import Item
from rla_client.run.run import Run, mode, warn
from rla_client.run.start import opened_here
from rla_client.stream.fetch import ask_for_fetch, fetch_timeout_s

if TYPE_CHECKING:
    from rla_client.run.setup import RunSetup

_FIGURE = re.compile(r"^(\d+)-")
_CHECKPOINT = re.compile(r"^.+[_-](\d+)\.pt$")
NO_ROWS = b'{"rows": 0, "outputs": {}}'  # of the new item, at the checkpoint that it begins with
BEFORE_FORK = "before-fork"
COPIED_AT_ONCE = (CHECKPOINT, OTHER_RESULTS, TMP_DATA, HYPARAMETER)
PLACED_S = 5.0  # for a living agent to put the logs in their places
POLL_S = 0.02
SNAPSHOT_ENDING = ".pkl"  # a .pt bears the stamp of its run
NOT_FORKED = (
    "run.json",
    FETCHED_MARK,
    FOREIGN_MARK,
    "note.json",
    "environment.json",
    "console*.txt",
    f"{HYPARAM_FILE_NAME}.*",
    f"{TEMP_PREFIX}*",
)


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
        state: what `save_checkpoint` stored beside it.
        continues: for the opening frame.
    """

    item: Item
    run: str
    epoch: int
    time_step: int | None
    order: int | None
    saved_before: int
    name: str
    state: dict[str, Any]
    continues: Continuation


def where_to_continue(setup: RunSetup, run_id: str) -> tuple[ResumePoint | None, Chained | None]:
    """Where the run of this run_id continues, by the setup's `resume_mode`.

    One that has finished continues at its last checkpoint, too: a job that stopped in good order when it was
    told to looks like one that came to its end. Without a checkpoint it is left as it is.

    Returns:
        In place, in the run of this machine; or in a new item: from a newer run of another machine, or with
        `allow` from what is on the disk. Neither where a new run begins.

    Raises:
        RlaError: `resume='must'`, and no agent takes in what waits in the spool, or the run cannot be gone on
            with in place, or a living process of this machine writes it.
        ArgumentError: `resume='must'`, and there is none here or on the master.
        FetchError: see `find_elsewhere`.
    """
    try:
        here = _run_here(setup, run_id)
    except StillWritingError as error:
        _give_way(setup, error, "A new run begins")
        return None, None
    chained = _newer_elsewhere(setup, run_id, here)
    if here is not None and chained is None and is_over(here):
        _give_way(setup, ArgumentError(_over(run_id, here.index.path)), "A new run begins")
        return None, None
    if here is None or chained is not None:
        return None, chained
    table, config, root = setup.configured()
    try:
        return prepare(root, table, here, None, CHECKPOINT_NAME, autostart=config.agent.autostart), None
    except (RlaError, OSError) as error:
        chained = chain_here(here)
        step = "" if chained is None else f", from {CHECKPOINT_NAME}_{chained.time_step}.pt"
        _give_way(setup, error, f"A new run begins{step}")
        return None, chained


def _over(run_id: str, index: str) -> str:
    return f"the run {run_id!r} ({index}) has finished, without a checkpoint to continue from"


def is_over(item: Item) -> bool:
    """Whether a run has finished and has no checkpoint from which it could continue."""
    if read_run_file(item).get("state") != "finished":
        return False
    return not list_checkpoints(Path(item.folder(CHECKPOINT)), CHECKPOINT_NAME, pruned=True)


def _run_here(setup: RunSetup, run_id: str) -> Item | None:
    """The newest run of this run_id on this machine; with `allow`, a living process of it may end first.

    None for one that this process itself has finished: a program may open several in turn under one name.

    Raises:
        RlaError: `resume='must'`, and one waits in the spool for want of an agent.
        StillWritingError: a living process writes it.
    """
    table, config, root = setup.configured()
    patience_s = 0.0 if setup.resume_mode == "must" else ENDS_S
    autostart = config.agent.autostart
    found, late = find_here(root, table, run_id, autostart=autostart, any_state=True, ends_s=patience_s)
    if late:
        message = f"the run {run_id!r} waits in the spool and cannot be gone on with: {late}"
        _give_way(setup, RlaError(message), "A new run begins")
    if found is not None and found.folder(LOG) in opened_here:
        return found if read_run_file(found).get("state") != "finished" else None
    return found


def _give_way(setup: RunSetup, error: Exception, then: str) -> None:
    """What agent or disk do not allow is a warning with `resume='allow'`, an error with `must`."""
    if setup.resume_mode == "must":
        raise error
    warn(f"{error}. {then}; resume='must' would have ended here instead")


def _newer_elsewhere(setup: RunSetup, run_id: str, here: Item | None) -> Chained | None:
    """The run of this run_id that another machine began, its checkpoint brought here.

    Raises:
        ArgumentError: `resume='must'`, and there is none here or on the master.
        FetchError: see `find_elsewhere`.
    """
    table, config, root = setup.configured()
    must = setup.resume_mode == "must" and here is None
    found = None
    if not setup.is_master_node and mode() != "offline":
        found = find_elsewhere(root, table, run_id, config, must=must, known=here)
    if found is None and must:
        where = " or on the master" if config.send_log_file else ""
        raise ArgumentError(
            f"resume='must', but table {table!r} of {root}{where} has no run {run_id!r} to continue"
        )
    return found


def with_checkpoint(setup: RunSetup, chained: Chained, item: Item) -> Chained | None:
    """Put the checkpoint of an earlier run into the new item; None, after a warning, where that fails.

    Raises:
        OSError: `resume='must'`, and the disk is full, or the like.
    """
    try:
        take_checkpoint(chained, item)
    except OSError as error:
        _give_way(setup, error, "A new run begins")
        return None
    return chained


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
        raise RlaError(f"the run {item.index.path} cannot be resumed: {late}")
    content = read_run_file(item)
    if not content.get("run_id"):
        raise RlaError(
            f"{item.folder(LOG)} has no run.json, so it cannot be resumed in place; "
            "start a new run from it with ExperimentLoader and fork_log_files()"
        )
    folder = Path(item.folder(CHECKPOINT))
    found = _newest_whole(folder, name) if at is None else find_checkpoint(folder, name, at)
    step = None if found is None else found[0]
    stamp = None if found is None else read_stamp(found[1])
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
    order = None if stamp is None else stamp.order
    return ResumePoint(
        item, content["run_id"], epoch, step, order, newest_order(folder), name, state, continues
    )


def _newest_whole(folder: Path, name: str) -> tuple[int, Path] | None:
    """Time-step and path of the newest checkpoint that is a whole file; None without one.

    A file without its end (the disk was full, a copy was cut off) is passed over, with a warning.

    Raises:
        OSError: one cannot be opened: that says nothing of what it holds.
    """
    for step, path in reversed(list_checkpoints(folder, name, pruned=True)):
        found = find_checkpoint(folder, name, step)[1]
        with open(found, "rb") as file:
            begins = file.read(2)
            if zipfile.is_zipfile(file) or begins[:1] == b"\x80":  # torch's format before 1.6: a bare pickle
                return step, found
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
    """Move figures and checkpoints that were made after the point away; can be repeated."""
    target = point.continues.abandoned
    for kind, pattern in ((CHECKPOINT, _CHECKPOINT), (OTHER_RESULTS, _FIGURE)):
        root = Path(point.item.folder(kind))
        for folder, folders, files in os.walk(root):
            folders[:] = [entry for entry in folders if not entry.startswith(("abandoned-", "."))]
            for file in files:
                match = pattern.match(file)
                if match is None or not _is_later(point, save_time(Path(folder), file, int(match[1]))):
                    continue
                source = Path(folder, file)
                final = root / target / source.relative_to(root)
                with suppress(OSError):
                    final.parent.mkdir(parents=True, exist_ok=True)
                    source.rename(final)
    _abandon_notes(point)


def _is_later(point: ResumePoint, file: SaveTime) -> bool:
    """Whether a file was made after the checkpoint from which the run continues."""
    if point.time_step is None:
        return True
    if point.order is None:
        return file.time_step > point.time_step
    if file.order is not None:
        return file.order > point.order
    return file.time_step > point.time_step and file.mtime_ns > point.order


def _abandon_notes(point: ResumePoint) -> None:
    """The same for checkpoints that are on the master alone: their notes move."""
    folder, target = Path(point.item.folder(CHECKPOINT)), point.continues.abandoned
    for note in pruned_files(folder):
        match = _CHECKPOINT.match(note.name)
        if match is None or not _is_later(point, save_time(folder, note.name, int(match[1]))):
            continue
        with suppress(OSError):
            (folder / target).mkdir(parents=True, exist_ok=True)
            write_note(folder / target, note)
            drop_note(folder, note.name)


@dataclass(frozen=True, slots=True)
class Chained:
    """Where a chain continues.

    Attributes:
        parent: the earlier run, now here too.
        time_step: of the checkpoint.
        state: what `save_checkpoint` stored beside it.
        link: for run.json's `parent`.
    """

    parent: Item
    time_step: int
    state: dict[str, Any]
    link: dict[str, Any]


def find_elsewhere(
    root: str, table: str, run_key: str, config: Config, *, must: bool, known: Item | None = None
) -> Chained | None:
    """Bring a run here that another machine began; None where there is none to continue.

    Args:
        root: data root.
        table: task table name.
        run_key: the user's name of the run.
        config: names the master.
        must: raise where it cannot be told.
        known: the unfinished run of that name that is here; only one that was begun later, which went
            on with it, counts then.

    Raises:
        StillWrittenError: the run is still being written on another machine.
        FetchError: with `must`, the master or the agent is away.
    """
    remote = config.remote_setting
    if not config.send_log_file or config.path is None or not remote.named:
        return None
    os.makedirs(root, exist_ok=True)
    absolute = os.path.realpath(root)
    question = {
        "config": str(config.path),
        "root": absolute,
        "table": table,
        "run_key": run_key,
        "series": CHECKPOINT_NAME,
        "known": "" if known is None else known.index.path,
    }
    what = f"whether the master has a run {run_key!r} to continue in table {table!r} cannot be told"
    try:
        start = partial(start_agent, find_places(), config.path, config.agent.secrets(config.path))
        answer = ask_for_fetch(
            {"resume": question}, what, fetch_timeout_s(), start=start if config.agent.autostart else None
        )
    except StillWrittenError:
        raise  # also with `allow`: two processes would write one run
    except FetchError as error:
        if must:
            raise
        then = (
            "A new run begins; resume='must' would have ended here instead"
            if known is None
            else "The run that is here continues"
        )
        warn(f"{error}. {then}")
        return None
    if answer.get("over") and not must:
        warn(f"{_over(run_key, str(answer['over']))}. It is on the master, and a new run begins")
    index = None if answer.get("index") is None else RunIndex.parse(str(answer["index"]))
    if index is None:
        return None
    return _chain(Item(absolute, table, index, index.opened), int(answer["time_step"]), answer)


def chain_here(item: Item) -> Chained | None:
    """Go on with a run of this machine in a new item, where it cannot be gone on with in place.

    Returns:
        None where no checkpoint of it is on the disk.
    """
    found = list_checkpoints(Path(item.folder(CHECKPOINT)), CHECKPOINT_NAME)
    return _chain(item, found[-1][0], read_run_file(item)) if found else None


def _chain(parent: Item, step: int, told: Mapping[str, Any]) -> Chained:
    """A chain from a checkpoint of `parent`; `told`: what run.json or the agent says of that run."""
    folder = Path(parent.folder(CHECKPOINT))
    link = {
        "run": parent.index.path,
        "table": parent.table,
        "time_step": step,
        "rows": read_marks(folder, CHECKPOINT_NAME, step).get("rows"),
        "chain": True,
        "run_id": told.get("run_id"),
        "host": told.get("host"),
    }
    return Chained(parent, step, read_resume_state(folder, CHECKPOINT_NAME, step) or {}, link)


def take_checkpoint(chained: Chained, item: Item) -> None:
    """Give the new item the checkpoint that it begins with.

    Raises:
        OSError: the disk is full, and the like.
    """
    source, target = Path(chained.parent.folder(CHECKPOINT)), Path(item.folder(CHECKPOINT))
    name = f"{CHECKPOINT_NAME}_{chained.time_step}"
    found = source / f"{name}.pt"
    if not found.exists():
        found = source / f"{CHECKPOINT_NAME}-{chained.time_step}.pt"
    with replacing(target / f"{name}.pt", durable=False) as temp:
        try:
            os.link(found, temp)
        except OSError:
            shutil.copy2(found, temp)  # a file system without links
    below = target / RESUME_FOLDER
    below.mkdir(exist_ok=True)
    for kept in (*arrays_of(source, name), source / RESUME_FOLDER / f"{name}.state"):
        if kept.exists():
            write_atomic(below / kept.name, kept.read_bytes(), mode=kept.stat().st_mode & 0o666)
    write_atomic(below / f"{name}.marks.json", NO_ROWS)


def put_under(source: Item, item: Item, run: Run) -> str:
    """Copy a run's data under an open one, which continues in them.

    Returns:
        What went wrong; empty when nothing did.
    """
    aside = _free_name(source, item)
    staged = Path(item.folder(LOG)) / f"{FORK_COPY_PREFIX}{os.urandom(8).hex()}"
    try:
        staged.mkdir()
        _copy(Path(source.folder(LOG)), staged, aside)
        for kind in COPIED_AT_ONCE:
            _copy(Path(source.folder(kind)), Path(item.folder(kind)), aside)
        outbox = run.outbox
        goes_on = run.go_on(rows=None, staged=staged.name, abandoned=aside)
        problem = "" if goes_on or outbox is None else outbox.why_refused
    except (OSError, shutil.Error) as error:
        problem = str(error)
    if problem:
        shutil.rmtree(staged, ignore_errors=True)
        return problem
    deadline = time.monotonic() + PLACED_S
    while staged.exists() and time.monotonic() < deadline and agent_alive(find_places()):
        time.sleep(POLL_S)
    return ""


def _free_name(source: Item, item: Item) -> str:
    """A folder for the run's own files that neither run has yet."""
    name, number = BEFORE_FORK, 1
    kinds = (LOG, *COPIED_AT_ONCE)
    while any(
        os.path.lexists(os.path.join(one.folder(kind), name)) for one in (source, item) for kind in kinds
    ):
        number += 1
        name = f"{BEFORE_FORK}-{number}"
    return name


def _copy(source: Path, target: Path, aside: str) -> None:
    """Copy the plain files below a folder; what lies in the way goes to the folder `aside`.

    A launcher's snapshots that another machine wrote stay where they are: here they would be the user's own.

    Raises:
        OSError: a file cannot be read or written.
    """
    for file in _plain_files(source):
        below = file.relative_to(source)
        final = target / below
        final.parent.mkdir(parents=True, exist_ok=True)
        temp = temp_path(final)
        try:
            shutil.copy2(file, temp, follow_symlinks=False)
            _place(temp, final, target / aside / below)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temp)


def _plain_files(folder: Path) -> Iterator[Path]:
    """Files that a fork takes over: no links, and nothing that is the earlier run's own."""
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _left_out(name)]
        for name in names:
            path = Path(here, name)
            if _left_out(name) or not stat.S_ISREG(os.lstat(path).st_mode):
                continue
            if name.endswith(SNAPSHOT_ENDING) and is_foreign(path):
                warn(f"{path} came from another machine: it stays there, and loads with trust=True")
            else:
                yield path


def _left_out(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in NOT_FORKED)


def _place(temp: Path, final: Path, aside: Path) -> None:
    """Give a file its name; the agent may be writing one of that name just now, and neither is lost."""
    while not claim_name(temp, final):
        with suppress(FileNotFoundError):
            aside.parent.mkdir(parents=True, exist_ok=True)
            os.rename(final, aside)
