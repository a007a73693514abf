"""Opening of an item's run.

The run is the process's own or, by `begin_beside`, one of several that it writes at a time. Such a run leaves
clock, current logger, recorders and the run that worker processes join unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import RlaError
from rla_client.contract.run_index import make_info
from rla_client.contract.spool.opening import Continuation
from rla_client.run.code_capture import capture_code
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders, create_item
from rla_client.run.open_stream import open_item, tell_folders
from rla_client.run.parameters.parameter_changes import changed_parameters
from rla_client.run.parameters.parameter_file import parameter_file, write_parameters
from rla_client.run.parameters.run_parameters import mark_parameters, note_changes, send_parameters
from rla_client.run.record.run_logger import WARN
from rla_client.run.run_checkpoints import CHECKPOINT_NAME
from rla_client.run.run_data import RunData
from rla_client.run.state.run_archive import save_archive
from rla_client.run.writing_rank import writes_runs
from rla_client.stream.param_values import name_of

if TYPE_CHECKING:
    from rla_client.run.configure import RunSetup
    from rla_client.run.run import Run


def tracked_info(setup: RunSetup) -> str:
    """The tracked hyper-parameters as a part of the index."""
    secrets = setup.secrets()
    return make_info((name, name_of(secrets.value(name, value))) for name, value in setup.tracked)


def new_item_run(data: RunData, item: ItemFolders, **continuing: object) -> Run:
    """Open the stream of a new item, with its parameters and its archive."""
    setup = data.setup
    name, content = parameter_file(setup.shown_parameters())
    write_parameters(item, name, content)
    run = open_item_run(data, item, **continuing)
    send_parameters(data, run, name, content)
    save_archive(data)
    return run


def open_item_run(data: RunData, item: ItemFolders, **continuing: object) -> Run:
    """Open the stream of an item, beside whose run further ones may be opened."""
    run = open_item(data, item, **continuing)
    run.logger.write_beside = partial(write_beside, data)
    return run


def begin_beside(data: RunData, earlier: ItemFolders | None = None) -> int | float | None:
    """Open the run that the setup describes beside that of the process.

    Clock, current logger, recorders and the run that worker processes join stay unchanged: the caller writes
    by `Logger.write_row`, and closes the run that `RunData.let_go` returns. Does nothing where nothing is
    stored.

    Args:
        data: its setup is configured.
        earlier: continue in this run, behind its last record.

    Returns:
        The time-step of the last row of `earlier`; None for a new run.

    Raises:
        ArgumentError: the data root cannot be written.
        StillWritingError: a living process writes `earlier`.
        RlaError: no agent has written the records of `earlier`.
    """
    setup = data.setup
    table, config, root = setup.configured()
    if not writes_runs():
        return None
    setup.keeps_console = False  # console output belongs to the process's run
    setup.info = tracked_info(setup)
    if earlier is not None:
        return _append_to_existing_run(data, earlier, autostart=config.agent.autostart)
    item = create_item(root, table, setup.info, setup.ipaddr)
    run = new_item_run(data, item)
    own = run.logger
    capture_code(data, run, item, lambda text: own.log(text, level=WARN, quiet=True))
    tell_folders(data, own)
    return None


def write_beside(
    data: RunData, parameters: Mapping[str, Any], metrics: Mapping[str, Any], step: int | None = None
) -> None:
    """Make a finished run beside that of `data`, with `parameters` beside its own and a row of `metrics`.

    A failure is a warning.
    """
    from rla_client.run.record.summary_writer import AgentSummaryWriter, writer_arguments  # noqa: PLC0415 - slow to import

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


def _append_to_existing_run(data: RunData, item: ItemFolders, *, autostart: bool) -> int | float | None:
    """Open the stream of a run that continues with all of its rows, events and files."""
    from rla_client.run.resume.find_run import read_run_file  # noqa: PLC0415
    from rla_client.run.resume.resume_point import prepare  # noqa: PLC0415

    point = prepare(item.root, item.table, item, None, CHECKPOINT_NAME, autostart=autostart)
    whole = Continuation(
        abandoned=point.continues.abandoned, after=point.continues.after, earlier=point.continues.earlier
    )
    changed = changed_parameters(item, data.setup.hyper_param, data.setup.secrets())
    run = open_item_run(data, item, run=point.run, epoch=point.epoch, continues=whole)
    mark_parameters(data, run)
    step = read_run_file(item).get("time_step")
    run.logger.log(f"[RESUME] {step} : behind its last row", echo=False)
    last = step if isinstance(step, int | float) else None
    note_changes(data, changed, last)
    return last
