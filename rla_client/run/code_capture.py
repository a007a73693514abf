"""Capture of a run's code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rla_client.contract.agent.places import find_places
from rla_client.contract.layout import CODE, LOG
from rla_client.contract.process.descriptors import standard_taken
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders
from rla_client.run.run import Run
from rla_client.run.run_data import RunData


@standard_taken()
def capture_code(data: RunData, run: Run, item: ItemFolders, tell: Callable[[str], None] = warn) -> None:
    """Capture code and environment at the beginning of a run; failures are warnings."""
    from rla_client.code.backup import back_up_code  # noqa: PLC0415 - not at import of the package
    from rla_client.code.backup_plan import BackupPlan  # noqa: PLC0415
    from rla_client.code.environment import EnvironmentCapture  # noqa: PLC0415 - not at import of the package

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
