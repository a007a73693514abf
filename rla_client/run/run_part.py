"""Part of a run that this machine writes.

Another machine has the run's main process, whose description applies here except for the folders: the item
has the same index below this machine's own data root. Where both share the root, it is the same folder, and
the machine of the main process sends all of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rla_client.contract.agent.machine_name import machine_name
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import NoSuchRunError, RlaError
from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.layout import FOREIGN_MARK, HYPARAMETER, LOG, OTHER_RESULTS
from rla_client.contract.spool.opening import LAUNCH_VARIABLE, Continuation, Opening
from rla_client.run.opening_frame import check_path, readable
from rla_client.run.run_mode import mode

if TYPE_CHECKING:
    from rla_client.config.schema import Config
    from rla_client.run.configure import RunSetup


def opening_here(
    told: Opening, machine: str, root: str, config: Config, *, master: bool, cut: Continuation | None = None
) -> Opening:
    """The run's description for this machine; makes its folders here.

    Args:
        told: by the main process, on another machine.
        machine: this one's name.
        root: data root of this process.
        config: likewise.
        master: this machine is the master.
        cut: of a resumed run: where rows, events and samples of this machine alone are truncated.

    Raises:
        NoSuchRunError: the folder cannot be made, or a copy of the run lies in its place.
    """
    from rla_client.config.machine_config import settings_of_run  # noqa: PLC0415 - rarely needed

    try:
        real = check_path(root)
        os.makedirs(real, exist_ok=True)
        found = os.stat(real)
        log = os.path.join(real, told.folders[LOG])
        copied = os.path.lexists(os.path.join(log, FOREIGN_MARK))
        # a part makes only some folders of an item, so all of them mean that the root is shared
        shared = os.path.isdir(os.path.join(real, told.folders.get(HYPARAMETER, LOG)))
        if not copied:
            for kind in (LOG, OTHER_RESULTS):  # media need theirs
                os.close(open_folder(real, told.folders.get(kind, told.folders[LOG]), create=True))
    except (OSError, RlaError) as error:
        raise NoSuchRunError(f"the run {told.title} has no folder in {root}: {error}") from error
    if copied:
        raise NoSuchRunError(f"a copy of the run from the master lies where this machine would write: {log}")
    sends = config.send_log_file and not master
    return told._replace(
        root=real,
        root_device=found.st_dev,
        root_inode=found.st_ino,
        config=None if config.path is None else os.path.abspath(config.path),
        offline=mode() == "offline",
        master=master,
        replicate=sends and not shared,
        launch=readable(os.environ.get(LAUNCH_VARIABLE, "")[:64]),
        continues=None if told.continues is None else _continues(told.continues, None if shared else cut),
        primary=False,
        part=machine,
        **settings_of_run(config.agent),
    )


def part_of_told(told: Opening, found: Mapping[str, Any], setup: RunSetup) -> Opening:
    """Rank 0's description of its run, for this machine.

    Raises:
        NoSuchRunError: there can be no part of the run here.
    """
    machine = machine_name(find_places())
    if not told.index or found.get("machine", machine) == machine:
        return told
    _table, config, root = setup.configured()
    cut = None
    if (resumed := found.get("resumed")) is not None:
        _name, step, saved = resumed
        cut = Continuation(rows=0, samples=0)
        if step is not None:
            cut = Continuation(time_step=float(step), saved=-math.inf if saved is None else float(saved))
    return opening_here(told, machine, root, config, master=setup.is_master_node, cut=cut)


def _continues(told: Continuation, cut: Continuation | None) -> Continuation:
    """The continuation of this machine's outputs: the main process's counts rows of its own table only."""
    return (cut or Continuation())._replace(abandoned=told.abandoned, earlier=told.earlier)
