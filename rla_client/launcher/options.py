"""Options of `wrap_experiment`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.launcher.snapshot.snapshot_modes import check_mode

NAME_PARAMETERS = (None, "passed", "all", True)  # True means all


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an experiment's storage. Names and defaults as in garage; the last three are ours.

    Attributes:
        log_dir: folder; default `<cwd>/data/local/<prefix>/<name>`.
        prefix: folder above it.
        name: default: the function's name.
        snapshot_mode: one of SNAPSHOT_MODES.
        snapshot_gap: epochs between snapshots in the gap modes.
        archive_launch_repo: keep the launching repository's code.
        name_parameters: put parameters into the name: `passed` ones or `all` (True: all).
        use_existing_dir: continue in the folder if it exists.
        x_axis: key of the row that is the time-step of curves.
        task_table_name: table of the database that the run becomes an item of.
        data_root: the database; default `$RLA_DATA_ROOT`, else `data` beside the configuration.
        rla_config: path of rla_config.yaml, or its content.
    """

    log_dir: str | os.PathLike[str] | None = None
    prefix: str = "experiment"
    name: str | None = None
    snapshot_mode: str = "last"
    snapshot_gap: int = 1
    archive_launch_repo: bool = True
    name_parameters: str | bool | None = None
    use_existing_dir: bool = False
    x_axis: str = "TotalEnvSteps"
    task_table_name: str | None = None
    data_root: str | os.PathLike[str] | None = None
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "snapshot_gap", check_mode(self.snapshot_mode, self.snapshot_gap))
        if self.name_parameters not in NAME_PARAMETERS:
            message = f"name_parameters is None, 'passed', 'all' or True; got {self.name_parameters!r}"
            raise ArgumentError(message)

    def changed(self, changes: Mapping[str, Any]) -> Options:
        """These options with some replaced.

        Raises:
            ArgumentError: an option does not exist, or has an invalid value.
        """
        known = {field.name for field in fields(self)}
        unknown = sorted(str(name) for name in changes if name not in known)
        if unknown:
            raise ArgumentError(f"unknown option {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        return replace(self, **changes)

    def named_parameters(self, passed: Mapping[str, Any], everything: Mapping[str, Any]) -> Mapping[str, Any]:
        """Parameters that the folder's name shows."""
        if self.name_parameters is None:
            return {}
        return passed if self.name_parameters == "passed" else everything
