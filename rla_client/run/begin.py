"""Opening a run: a new item, the earlier one of this run_id, or that of another machine.

What is opened, by `resume`:

* `never`: a new item.
* `allow`, `must`: the newest run of the run_id, where a newer one of another machine does not take its place;
  that one's checkpoint is put into a new item, chained to it. One that has finished continues at its last
  checkpoint; without one it is left as it is. What disk, agent or master refuse is a warning and a new item
  with `allow`, an error with `must`.

What held at a checkpoint comes back with it: clock, moving averages, custom data. `fork` puts the data of an
earlier run under the open one instead; CSV and TensorBoard continue in it.

`go_on` opens a run again that this process ended. `begin_beside` opens a run that is not the process's own:
one of several that it writes at a time.

In a process that stores nothing (RLA_MODE=disabled, ranks above 0) every call works, and none writes into
the database. Where a run is resumed, ranks above 0 learn from rank 0 where it continues
(`start.await_resumed`): they get its clock and custom data and may load its checkpoint, and read it only.
Random generators stay their own, or all ranks would draw the same.
"""

from __future__ import annotations

import copy
import math
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import NoCheckpointError, NotConfiguredError, RlaError
from rla_client.contract.layout import CHECKPOINT, LOG, OTHER_RESULTS, RESUME_FOLDER, TIMESTAMP
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.run_index import make_info
from rla_client.contract.spool.opening import Continuation, Earlier
from rla_client.run import run as runs
from rla_client.run.archive import (
    arrays_of,
    changed_parameters,
    join_arrays,
    open_own,
    parameter_file,
    read_resume_arrays,
    read_resume_state,
    tell_changes,
    unopened,
    write_parameters,
)
from rla_client.run.data import CHECKPOINT_NAME, TIME_STEP_DATA, RunData
from rla_client.run.item import DisabledRun, Item, SeenCheckpoint, create_item
from rla_client.run.recording import WARN, Logger
from rla_client.run.run import backup, drop_current, get_current, set_current, warn
from rla_client.run.start import (
    APART_WAIT_S,
    RESUMED_WAIT_S,
    await_resumed,
    bind_recorders,
    capture_code,
    job_file,
    join_rank_zero,
    next_number,
    open_item,
    publish,
    say_where,
    tell_folders,
    tell_rank,
    why_apart,
)
from rla_client.run.trackers import clear_time
from rla_client.stream import scope as scopes
from rla_client.stream.param_values import name_of

if TYPE_CHECKING:
    from rla_client.run.resume import Chained, ResumePoint
    from rla_client.run.run import Run
    from rla_client.run.setup import RunSetup


def begin(data: RunData, *, all_ranks: bool = False) -> None:
    """Open the run that the setup describes; see `ExpManager.log_files_gen`."""
    data.setup.configured()
    end_left()
    end_run(data, "finished", "")
    with _entered(data):
        _begin(data, all_ranks=all_ranks)


@contextmanager
def _entered(data: RunData) -> Iterator[None]:
    """A run is opened: it becomes the current one; what was so before is, where that fails."""
    data.enter()
    _opened.add(data)
    try:
        yield
    except BaseException:
        if data.run is None:
            scopes.retire(data.scope)
        raise


def _begin(data: RunData, *, all_ranks: bool) -> None:
    setup = data.setup
    table, _config, root = setup.configured()
    if setup.record_date is not None:
        data.clock.clear()
    clear_time()
    setup.info = _tracked_info(setup)
    setup.named = len(setup.tracked)
    if runs.disabled() or runs.rank() > 0:
        begin_storing_nothing(data, all_ranks=all_ranks)
        return
    chained = None
    if setup.resume_mode != "never" and setup.run_id is not None:
        from rla_client.run.resume import where_to_continue, with_checkpoint  # noqa: PLC0415 - rarely needed

        point, chained = where_to_continue(setup, setup.run_id)
        if point is not None:
            continue_at(data, point)
            return
    item = create_item(root, table, setup.info, setup.ipaddr)
    if chained is not None:
        chained = with_checkpoint(setup, chained, item)
    _open_new(data, item, chained)


def _tracked_info(setup: RunSetup) -> str:
    secrets = setup.secrets()
    return make_info((name, name_of(secrets.value(name, value))) for name, value in setup.tracked)


