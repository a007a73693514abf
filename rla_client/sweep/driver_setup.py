"""Setup of a sweep's driver."""

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
    """Data root of a sweep, which may not exist yet, chosen as by `rla_client.init`.

    Raises:
        DatabaseError: there are several databases.
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
    """Make the engine of this name.

    Raises:
        SweepError: the engine cannot be used here, or does not support these runs.
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
    """Make the driver of a file's sweep, which may have been started before.

    Args:
        path: the file.
        root: the database.
        engine: `local`, `slurm` or `ray`.
        name: default name of the sweep, if the file has none; None: the file's name.
        failed: restart failed runs.
        on_look: called about twice a second.

    Returns:
        The sweep's locked journal, the content of the file, and the driver.

    Raises:
        ConfigError: the file has faults.
        SweepError: the sweep cannot be started; nothing was started.
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
    """Content of a sweep's file as of its last start.

    Raises:
        ConfigError: the file is damaged.
    """
    return read_spec(journal.folder / FILE, journal.name)
