"""What a launcher's function gets as `ctxt`, and the rules of the snapshot modes. Pure.

Modes (names and files as in garage):

    all           itr_N.pkl at every epoch
    last          params.pkl at every epoch
    gap           itr_N.pkl where N is a multiple of the gap
    gap_and_last  both of these
    gap_overwrite params.pkl where N is a multiple of the gap (> 1)
    none          nothing
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from rla_client.contract.errors import ArgumentError
from rla_client.stream.values import whole_number

NAME_PARAMETERS = (None, "passed", "all", True)  # True means all
SNAPSHOT_MODES = ("all", "last", "gap", "gap_and_last", "gap_overwrite", "none")
LAST_FILE = "params.pkl"

ResumeFrom: TypeAlias = int | Literal["last", "first"] | None


class SnapshotConfig(NamedTuple):
    """Where a runner leaves its snapshots, and when."""

    snapshot_dir: str
    snapshot_mode: str = "last"
    snapshot_gap: int = 1


@dataclass(frozen=True, slots=True)
class ExperimentContext:
    """The first argument of a wrapped experiment.

    Attributes:
        snapshot_dir: folder of the snapshots.
        snapshot_mode: one of SNAPSHOT_MODES.
        snapshot_gap: epochs between snapshots in the gap modes.
        log_dir: folder of progress.csv, debug.log and the rest; the snapshots lie there too
            unless the run is an item of a database.
        x_axis: key of the row that is the time-step of curves.
        resume_from: the snapshot that `LocalRunner.train` continues from; None for a new run.
    """

    snapshot_dir: str
    snapshot_mode: str
    snapshot_gap: int
    log_dir: str = ""
    x_axis: str = "TotalEnvSteps"
    resume_from: ResumeFrom = None


def check_mode(mode: object, gap: object) -> int:
    """The gap, of a mode and gap that can be meant.

    Raises:
        ArgumentError: unknown mode, gap below 1, `last` with a gap, `gap_overwrite` without one.
    """
    if mode not in SNAPSHOT_MODES:
        raise ArgumentError(f"snapshot_mode must be one of {', '.join(SNAPSHOT_MODES)}; got {mode!r}")
    gap = whole_number(gap, "snapshot_gap")
    if mode == "last" and gap != 1:
        message = f"snapshot_mode 'last' saves every epoch; for snapshot_gap={gap} use 'gap_overwrite'"
        raise ArgumentError(message)
    if mode == "gap_overwrite" and gap == 1:
        message = "snapshot_mode 'gap_overwrite' needs a snapshot_gap over 1; for every epoch use 'last'"
        raise ArgumentError(message)
    return gap


def snapshot_names(mode: str, gap: int, itr: int) -> tuple[str, ...]:
    """File names that epoch `itr` writes under a checked mode and gap."""
    numbered = f"itr_{itr}.pkl"
    due = itr % gap == 0
    names = {
        "all": (numbered,),
        "last": (LAST_FILE,),
        "gap": (numbered,) if due else (),
        "gap_and_last": (numbered, LAST_FILE) if due else (LAST_FILE,),
        "gap_overwrite": (LAST_FILE,) if due else (),
        "none": (),
    }
    return names[mode]


@dataclass(frozen=True, slots=True)
class Options:
    """How an experiment is kept. Names and defaults as in garage; the last three are ours.

    Attributes:
        log_dir: folder; default `<cwd>/data/local/<prefix>/<name>`.
        prefix: folder above it.
        name: default: the function's name.
        snapshot_mode: see `context`.
        snapshot_gap: epochs between snapshots in the gap modes.
        archive_launch_repo: keep the launching repository's code.
        name_parameters: put parameters into the name: `passed` ones or `all` (True: all).
        use_existing_dir: continue in the folder if it is there.
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
        if not any(
            self.name_parameters is known or self.name_parameters == known for known in NAME_PARAMETERS
        ):
            message = f"name_parameters is None, 'passed', 'all' or True; got {self.name_parameters!r}"
            raise ArgumentError(message)

    def changed(self, changes: Mapping[str, Any]) -> Options:
        """These options with some replaced.

        Raises:
            ArgumentError: an option that there is not, or a value that cannot be meant.
        """
        known = {field.name for field in fields(self)}
        unknown = sorted(str(name) for name in changes if name not in known)
        if unknown:
            raise ArgumentError(f"unknown option {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        return replace(self, **changes)

    def named_parameters(self, passed: Mapping[str, Any], everything: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those parameters that the folder's name shows."""
        if self.name_parameters is None or self.name_parameters is False:
            return {}
        return passed if self.name_parameters == "passed" else everything
