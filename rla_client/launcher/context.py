"""Context of an experiment's call, its `ctxt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

ResumeFrom: TypeAlias = int | Literal["last", "first"] | None


class SnapshotConfig(NamedTuple):
    """Folder and times of a runner's snapshots."""

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
        log_dir: folder of progress.csv, debug.log and the other outputs; also of the snapshots, unless the
            run is an item of a database.
        x_axis: key of the row that is the time-step of curves.
        resume_from: the snapshot that `LocalRunner.train` continues from; None for a new run.
    """

    snapshot_dir: str
    snapshot_mode: str
    snapshot_gap: int
    log_dir: str = ""
    x_axis: str = "TotalEnvSteps"
    resume_from: ResumeFrom = None
