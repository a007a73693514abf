"""Run that stores nothing.

It is opened with RLA_MODE=disabled, on ranks above 0 and on systems other than Linux. Every call works, and
none writes into the database. Where a run is resumed, ranks above 0 learn from rank 0 where it continues
(`rank_meeting.await_resumed`): they get its clock and custom data and may load its checkpoint, read-only.
Each keeps its own random generators, or all ranks would draw the same numbers.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path

from rla_client.contract.errors import NoCheckpointError
from rla_client.contract.layout import CHECKPOINT, OTHER_RESULTS, PRINTED
from rla_client.contract.process.system import on_linux, why_not_recorded
from rla_client.run import run_mode, torch_store
from rla_client.run.close import entered
from rla_client.run.current_logger import set_current, warn
from rla_client.run.item import ItemFolders
from rla_client.run.parameters.run_parameters import add_hyper_param
from rla_client.run.rank_meeting import (
    APART_WAIT_S,
    RESUMED_WAIT_S,
    Meeting,
    await_resumed,
    checkpoints_of_rank_zero,
    join_rank_zero,
    meeting_of,
    next_number,
    tell_rank,
)
from rla_client.run.rank_variables import rank
from rla_client.run.record.run_logger import Logger
from rla_client.run.record.time_tracker import clear_time
from rla_client.run.resume.restore import restore_state, take_parameters
from rla_client.run.run import Run
from rla_client.run.run_checkpoints import CHECKPOINT_NAME
from rla_client.run.run_data import RunData
from rla_client.run.state.resume_state import read_resume_state
from rla_client.run.temporary_item import SeenCheckpoint, TemporaryItem


def begin_storing_nothing(data: RunData, *, all_ranks: bool) -> None:
    """Open a run that stores nothing, or with `all_ranks` join that of rank 0."""
    setup, meeting = data.setup, meeting_place(data)
    storing = run_mode.disabled() or rank() == 0
    follows = not storing and setup.resume_mode != "never" and setup.run_id is not None
    apart = "" if storing or not (all_ranks or follows) else _why_apart(setup.configured()[2], meeting)
    end_wait_s = APART_WAIT_S if torch_store.may_come() else 0.0
    if apart and all_ranks and end_wait_s:
        tell_rank(f"joins the run of rank 0 once torch's process group is there, and not before: {apart}")
    elif apart and all_ranks:
        tell_rank(f"cannot join the run of rank 0; its records are not kept: {apart}")
    if not on_linux() and run_mode.mode() != "disabled" and rank() == 0:
        warn(f"{why_not_recorded()}: this run is not stored")
    with entered(data):
        joins = all_ranks and not storing
        _open_storing_nothing(data, meeting, all_ranks=joins, end_wait_s=end_wait_s if apart else None)
    if follows:
        _follow_rank_zero(data, meeting, apart)


def meeting_place(data: RunData) -> Meeting | None:
    """Where rank 0 publishes its next run; None with RLA_MODE=disabled and outside of a job."""
    table, config, root = data.setup.configured()
    return None if run_mode.disabled() else meeting_of(root, table, next_number(root, table), config)


def _why_apart(root: str, meeting: Meeting | None) -> str:
    return (meeting or Meeting("", None)).why_apart(root)


def _open_storing_nothing(
    data: RunData, meeting: Meeting | None, *, all_ranks: bool = False, end_wait_s: float | None = None
) -> None:
    """Open the run; with `all_ranks` its records wait for rank 0's.

    Args:
        data: becomes such a run's.
        meeting: where rank 0 publishes its run.
        all_ranks: see `begin_storing_nothing`.
        end_wait_s: how long they wait when this rank ends; None: as at every exit.
    """
    setup, config = data.setup, data.setup.configured()[1]
    sinks = tuple(name for name in config.log_used if name not in PRINTED or rank() == 0)
    why = run_mode.why_disabled() if run_mode.disabled() else f"rank {rank()}"
    rank_zero = partial(checkpoints_of_rank_zero, None if rank() == 0 else meeting)
    stand_in = TemporaryItem(
        setup.get_task_table_name(),
        setup.info or "",
        setup.ipaddr,
        why,
        rank_zero,
        autostart=config.agent.autostart,
    )
    data.item, data.disabled = None, stand_in
    if all_ranks and meeting is not None:
        run = join_rank_zero(
            setup, meeting, config.agent.exit_wait_s if end_wait_s is None else end_wait_s, data.clock
        )
    else:
        callback = setup.log_callback_fn
        run = Run(Logger(stand_in.log_dir, sinks, callback=callback, clock=data.clock), None, config.agent)
    run.logger.take_parameters = partial(add_hyper_param, data)
    data.run = run
    setup.record_date = datetime.now()  # noqa: DTZ005 - local, as indices
    set_current(run.logger, data.scope)
    from rla_client.media.recording_target import RecordingTarget, bind  # noqa: PLC0415 - not at import of the package

    def results() -> str:
        return stand_in.item().folder(OTHER_RESULTS)

    bind(RecordingTarget(None, None, warn, temporary=results, outside=all_ranks))


def _follow_rank_zero(data: RunData, meeting: Meeting | None, apart: str) -> None:
    """Continue where rank 0 does, as far as a process can that writes nothing."""
    from rla_client.run.resume.find_run import find_unfinished  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume.resume_point import is_over  # noqa: PLC0415

    if meeting is not None:
        found = await_resumed(meeting, data.setup.configured()[2], APART_WAIT_S if apart else RESUMED_WAIT_S)
        if found is None:
            why = f" ({apart})" if apart else ""
            tell_rank(
                f"does not know where the run continues, and begins at 0: rank 0 did not tell{why}. Have "
                "rank 0 load the checkpoint and broadcast it (docs/how-to/clusters.md, Ranks)"
            )
        elif found.item is not None:
            _load_state_of_rank_zero(data, found.item, found.name, found.time_step)
        return
    table, _config, root = data.setup.configured()
    item = find_unfinished(root, table, data.setup.run_id or "", any_state=True)
    if item is not None and not is_over(item):  # the launcher lets no ranks meet: the present state is used
        _load_state_of_rank_zero(data, item, CHECKPOINT_NAME, _newest(data, item, CHECKPOINT_NAME))


def resume_read_only(
    data: RunData, meeting: Meeting | None, which: str, at: int | None, name: str
) -> int | None:
    """`resume` in a process that stores nothing, which leaves the run unchanged.

    Returns:
        The time-step of the checkpoint to load, None where there is none.
    """
    from rla_client.run.resume.find_run import find_item  # noqa: PLC0415 - rarely needed

    table, _config, root = data.setup.configured()
    with entered(data):
        clear_time()
        _open_storing_nothing(data, meeting)
    wait_s = APART_WAIT_S if _why_apart(root, meeting) else RESUMED_WAIT_S
    found = None if meeting is None else await_resumed(meeting, root, wait_s)
    if found is not None and found.item is not None:
        item, step = found.item, found.time_step
    else:
        item = find_item(root, table, which)
        step = at if at is not None else _newest(data, item, name)
    take_parameters(data.setup, item)
    _load_state_of_rank_zero(data, item, name, step)
    return step


def _load_state_of_rank_zero(data: RunData, item: ItemFolders, name: str, step: int | None) -> None:
    from rla_client.run.resume.find_run import read_run_file  # noqa: PLC0415 - rarely needed

    folder = Path(item.folder(CHECKPOINT))
    if step is not None and not folder.is_dir():
        tell_rank(
            f"continues at time-step {step} without the custom data of {name}_{step}, which lie on rank 0's "
            "machine: load_sharded brings a sharded checkpoint; all else rank 0 has to load and broadcast "
            "(docs/how-to/clusters.md, Ranks)"
        )
    state = {} if step is None else read_resume_state(folder, name, step) or {}
    own = {key: value for key, value in state.items() if key not in {"random", "logger"}}
    restore_state(data, own, step, item, name)
    if step is not None and data.disabled is not None:
        data.disabled.seen = SeenCheckpoint(folder, name, step, str(read_run_file(item).get("run_id") or ""))


def _newest(data: RunData, item: ItemFolders, name: str) -> int | None:
    from rla_client.checkpoint.listing import find_checkpoint  # noqa: PLC0415 - rarely needed

    try:
        folder = Path(item.folder(CHECKPOINT))
        return find_checkpoint(folder, name, autostart=data.setup.starts_agent)[0]
    except NoCheckpointError:
        return None
