"""Opening of a run's stream.

An opened run gets its recorders, and logs its folder.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.agent.places import find_places
from rla_client.contract.layout import ARCHIVE_TESTER, FOLDER_KINDS, LOG, OTHER_RESULTS
from rla_client.contract.spool.opening import Opening
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders
from rla_client.run.opened_runs_file import RUN_FILE_VARIABLE, tell_opened
from rla_client.run.opening_frame import address_of, make_opening, worker_opening
from rla_client.run.parameters.run_parameters import add_hyper_param
from rla_client.run.record.excluded_sinks import Row
from rla_client.run.record.rank_mean import Comm
from rla_client.run.record.run_logger import Logger
from rla_client.run.run import Run
from rla_client.run.run_data import RunData
from rla_client.stream.clock import TimeStepHolder
from rla_client.stream.clock import clock as current_clock
from rla_client.stream.outbox import Outbox

if TYPE_CHECKING:
    from rla_client.config.schema import AgentConfig
    from rla_client.media.logged_media.logged_value import LoggedValue


FOLDERS_TOLD = ("log_dir", "pkl_file", "checkpoint_dir", "results_dir", "tmp_data_dir")
process_began = time.time()
opened_here: set[str] = set()  # log folders of items that this process opened


def open_stream(
    opening: Opening,
    sinks: Iterable[str],
    settings: AgentConfig,
    *,
    callback: Callable[[Row], object] | None = None,
    comm: Comm | None = None,
    clock: TimeStepHolder | None = None,
) -> Run:
    """Open the stream of a described run whose folders exist; its clock is by default the current one."""
    places = find_places()
    from rla_client.config.machine_config import settings_of_run, warn_of_machine_keys  # noqa: PLC0415 - not at import

    opening = opening._replace(**settings_of_run(settings))
    warn_of_machine_keys(settings, opening.config)
    outbox = Outbox(
        places,
        opening,
        settings,
        as_worker=lambda: worker_opening(opening),
        config_path=None if opening.config is None else Path(opening.config),
    )
    folder = os.path.join(opening.root, opening.folders[LOG])
    clock = clock or current_clock()
    logger = Logger(folder, sinks, outbox, callback=callback, comm=comm, clock=clock)
    logger.show_media = show_media
    logger.address = address_of(opening, places)
    told = {"sinks": list(sinks), "opening": opening.to_fields(), "address": logger.address}
    logger.for_workers = json.dumps(told)
    tell_opened(os.environ.get(RUN_FILE_VARIABLE, ""), opening)
    return Run(logger, opening, settings)


def show_media(logger: Logger, name: str, value: LoggedValue, step: int) -> None:
    """Send a logged value to TensorBoard, too."""
    from rla_client.run.record.media_events import send_media_event  # noqa: PLC0415 - only where there are media

    send_media_event(logger, name, value, step)


def open_item(data: RunData, item: ItemFolders, **continuing: object) -> Run:
    """Open a stream for `item` and make it the open run of `data`.

    Args:
        data: whose run it becomes.
        item: its folders are there.
        **continuing: further fields of the opening: run, epoch, continues, parent.
    """
    setup = data.setup
    config = setup.configured()[1]
    opening = make_opening(
        root=item.root,
        folders={
            **{kind: item.relative(kind) for kind in FOLDER_KINDS},
            ARCHIVE_TESTER: os.path.dirname(item.relative(ARCHIVE_TESTER)),
        },
        sinks=config.log_used,
        names={},
        item={
            "table": item.table,
            "index": item.index.path,
            "master": setup.is_master_node,
            "run_key": setup.run_id or "",
            "replicate": config.send_log_file and not setup.is_master_node,
            **continuing,
        },
        config_path=config.path,
    )
    data.item, data.disabled = item, None
    opened_here.add(item.folder(LOG))
    setup.record_date = item.opened
    run = open_stream(
        opening, config.log_used, config.agent, callback=setup.log_callback_fn, clock=data.clock
    )
    run.logger.secrets = setup.secrets()
    run.logger.take_parameters = partial(add_hyper_param, data)
    run.logger.sample_limits = config.samples
    if setup.keeps_console:
        from rla_client.run.console.capture import keep_console  # noqa: PLC0415 - not at import of the package

        keep_console(run, config.agent)
    data.run = run
    return run


def bind_recorders(run: Run, item: ItemFolders) -> None:
    """Have recorders of figures and media write through the stream of `run`, the current one."""
    from rla_client.media.recording_target import RecordingTarget, bind  # noqa: PLC0415 - not at import of the package

    bind(RecordingTarget(Path(item.folder(OTHER_RESULTS)), run.outbox, warn))


def say_where(data: RunData, run: Run, item: ItemFolders) -> None:
    """Write the run's folder into its own log."""
    run.logger.print_text(f"rla: this run is stored in {item.folder(LOG)}\n")
    tell_folders(data, run.logger)


def tell_folders(data: RunData, to: Logger, *, echo: bool = False) -> None:
    """Log the folders of the run."""
    for name in FOLDERS_TOLD:
        to.log(f"{name.replace('log_dir', 'log dir')}: {getattr(data, name)}", echo=echo)
