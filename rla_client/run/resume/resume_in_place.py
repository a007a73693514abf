"""Continuation of a run in its own item.

`resume_point` determines the point; later figures, checkpoints and rows move to `abandoned-N/`.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.layout import CHECKPOINT, LOG, TIMESTAMP
from rla_client.contract.spool.opening import Continuation, Earlier
from rla_client.run.close import end_left, end_run, entered
from rla_client.run.current_logger import set_current
from rla_client.run.item import ItemFolders
from rla_client.run.item_run import open_item_run
from rla_client.run.open_stream import bind_recorders, say_where
from rla_client.run.parameters.parameter_changes import changed_parameters
from rla_client.run.parameters.run_parameters import mark_parameters
from rla_client.run.rank_meeting import publish
from rla_client.run.record.run_logger import WARN
from rla_client.run.record.time_tracker import clear_time
from rla_client.run.resume.restore import report_changes, restore_state, take_parameters, tell_resumed
from rla_client.run.resume.run_epoch import next_epoch
from rla_client.run.run_data import RunData
from rla_client.run.unstored_run import meeting_place, resume_read_only
from rla_client.run.writing_rank import writes_runs

if TYPE_CHECKING:
    from rla_client.run.resume.resume_point import ResumePoint
    from rla_client.run.run import Run


def continue_at(data: RunData, point: ResumePoint) -> None:
    """Open the run of `point` at that point; the caller loads its checkpoint."""
    from rla_client.run.resume.abandoned_files import abandon_later  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume.worker_tables import cut_worker_tables, saved_moment  # noqa: PLC0415

    setup, item = data.setup, point.item
    take_parameters(setup, item)
    changed = changed_parameters(item, setup.hyper_param, setup.secrets())
    abandon_later(point)
    cut_worker_tables(point)
    resumed = point.name, point.time_step, saved_moment(point)  # before the agent truncates the table itself
    end_run(data, "finished", "")
    with entered(data):
        clear_time()
        run = open_item_run(data, item, run=point.run, epoch=point.epoch, continues=point.continues)
        data.checkpoints.save_after(point.saved_before)
        set_current(run.logger, data.scope)
    publish(item.root, item.table, run.opening, setup.configured()[1].log_used, resumed)
    mark_parameters(data, run)
    bind_recorders(run, item)
    say_where(data, run, item)
    step = point.time_step
    report_changes(data, changed, step)
    restore_state(data, point.state, step, item, point.name)
    at = "the beginning" if step is None else f"{point.name}_{step}"
    tell_resumed(f"from {at}", f"from {at}")
    data.checkpoints.restore_random_state()


def reopen(data: RunData, item: ItemFolders) -> Run:
    """Open an item again with new files; the caller sends the rows that stay once more."""
    from rla_client.run.resume.find_run import read_run_file  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume.resume_point import earlier_times  # noqa: PLC0415

    content = read_run_file(item)
    data.setup.run_id = str(content.get("run_key") or data.setup.run_id or "") or None
    parent = content.get("parent")
    chain = {"parent": parent} if isinstance(parent, dict) else {}
    run = open_item_run(data, item, earlier=earlier_times(content), **chain)
    bind_recorders(run, item)
    return run


def go_on(data: RunData, ended: Run) -> bool:
    """Reopen the run of `data` that this process has ended, behind its last record.

    It does not wait for the agent, which ingests the new stream after the former one.

    Args:
        data: its item, setup and clock are still those of the run.
        ended: the run.

    Returns:
        False where nothing was stored, another process opened it, or its folder is gone.
    """
    from rla_client.contract.checkpoint.checkpoint_age import newest_order  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume.find_run import read_run  # noqa: PLC0415
    from rla_client.run.resume.resume_point import next_abandoned  # noqa: PLC0415

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
    epoch = next_epoch(former.epoch)
    with entered(data):
        clear_time()
        run = open_item_run(data, item, run=former.run, epoch=epoch, continues=whole)
        data.checkpoints.save_after(newest_order(Path(item.folder(CHECKPOINT))))
        set_current(run.logger, data.scope)
    data.gave_way = 0
    publish(item.root, item.table, run.opening, data.setup.configured()[1].log_used)
    data.custom.take_of(ended, lambda: read_run(item).custom_data)
    mark_parameters(data, run)
    bind_recorders(run, item)
    run.logger.log(f"[RESUME] {data.clock.get_time()} : behind its last row", echo=False)
    return True


def take_back(data: RunData, step: float) -> bool:
    """Withdraw the open run's rows from `step` on, which new ones will replace.

    They are moved to `abandoned-N/`. It does not wait for the agent.

    Returns:
        False where the spool takes no new stream, and the rows stay.
    """
    from rla_client.run.resume.resume_point import next_abandoned  # noqa: PLC0415

    run, item = data.run, data.item
    if run is None or item is None:
        return True
    kept = next_abandoned(item)
    try:
        os.mkdir(os.path.join(item.folder(LOG), kept))  # so that the next one gets another name
    except OSError as error:
        run.logger.log(
            f"{kept} was not made, the agent will: {error.strerror or error}", level=WARN, quiet=True
        )
    return run.go_on(time_step=math.nextafter(step, -math.inf), abandoned=kept)


def resume(data: RunData, which: str, at: int | None, name: str) -> tuple[str, int | None]:
    """Continue an earlier run; see `ExpManager.resume`. Returns its checkpoint's series and time-step."""
    if not writes_runs():
        meeting = meeting_place(data)
        end_run(data, "finished", "")
        return name, resume_read_only(data, meeting, which, at, name)
    from rla_client.run.resume.resume_point import prepare  # noqa: PLC0415

    table, config, root = data.setup.configured()
    point = prepare(root, table, which, at, name, autostart=config.agent.autostart)
    continue_at(data, point)
    return point.name, point.time_step
