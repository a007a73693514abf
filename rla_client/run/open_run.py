"""Opening of the process's run.

By `resume`, that is:

* `never`: a new item.
* `allow`, `must`: the newest run of the run_id, where a newer one of another machine does not replace
  it; that one's checkpoint is put into a new item, chained to it. A finished run continues at its last
  checkpoint; without one it is left unchanged. A failure of disk, agent or master is a warning and a new
  item with `allow`, an error with `must`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.layout import CHECKPOINT
from rla_client.run import run_mode
from rla_client.run.close import end_left, end_run, entered
from rla_client.run.code_capture import capture_code
from rla_client.run.current_logger import set_current
from rla_client.run.item import ItemFolders, create_item
from rla_client.run.item_run import new_item_run, tracked_info
from rla_client.run.open_stream import bind_recorders, say_where
from rla_client.run.parameters.parameter_changes import changed_parameters
from rla_client.run.rank_meeting import check_job, publish
from rla_client.run.rank_variables import rank
from rla_client.run.record.time_tracker import clear_time
from rla_client.run.resume.restore import report_changes, restore_state, tell_resumed
from rla_client.run.resume.resume_in_place import continue_at
from rla_client.run.run_checkpoints import CHECKPOINT_NAME
from rla_client.run.run_data import RunData
from rla_client.run.unstored_run import begin_storing_nothing
from rla_client.run.writing_rank import writes_runs

if TYPE_CHECKING:
    from rla_client.run.resume.chain import Chained


def open_run(data: RunData, *, all_ranks: bool = False) -> None:
    """Open the run that the setup describes; see `ExpManager.log_files_gen`.

    Raises:
        ArgumentError: `all_ranks`, and this rank has no way to learn of rank 0's run.
    """
    data.setup.configured()
    if all_ranks and rank() > 0 and not run_mode.disabled():
        check_job()
    end_left()
    end_run(data, "finished", "")
    with entered(data):
        _open_own_run(data, all_ranks=all_ranks)


def open_by_address(data: RunData, address: str, role: str = "") -> None:
    """Join another process's run instead of opening an own one; see `rla_client.join`."""
    from rla_client.run.join_run import join_run  # noqa: PLC0415 - rarely needed

    data.setup.configured()
    end_left()
    end_run(data, "finished", "")
    with entered(data):
        if run_mode.disabled():
            begin_storing_nothing(data, all_ranks=False)
        else:
            join_run(data, address, role)


def _open_own_run(data: RunData, *, all_ranks: bool) -> None:
    setup = data.setup
    table, _config, root = setup.configured()
    if setup.record_date is not None:
        data.clock.clear()
    clear_time()
    setup.info = tracked_info(setup)
    setup.named = len(setup.tracked)
    if not writes_runs():
        begin_storing_nothing(data, all_ranks=all_ranks)
        return
    chained = None
    if setup.resume_mode != "never" and setup.run_id is not None:
        from rla_client.run.resume.resume_mode import where_to_continue, with_checkpoint  # noqa: PLC0415 - rarely needed

        point, chained = where_to_continue(setup, setup.run_id)
        if point is not None:
            continue_at(data, point)
            return
    item = create_item(root, table, setup.info, setup.ipaddr)
    if chained is not None:
        chained = with_checkpoint(setup, chained, item)
    _open_new(data, item, chained)


def _open_new(data: RunData, item: ItemFolders, chained: Chained | None) -> None:
    setup = data.setup
    run = new_item_run(data, item, **({} if chained is None else {"parent": chained.link}))
    set_current(run.logger, data.scope)
    bind_recorders(run, item)
    capture_code(data, run, item)
    resumed = None if chained is None else (CHECKPOINT_NAME, chained.time_step, None)
    publish(item.root, item.table, run.opening, setup.configured()[1].log_used, resumed)
    say_where(data, run, item)
    if chained is not None:
        _continue_chain(data, chained)


def _continue_chain(data: RunData, chained: Chained) -> None:
    """Take over the state of the earlier run's checkpoint, which is in the new item."""
    changed = changed_parameters(chained.parent, data.setup.hyper_param, data.setup.secrets())
    report_changes(data, changed, chained.time_step)
    restore_state(data, chained.state, chained.time_step, chained.parent, CHECKPOINT_NAME)
    from rla_client.contract.checkpoint.checkpoint_age import newest_order  # noqa: PLC0415 - rarely needed

    data.checkpoints.save_after(newest_order(Path(data.folder_of(CHECKPOINT))))
    at = f"from {CHECKPOINT_NAME}_{chained.time_step} of {chained.parent.index.path}"
    tell_resumed(at, f"{at}, begun on {chained.link.get('host')}")
    data.checkpoints.restore_random_state()
