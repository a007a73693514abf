"""Processes that store nothing: RLA_MODE=disabled, ranks above 0.

Every call works, and none writes into the database. Where a run is resumed, ranks above 0 learn from
rank 0 where it continues (`ranks.await_resumed`): they get its clock and custom data and may load its
checkpoint, and read it only. Random generators stay their own, or all ranks would draw the same.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rla_client.contract.errors import NoCheckpointError
from rla_client.contract.layout import CHECKPOINT, OTHER_RESULTS
from rla_client.resume.history import restore, take_parameters
from rla_client.run import run as runs
from rla_client.run.current import set_current, warn
from rla_client.run.data import RunData
from rla_client.run.disabled import DisabledRun
from rla_client.run.item import Item
from rla_client.run.ranks import await_resumed, job_file, join_rank_zero, next_number
from rla_client.run.recording import Logger
from rla_client.run.trackers import clear_time


def begin(data: RunData, *, all_ranks: bool) -> None:
    """Open a run that stores nothing, or with `all_ranks` join that of rank 0."""
    setup, meeting = data.setup, meeting_place(data)
    _open(data, meeting, all_ranks=all_ranks)
    if runs.rank() > 0 and not runs.disabled() and setup.resume_mode != "never" and setup.run_id is not None:
        _follow_rank_zero(data, meeting)


def meeting_place(data: RunData) -> Path | None:
    """Where rank 0 tells of its next run; None with RLA_MODE=disabled and outside of a job."""
    table, _config, root = data.setup.configured()
    return None if runs.disabled() else job_file(root, table, next_number(root, table))


def _open(data: RunData, meeting: Path | None, *, all_ranks: bool) -> None:
    setup, config = data.setup, data.setup.configured()[1]
    sinks = tuple(name for name in config.log_used if name != "stdout" or runs.rank() == 0)
    why = "RLA_MODE=disabled" if runs.disabled() else f"rank {runs.rank()}"
    stand_in = DisabledRun(setup.get_task_table_name(), setup.info or "", setup.ipaddr, why)
    data.item, data.disabled = None, stand_in
    joins = all_ranks and not runs.disabled()
    if joins:
        run = join_rank_zero(config, meeting)
    else:
        run = runs.Run(Logger(stand_in.log_dir, sinks, callback=setup.log_callback_fn), None, config.agent)
    run.logger.take_parameters = data.add_hyper_param
    data.run = run
    setup.record_date = datetime.now()  # noqa: DTZ005 - local, as indices
    set_current(run.logger)
    from rla_client.media.jobs import RecordingTarget, bind  # noqa: PLC0415 - not at import of the package

    def results() -> str:
        return stand_in.item().folder(OTHER_RESULTS)

    bind(RecordingTarget(None, None, warn, temporary=results, outside=joins))


def _follow_rank_zero(data: RunData, meeting: Path | None) -> None:
    """Go on where rank 0 does, as far as a process can that writes nothing."""
    from rla_client.resume.resume import find_unfinished  # noqa: PLC0415 - rarely needed

    if meeting is not None:
        found = await_resumed(meeting)
        if found is None:
            warn(
                "rank 0 did not tell where the run continues, so this rank begins at 0: have rank 0 load "
                "the checkpoint and broadcast it (docs/how-to/clusters.md, Ranks)"
            )
        elif found.item is not None:
            _see(data, found.item, found.name, found.time_step)
        return
    table, _config, root = data.setup.configured()
    item = find_unfinished(root, table, data.setup.run_id or "")
    if item is not None:  # no launcher that would let the ranks meet: what is there now
        _see(data, item, *_newest(item))


def look_on(data: RunData, meeting: Path | None, which: str, at: int | None, name: str) -> int | None:
    """`resume` of a process that stores nothing: the run is left as it is.

    Returns:
        The time-step of the checkpoint to load, None where there is none.
    """
    from rla_client.resume.find import find_item, read_run  # noqa: PLC0415 - rarely needed

    table, _config, root = data.setup.configured()
    clear_time()
    _open(data, meeting, all_ranks=False)
    found = None if meeting is None else await_resumed(meeting)
    if found is not None and found.item is not None:
        item, step = found.item, found.time_step
    else:
        item = find_item(root, table, which)
        step = at if at is not None else _newest(item, name)[1]
    if not data.setup.hyper_param:
        take_parameters(data, read_run(item).hyper_param)
    _see(data, item, name, step)
    return step


def _see(data: RunData, item: Item, name: str, step: int | None) -> None:
    from rla_client.run.disabled import SeenCheckpoint  # noqa: PLC0415 - rarely needed
    from rla_client.run.state import read_resume_state  # noqa: PLC0415

    folder = Path(item.folder(CHECKPOINT))
    state = {} if step is None else read_resume_state(folder, name, step) or {}
    own = {key: value for key, value in state.items() if key not in {"random", "logger"}}
    restore(data, own, step, item)
    if step is not None and data.disabled is not None:
        data.disabled.seen = SeenCheckpoint(folder, name, step, _identity(item))


def _identity(item: Item) -> str:
    from rla_client.resume.find import read_run_file  # noqa: PLC0415 - rarely needed

    return str(read_run_file(item).get("run_id") or "")


def _newest(item: Item, name: str = "checkpoint") -> tuple[str, int | None]:
    from rla_client.checkpoint.files import find_checkpoint  # noqa: PLC0415 - rarely needed

    try:
        return name, find_checkpoint(Path(item.folder(CHECKPOINT)), name)[0]
    except NoCheckpointError:
        return name, None