def _new_run(data: RunData, item: Item, **continuing: object) -> Run:
    """Open the stream of a new item, with its parameters and its archive."""
    setup = data.setup
    name, content = parameter_file(setup.shown_parameters())
    write_parameters(item, name, content)
    run = _open_item(data, item, **continuing)
    data.send_parameters(run, name, content)
    data.save_archive()
    return run


def _open_item(data: RunData, item: Item, **continuing: object) -> Run:
    run = open_item(data, item, **continuing)
    run.logger.write_beside = partial(write_beside, data)
    return run


def _open_new(data: RunData, item: Item, chained: Chained | None) -> None:
    setup = data.setup
    run = _new_run(data, item, **({} if chained is None else {"parent": chained.link}))
    set_current(run.logger, data.scope)
    bind_recorders(run, item)
    capture_code(data, run, item)
    resumed = None if chained is None else (CHECKPOINT_NAME, chained.time_step)
    publish(item.root, item.table, run.opening, setup.configured()[1].log_used, resumed)
    say_where(data, run, item)
    if chained is not None:
        _take_up(data, chained)


def continue_at(data: RunData, point: ResumePoint) -> None:
    """Open the run of `point` where it was left; its checkpoint is loaded by who wants it."""
    from rla_client.run.resume import abandon_later  # noqa: PLC0415 - rarely needed
    from rla_client.run.worker_tables import cut_worker_tables  # noqa: PLC0415

    setup, item = data.setup, point.item
    _take_parameters(setup, item)
    changed = changed_parameters(item, setup.hyper_param, setup.secrets())
    abandon_later(point)
    cut_worker_tables(point)
    end_run(data, "finished", "")
    with _entered(data):
        clear_time()
        run = _open_item(data, item, run=point.run, epoch=point.epoch, continues=point.continues)
        data.save_after(point.saved_before)
        set_current(run.logger, data.scope)
    resumed = point.name, point.time_step
    publish(item.root, item.table, run.opening, setup.configured()[1].log_used, resumed)
    data.mark_parameters(run)
    bind_recorders(run, item)
    say_where(data, run, item)
    step = point.time_step
    _tell_changes(data, changed, step)
    _restore(data, point.state, step, item, point.name)
    at = "the beginning" if step is None else f"{point.name}_{step}.pt"
    _tell_resumed(f"from {at}", f"from {at}")
    data.restore_random_state()


def _take_parameters(setup: RunSetup, item: Item) -> None:
    """Where none are given, take those of an earlier run, but for secrets, which it does not keep."""
    if setup.hyper_param:
        return
    from rla_client.code.hidden_values import taken_over  # noqa: PLC0415 - rarely needed
    from rla_client.run.find import read_run  # noqa: PLC0415

    setup.hyper_param, lacking = taken_over(read_run(item).hyper_param, {})
    if lacking:
        warn(f"hyper-parameters of the earlier run are {lacking}")


def _tell_changes(data: RunData, changed: dict[str, tuple[Any, Any]], step: float | None) -> None:
    """Warn of hyper-parameters that are not those of the run that continues, and keep them in the item."""
    if changed and data.run is not None:
        data.run.logger.log(f"[WARN] {data.clock.get_time()} : {tell_changes(changed)}", level=WARN)
        data.keep_changes(changed, step)


def _restore(data: RunData, state: dict[str, Any], step: int | None, item: Item, name: str) -> None:
    """Clock, moving averages and custom data as they were at a checkpoint of `item`."""
    data.resumed_from = 0 if step is None else step
    data.resume_state = state
    data.clock.put(state.get("time_step", step or 0))
    if "logger" in state:
        get_current().restore_memory(state["logger"])
    arrays = read_resume_arrays(state, item, name, step)
    custom = join_arrays(state.get("custom_data", {}), arrays)
    if unopened(custom) is not None:
        file = Path(item.folder(CHECKPOINT), RESUME_FOLDER, f"{name}_{step}.state")
        custom = open_own(custom, _why_not_own(data, state, item, file))
    data.take_custom_data(custom)
    if step is not None:
        data.custom_data.setdefault(TIME_STEP_DATA, step)


