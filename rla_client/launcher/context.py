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

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from rla_client.contract.errors import ArgumentError

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
        resume_from: the snapshot that `LocalRunner.train` goes on from; None for a new run.
    """

    snapshot_dir: str
    snapshot_mode: str
    snapshot_gap: int
    log_dir: str = ""
    x_axis: str = "TotalEnvSteps"
    resume_from: ResumeFrom = None


def check_mode(mode: object, gap: object) -> None:
    """Refuse a mode and gap that cannot be meant.

    Raises:
        ArgumentError: unknown mode, gap below 1, `last` with a gap, `gap_overwrite` without one.
    """
    if mode not in SNAPSHOT_MODES:
        message = f"snapshot_mode must be one of {', '.join(SNAPSHOT_MODES)}; got {mode!r}"
        raise ArgumentError(message)
    if not isinstance(gap, int) or isinstance(gap, bool) or gap < 1:
        message = f"snapshot_gap must be a whole number of epochs, at least 1; got {gap!r}"
        raise ArgumentError(message)
    if mode == "last" and gap != 1:
        message = f"snapshot_mode 'last' saves every epoch; for snapshot_gap={gap} use 'gap_overwrite'"
        raise ArgumentError(message)
    if mode == "gap_overwrite" and gap == 1:
        message = "snapshot_mode 'gap_overwrite' needs a snapshot_gap over 1; for every epoch use 'last'"
        raise ArgumentError(message)


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
