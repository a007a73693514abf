"""The living run of an id, written by another process of this machine."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import RlaError
from rla_client.contract.layout import OTHER_RESULTS
from rla_client.init_run import default_data_root
from rla_client.integrations.wandb import run_object
from rla_client.integrations.wandb.run_object import Run
from rla_client.integrations.wandb.values import UsageError
from rla_client.joined_run import join
from rla_client.media.row_media import safe_name
from rla_client.run.run_mode import disabled
from rla_client.stream import run_scope as scopes

if TYPE_CHECKING:
    from rla_client.contract.spool.opening import Opening


def living_run(table: str, run_id: str | None) -> tuple[Opening, str] | None:
    """The opening and the address of the run that another process writes; None where there is none."""
    if run_id is None or disabled():
        return None
    from rla_client.run.join_run import living_run_of  # noqa: PLC0415 - rarely needed

    found = living_run_of(default_data_root(), table, run_id)
    return None if found is None or found[0].pid == os.getpid() else found


def join_living_run(
    living: tuple[Opening, str],
    name: str | None,
    project: str,
    options: dict[str, Any],
    settings: Mapping[str, Any],
) -> Run:
    """Join a living run, with wandb's label as the role.

    Raises:
        UsageError: the run has ended meanwhile.
    """
    from rla_client.run.join_run import ROLE  # noqa: PLC0415 - rarely needed

    opening, address = living
    label = safe_name(str(settings.get("x_label") or ""))
    try:
        handle = join(address, role=label if ROLE.fullmatch(label) else "")
    except (RlaError, OSError) as error:
        raise UsageError(str(error)) from error
    folders = opening.log_folder, opening.folder(OTHER_RESULTS)
    opened = Run(name, project, {**options, "joined": folders}, handle)
    run_object.current.put(opened, scopes.current())
    atexit.register(opened.leave)
    return opened