def _why_not_own(data: RunData, state: dict[str, Any], item: Item, file: Path) -> str | None:
    """Why objects in a resume state (its `file`) of `item` are not what the open run kept here."""
    from rla_client.checkpoint.pickle_trust import pickle_problem  # noqa: PLC0415 - rarely needed
    from rla_client.run.find import read_run_file  # noqa: PLC0415

    opening = None if data.run is None else data.run.opening
    seen = data.disabled is not None and read_run_file(item).get("run_id")  # by a rank above 0
    run = seen or (opening.run if opening is not None else "")
    if not run or state.get("saved_by") != run:
        return "it was not written by this run"
    archive = Path(item.archive_file)
    files = [
        file,
        *arrays_of(Path(item.folder(CHECKPOINT)), file.stem),
        Path(item.folder(LOG), RUN_FILE),
        archive,
        archive.with_suffix(".pt"),
    ]
    found = (pickle_problem(path) for path in files if os.path.lexists(path))
    return next((why for why in found if why is not None), None)


def _take_up(data: RunData, chained: Chained) -> None:
    """Take the state of the earlier run's checkpoint, which lies in the new item."""
    changed = changed_parameters(chained.parent, data.setup.hyper_param, data.setup.secrets())
    _tell_changes(data, changed, chained.time_step)
    _restore(data, chained.state, chained.time_step, chained.parent, CHECKPOINT_NAME)
    from rla_client.contract.checkpoint.checkpoint_age import newest_order  # noqa: PLC0415 - rarely needed

    data.save_after(newest_order(Path(data.folder_of(CHECKPOINT))))
    at = f"from checkpoint_{chained.time_step}.pt of {chained.parent.index.path}"
    _tell_resumed(at, f"{at}, begun on {chained.link.get('host')}")
    data.restore_random_state()


def _tell_resumed(briefly: str, wholly: str) -> None:
    get_current().log(f"[RESUME] {get_current().clock.get_time()} : {briefly}", echo=False)
    backup(f"resumed {wholly}")


def reopen(data: RunData, item: Item) -> Run:
    """Open an item in files of its own again: who calls this sends the rows that stay once more."""
    from rla_client.run.find import read_run_file  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume import earlier_times  # noqa: PLC0415

    content = read_run_file(item)
    data.setup.run_id = str(content.get("run_key") or data.setup.run_id or "") or None
    parent = content.get("parent")
    chain = {"parent": parent} if isinstance(parent, dict) else {}
    run = _open_item(data, item, earlier=earlier_times(content), **chain)
    bind_recorders(run, item)
    return run


def go_on(data: RunData, ended: Run) -> bool:
    """Open the run that `data` had once more, which this process has ended: behind all that it has.

    Nothing waits for the agent, which takes the new stream in after the former one.

    Args:
        data: its item, setup and clock are still those of the run.
        ended: the run.

    Returns:
        False where nothing was stored, another process opened it, or its folder is gone.
    """
    from rla_client.contract.checkpoint.checkpoint_age import newest_order  # noqa: PLC0415 - rarely needed
    from rla_client.run.find import read_run  # noqa: PLC0415
    from rla_client.run.resume import next_abandoned  # noqa: PLC0415

    item, former = data.item, ended.opening
    stream = None if ended.outbox is None else ended.outbox.stream_folder
    if item is None or former is None or stream is None:
        return False
    if ended.pid != os.getpid() or not os.path.isdir(item.folder(LOG)):
        return False
    end_left()
    times = Earlier() if former.continues is None else former.continues.earlier
    ran_s = times.ran_s + max(0.0, ended.logger.last_row.get(TIMESTAMP, 0.0) - former.opened)
    whole = Continuation(
        abandoned=next_abandoned(item),
        after=(stream.name,),
        earlier=Earlier(former.opened if times.began is None else times.began, ran_s),
    )
    epoch = max(time.time_ns(), former.epoch + 1)  # also where the clock was set back
    with _entered(data):
        clear_time()
        run = _open_item(data, item, run=former.run, epoch=epoch, continues=whole)
        data.save_after(newest_order(Path(item.folder(CHECKPOINT))))
        set_current(run.logger, data.scope)
    data.gave_way = 0
    publish(item.root, item.table, run.opening, data.setup.configured()[1].log_used)
    data.take_custom_data(read_run(item).custom_data)
    data.mark_parameters(run)
    bind_recorders(run, item)
    run.logger.log(f"[RESUME] {data.clock.get_time()} : behind its last row", echo=False)
    return True


