"""`rla restore-code`: restored code of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.experiment_folder import Experiment, find_log_dir
from rla_client.cli.options import AsJson, DataRoot, TableOption
from rla_client.cli.output import print_done
from rla_client.cli.registration import BEGIN, add_command


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("rla restore-code @last ../then", "rla restore-code data/local/experiment/ppo ../then")
    add_command(app, restore_code, BEGIN, *lines, name="restore-code")


def restore_code(
    run: Experiment,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the code.")],
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Restore the code that a run was started from; of a launcher's run every file is checked by its hash."""
    from rla_client.launcher import code_restore
    from rla_client.launcher.launch_record import is_of_launcher

    log_dir = find_log_dir(run, table, data_root)
    if not is_of_launcher(log_dir):
        copied = code_restore.copy_code(log_dir, folder)
        facts = {"file": str(folder), "files": copied, "left_out": {}}
        print_done(facts, f"{copied} files in {folder}, the copy that the run keeps", as_json=as_json)
        return
    manifest = code_restore.restore_code(log_dir, folder)
    left = sorted(manifest.left_out.items())
    lines = [f"{len(manifest.files)} files in {folder}, each all hashes as recorded"]
    lines += [f"not archived: {name} ({why})" for name, why in left]
    facts = {"file": str(folder), "files": len(manifest.files), "left_out": dict(left)}
    print_done(facts, "\n".join(lines), as_json=as_json)
