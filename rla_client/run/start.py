"""Opening the stream of an item, and what every run begins with: recorders, code, where it lies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.descriptors import standard_taken
from rla_client.contract.layout import ARCHIVE_TESTER, CODE, FOLDER_KINDS, LOG, OTHER_RESULTS
from rla_client.contract.paths import find_places
from rla_client.run.current import warn
from rla_client.run.run import Run, make_opening, open_run

if TYPE_CHECKING:
    from rla_client.run.data import RunData
    from rla_client.run.item import Item
    from rla_client.run.recording import Logger

FOLDERS_TOLD = ("log_dir", "pkl_file", "checkpoint_dir", "results_dir", "tmp_data_dir")


def open_item(data: RunData, item: Item, **continuing: object) -> Run:
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
    setup.record_date = item.opened
    run = open_run(opening, config.log_used, config.agent, callback=setup.log_callback_fn)
    run.logger.secrets = setup.secrets()
    run.logger.take_parameters = data.add_hyper_param
    if setup.keeps_console:
        from rla_client.run.console import keep_console  # noqa: PLC0415 - not at import of the package

        keep_console(run, config.agent)
    data.run = run
    return run


def bind_recorders(run: Run, item: Item) -> None:
    """Have recorders of figures and media write through the stream of `run`."""
    from rla_client.media.jobs import RecordingTarget, bind  # noqa: PLC0415 - not at import of the package

    bind(RecordingTarget(Path(item.folder(OTHER_RESULTS)), run.outbox, warn))


@standard_taken()
def capture_code(data: RunData, run: Run, item: Item, tell: Callable[[str], None] = warn) -> None:
    """Capture code and environment; whatever goes wrong is told."""
    from rla_client.code.backup import back_up_code  # noqa: PLC0415 - not at import of the package
    from rla_client.code.environment import EnvironmentCapture  # noqa: PLC0415
    from rla_client.code.select import BackupPlan  # noqa: PLC0415

    setup, config = data.setup, data.setup.configured()[1]
    if setup.project_root is None:
        return
    root = Path(setup.project_root)
    capture = EnvironmentCapture(root, secrets=setup.secrets())
    backup, found = config.backup_config, setup.found_code
    if found is not None:
        tell(found.told())
    plan = BackupPlan(
        code_root=root,
        lib_mode=config.project_type.backup_code_by == "lib",
        code_dirs=backup.backup_code_dir if found is None else found.code_dirs(),
        lib_dir=backup.lib_dir,
        run_files=tuple(setup.run_file),
        ignore_file=None if setup.ignore_file_path is None else Path(setup.ignore_file_path),
        ignore_rules=backup.ignore_code_paths,
        data_roots=(Path(item.root), find_places().state),  # reading a spool lock would drop it
        secrets=config.secret_files,
        sources_only=found is not None,
    )
    report = back_up_code(plan, run.outbox, Path(item.folder(CODE)), tell)
    capture.write(lambda content: run.file(LOG, "environment.json", content), report)


def say_where(data: RunData, run: Run, item: Item) -> None:
    """Tell in the run's own log where it lies."""
    run.logger.print_text(f"rla: this run is stored in {item.folder(LOG)}\n")
    tell_folders(data, run.logger)


def tell_folders(data: RunData, to: Logger, *, echo: bool = False) -> None:
    """Log the folders of the run."""
    for name in FOLDERS_TOLD:
        to.log(f"{name.replace('log_dir', 'log dir')}: {getattr(data, name)}", echo=echo)