def begin_beside(data: RunData, earlier: Item | None = None) -> int | float | None:
    """Open the run that the setup describes beside that of the process.

    Clock, current logger, recorders and what worker processes join stay as they are: who opened it writes by
    `Logger.write_row`, and closes what `RunData.let_go` gives. Does nothing where nothing is stored.

    Args:
        data: its setup is configured.
        earlier: continue in this run, behind all that it has.

    Returns:
        The time-step of the last row of `earlier`; None for a new run.

    Raises:
        ArgumentError: the data root cannot be written.
        StillWritingError: a living process writes `earlier`.
        RlaError: no agent has taken in what `earlier` recorded.
    """
    setup = data.setup
    table, config, root = setup.configured()
    if runs.disabled() or runs.rank() > 0:
        return None
    setup.keeps_console = False  # what is printed is the run's of the process
    setup.info = _tracked_info(setup)
    if earlier is not None:
        return _behind(data, earlier, autostart=config.agent.autostart)
    item = create_item(root, table, setup.info, setup.ipaddr)
    run = _new_run(data, item)
    own = run.logger
    capture_code(data, run, item, lambda text: own.log(text, level=WARN, quiet=True))
    tell_folders(data, own)
    return None


def write_beside(
    data: RunData, parameters: Mapping[str, Any], metrics: Mapping[str, Any], step: int | None = None
) -> None:
    """Make a finished run beside that of `data`, with `parameters` beside its own and a row of `metrics`.

    Whatever goes wrong is a warning.
    """
    from rla_client.run.tensorboard import AgentSummaryWriter, writer_arguments  # noqa: PLC0415 - slow to import

    following = data.successor()
    setup = following.setup
    setup.hyper_param = {**setup.hyper_param, **parameters}
    setup.run_id, setup.resume_mode = None, "never"
    names = list(parameters)
    try:
        setup.add_record_param(names)
        begin_beside(following)
    except (RlaError, OSError) as error:
        warn(f"add_hparams: no run was made of {', '.join(map(str, names))}: {error}")
        return
    run = following.let_go()
    if run is not None:
        run.logger.clock.put(data.clock.get_time())
        AgentSummaryWriter(**writer_arguments(run.logger)).add_hparams(parameters, metrics, global_step=step)
        run.close("finished", "")


def _behind(data: RunData, item: Item, *, autostart: bool) -> int | float | None:
    """Open the stream of a run that continues with all of its rows, events and files."""
    from rla_client.run.find import read_run_file  # noqa: PLC0415
    from rla_client.run.resume import prepare  # noqa: PLC0415

    point = prepare(item.root, item.table, item, None, CHECKPOINT_NAME, autostart=autostart)
    whole = Continuation(
        abandoned=point.continues.abandoned, after=point.continues.after, earlier=point.continues.earlier
    )
    changed = changed_parameters(item, data.setup.hyper_param, data.setup.secrets())
    run = _open_item(data, item, run=point.run, epoch=point.epoch, continues=whole)
    data.mark_parameters(run)
    step = read_run_file(item).get("time_step")
    run.logger.log(f"[RESUME] {step} : behind its last row", echo=False)
    last = step if isinstance(step, int | float) else None
    data.note_changes(changed, last)
    return last


def take_back(data: RunData, step: float) -> bool:
    """Take the open run's rows from `step` on back: those that come now are in their place.

    They are kept in `abandoned-N/`. Nothing waits for the agent.

    Returns:
        False where the spool takes no new stream, and the rows stay.
    """
    from rla_client.run.resume import next_abandoned  # noqa: PLC0415

    run, item = data.run, data.item
    if run is None or item is None:
        return True
    kept = next_abandoned(item)
    try:
        os.mkdir(os.path.join(item.folder(LOG), kept))  # or the next one would be given its name
    except OSError as error:
        run.logger.log(
            f"{kept} was not made, the agent will: {error.strerror or error}", level=WARN, quiet=True
        )
    return run.go_on(time_step=math.nextafter(step, -math.inf), abandoned=kept)


def fork(data: RunData, loaded: RunData) -> None:
    """Put the data of the loaded run under the open one; see `ExpManager.log_file_copy`."""
    source, item, run = loaded.item, data.item, data.run
    if source is not None and data.disabled is not None:
        _take_custom_data(data, loaded)
        return  # rank 0 does the rest; or nothing is stored
    if source is None or item is None or run is None:
        raise NotConfiguredError("log_file_copy needs an open run and a loaded one")
    from rla_client.run.find import await_taken_in, streams_of  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume import put_under  # noqa: PLC0415

    places, autostart = find_places(), data.setup.configured()[1].agent.autostart
    late = await_taken_in(places, streams_of(places, source, loaded.run_file), autostart=autostart)
    if late:
        warn(f"the fork of {source.index.path} lacks what that run recorded last: {late}")
    problem = put_under(source, item, run)
    if problem:
        warn(f"not all data of {source.index.path} were put under this run: {problem}")
    from rla_client.contract.checkpoint.checkpoint_age import newest_order  # noqa: PLC0415 - rarely needed

    data.save_after(newest_order(Path(item.folder(CHECKPOINT))))
    bind_recorders(run, item)
    parent = {"run": source.index.path, "table": source.table, "time_step": data.clock.get_time()}
    run.mark("parent", parent)
    _take_custom_data(data, loaded)
    data.save_archive()


