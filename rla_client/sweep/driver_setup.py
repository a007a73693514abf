"""Setup of a sweep's driver.

`begin` makes a driver from a sweep's file, also of one that was begun before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rla_client.config.project import DATA_FOLDER, find_config
from rla_client.contract.errors import DatabaseError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.database.tree.data_root import NoRunsYetError, find_data_root
from rla_client.sweep.command import check_command
from rla_client.sweep.driver import Driver
from rla_client.sweep.engines.base import Engine
from rla_client.sweep.engines.local import LocalEngine
from rla_client.sweep.journal import FILE, Journal, SweepError
from rla_client.sweep.run_state import FAILED
from rla_client.sweep.samplers import make_sampler
from rla_client.sweep.spec import Spec
from rla_client.sweep.sweep_file import read_spec


def find_root(given: Path | None) -> Path:
    """The database of a sweep, which may not be there yet: as `rla_client.init` chooses it.

    Raises:
        DatabaseError: there are several.
    """
    if given is not None:
        return given.absolute()
    here = Path.cwd()
    config = find_config(here)
    try:
        return find_data_root(here)
    except NoRunsYetError:
        return (here if config is None else config.parent) / DATA_FOLDER
    except DatabaseError:
        if config is not None:
            raise
        return here / DATA_FOLDER


def make_engine(name: str, spec: Spec, journal: Journal) -> Engine:
    """The engine of this name.

    Raises:
        SweepError: it cannot be used here, or takes no such run.
    """
    if name == "slurm":
        from rla_client.sweep.engines.slurm_engine import SlurmEngine  # noqa: PLC0415 - an extra

        return SlurmEngine(spec, journal)
    if name == "ray":
        from rla_client.sweep.engines.ray_engine import RayEngine  # noqa: PLC0415 - an extra

        return RayEngine(spec, journal)
    return LocalEngine(spec.resources)


def begin(
    path: Path,
    root: Path,
    engine: str,
    *,
    name: str | None = None,
    failed: bool = False,
    on_look: Callable[[Journal, Spec], None],
) -> tuple[Journal, Spec, Driver]:
    """Be the driver of the sweep of a file, which may have been begun before.

    Args:
        path: the file.
        root: the database.
        engine: `local`, `slurm` or `ray`.
        name: of the sweep where the file gives none; None: that of the file.
        failed: start again what failed.
        on_look: called about twice a second.

    Returns:
        The sweep, held; its file; what runs it.

    Raises:
        ConfigError: the file has faults.
        SweepError: it cannot be started; nothing was.
    """
    spec = read_spec(path, name)
    text = path.read_bytes()
    journal = Journal(root, spec.name)
    folder = journal.read().begun_in if journal.exists() else os.getcwd()
    if not os.path.isdir(folder):
        raise SweepError(f"{folder}, where the sweep was started, no longer exists")
    check_command(spec, Path(folder))
    sampler = make_sampler(spec)
    journal.hold()
    try:
        made = make_engine(engine, spec, journal)
        write_atomic(journal.folder / FILE, text)
        for run in journal.runs.values():
            if failed and run.state == FAILED:
                journal.tell(run, "revived")
    except BaseException:
        journal.discard()
        journal.release()
        raise
    return journal, spec, Driver(journal, spec, made, sampler, lambda: on_look(journal, spec))


def kept_spec(journal: Journal) -> Spec:
    """The file of a sweep as it was last started.

    Raises:
        ConfigError: it is damaged.
    """
    return read_spec(journal.folder / FILE, journal.name)