def _take_custom_data(data: RunData, loaded: RunData) -> None:
    """Copies of the loaded run's custom data under keys that the open one has not."""
    for key, value in loaded.custom_data.items():
        if key in data.custom_data:
            continue
        if loaded.is_unread(key):
            told = "load it with get_custom_data(key, trust=True) of the loaded run before the fork"
            warn(f"custom data {key!r} is not taken over, it holds an object of another run: {told}")
            continue
        try:
            data.custom_data[key] = copy.deepcopy(value)
        except Exception as error:  # noqa: BLE001 - of the user's class
            warn(f"custom data {key!r} is not taken over: {runs.reason_text(error)}")


_opened: weakref.WeakSet[RunData] = weakref.WeakSet()
given_up: deque[RunData] = deque()  # other runs have taken the place of these, and nobody has their handles


def give_up(data: RunData) -> None:
    """Nobody has the handle of a run any more: if another one has taken its place, it ends soon.

    Not here: the garbage collector calls this, maybe in a thread that holds a lock.
    """
    data.is_held = False
    if data.gave_way:
        given_up.append(data)


def end_given_up() -> None:
    """End the runs that were given up, by a thread that holds no lock of a run."""
    while given_up:
        try:
            data = given_up.popleft()
        except IndexError:  # another thread ends it
            return
        if data.run is not None:
            end_run(data, "finished", "")
            data.scope.ended = data.gave_way  # another one has been in its place since then


def end_left() -> None:
    """End the runs that were given up, and those of threads that have ended, to which nobody can write."""
    end_given_up()
    for data in list(_opened):
        run, place = data.run, data.scope
        if run is None or run.pid != os.getpid() or data.is_held:
            continue
        if place is not scopes.process() and place.is_left():
            end_run(data, "finished", "")


def end_run(data: RunData, status: str, reason: str) -> None:
    """Close the open run, if there is one, and let go of everything that was its own."""
    run = data.let_go()
    if run is None:
        return
    if "rla_client.media.recording_target" in sys.modules:
        sys.modules["rla_client.media.recording_target"].bind(None, data.scope)
    drop_current(run.logger, data.scope)
    run.close(status, reason)


def give_way(data: RunData) -> None:
    """Another run takes the place of the open one: it ends, unless somebody has its handle.

    Then it ends when that is given up.
    """
    data.gave_way = scopes.moment()
    if not data.is_held:
        end_run(data, "finished", "")


def resume(data: RunData, which: str, at: int | None, name: str) -> tuple[str, int | None]:
    """Go on in an earlier run; see `ExpManager.resume`. Returns its checkpoint's series and time-step."""
    if runs.disabled() or runs.rank() > 0:
        meeting = _meeting_place(data)
        end_run(data, "finished", "")
        return name, _look_on(data, meeting, which, at, name)
    from rla_client.run.resume import prepare  # noqa: PLC0415

    table, config, root = data.setup.configured()
    point = prepare(root, table, which, at, name, autostart=config.agent.autostart)
    continue_at(data, point)
    return point.name, point.time_step


# -- a process that stores nothing -------------------------------------------------------------


def begin_storing_nothing(data: RunData, *, all_ranks: bool) -> None:
    """Open a run that stores nothing, or with `all_ranks` join that of rank 0."""
    setup, meeting = data.setup, _meeting_place(data)
    storing = runs.disabled() or runs.rank() == 0
    follows = not storing and setup.resume_mode != "never" and setup.run_id is not None
    apart = "" if storing or not (all_ranks or follows) else why_apart(setup.configured()[2], meeting)
    if apart and all_ranks:
        tell_rank(f"cannot join the run of rank 0, and what it records is not kept: {apart}")
    with _entered(data):
        _open_storing_nothing(data, meeting, all_ranks=all_ranks and not storing, apart=bool(apart))
    if follows:
        _follow_rank_zero(data, meeting, apart)


def _meeting_place(data: RunData) -> Path | None:
    """Where rank 0 tells of its next run; None with RLA_MODE=disabled and outside of a job."""
    table, _config, root = data.setup.configured()
    return None if runs.disabled() else job_file(root, table, next_number(root, table))


def _open_storing_nothing(
    data: RunData, meeting: Path | None, *, all_ranks: bool = False, apart: bool = False
) -> None:
    setup, config = data.setup, data.setup.configured()[1]
    sinks = tuple(name for name in config.log_used if name != "stdout" or runs.rank() == 0)
    why = "RLA_MODE=disabled" if runs.disabled() else f"rank {runs.rank()}"
    stand_in = DisabledRun(setup.get_task_table_name(), setup.info or "", setup.ipaddr, why)
    data.item, data.disabled = None, stand_in
    if all_ranks and meeting is not None:
        run = join_rank_zero(config, meeting, 0.0 if apart else config.agent.exit_wait_s, data.clock)
    else:
        callback = setup.log_callback_fn
        run = runs.Run(
            Logger(stand_in.log_dir, sinks, callback=callback, clock=data.clock), None, config.agent
        )
    run.logger.take_parameters = data.add_hyper_param
    data.run = run
    setup.record_date = datetime.now()  # noqa: DTZ005 - local, as indices
    set_current(run.logger, data.scope)
    from rla_client.media.recording_target import RecordingTarget, bind  # noqa: PLC0415 - not at import of the package

    def results() -> str:
        return stand_in.item().folder(OTHER_RESULTS)

    bind(RecordingTarget(None, None, warn, temporary=results, outside=all_ranks))


def _follow_rank_zero(data: RunData, meeting: Path | None, apart: str) -> None:
    """Go on where rank 0 does, as far as a process can that writes nothing."""
    from rla_client.run.find import find_unfinished  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume import is_over  # noqa: PLC0415

    if meeting is not None:
        found = await_resumed(meeting, APART_WAIT_S if apart else RESUMED_WAIT_S)
        if found is None:
            why = f" ({apart})" if apart else ""
            tell_rank(
                f"does not know where the run continues, and begins at 0: rank 0 did not tell{why}. Have "
                "rank 0 load the checkpoint and broadcast it (docs/how-to/clusters.md, Ranks)"
            )
        elif found.item is not None:
            _see(data, found.item, found.name, found.time_step)
        return
    table, _config, root = data.setup.configured()
    item = find_unfinished(root, table, data.setup.run_id or "", any_state=True)
    if item is not None and not is_over(item):  # no launcher that would let the ranks meet: what is there now
        _see(data, item, CHECKPOINT_NAME, _newest(item, CHECKPOINT_NAME))


def _look_on(data: RunData, meeting: Path | None, which: str, at: int | None, name: str) -> int | None:
    """`resume` of a process that stores nothing: the run is left as it is.

    Returns:
        The time-step of the checkpoint to load, None where there is none.
    """
    from rla_client.run.find import find_item  # noqa: PLC0415 - rarely needed

    table, _config, root = data.setup.configured()
    with _entered(data):
        clear_time()
        _open_storing_nothing(data, meeting)
    wait_s = APART_WAIT_S if why_apart(root, meeting) else RESUMED_WAIT_S
    found = None if meeting is None else await_resumed(meeting, wait_s)
    if found is not None and found.item is not None:
        item, step = found.item, found.time_step
    else:
        item = find_item(root, table, which)
        step = at if at is not None else _newest(item, name)
    _take_parameters(data.setup, item)
    _see(data, item, name, step)
    return step


def _see(data: RunData, item: Item, name: str, step: int | None) -> None:
    from rla_client.run.find import read_run_file  # noqa: PLC0415 - rarely needed

    folder = Path(item.folder(CHECKPOINT))
    state = {} if step is None else read_resume_state(folder, name, step) or {}
    own = {key: value for key, value in state.items() if key not in {"random", "logger"}}
    _restore(data, own, step, item, name)
    if step is not None and data.disabled is not None:
        data.disabled.seen = SeenCheckpoint(folder, name, step, str(read_run_file(item).get("run_id") or ""))


def _newest(item: Item, name: str) -> int | None:
    from rla_client.checkpoint.listing import find_checkpoint  # noqa: PLC0415 - rarely needed

    try:
        return find_checkpoint(Path(item.folder(CHECKPOINT)), name)[0]
    except NoCheckpointError:
        return None
