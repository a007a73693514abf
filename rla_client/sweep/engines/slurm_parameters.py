"""Parameters of sbatch for a run, in the form of submitit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rla_client.sweep.journal import SweepError

if TYPE_CHECKING:
    from rla_client.sweep.spec import Resources


OWN = {
    "array": "the runs of a sweep are the array",
    "error": "what a run prints is in the sweep's folder",
    "output": "what a run prints is in the sweep's folder",
    "open_mode": "what a run prints is in the sweep's folder",
    "job_name": "jobs are found by their name",
    "name": "jobs are found by their name",
    "chdir": "runs start where the sweep was begun",
    "wrap": "what is run is said by command",
    "signal": "it is used to requeue jobs whose time is up",
    "nodes": "a run is one process on one node",
    "ntasks": "a run is one process on one node",
    "ntasks_per_node": "a run is one process on one node",
    "array_parallelism": "write resources: {parallel: 8}",
}


def parameters_of(resources: Resources, options: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters for submitit.

    Args:
        resources: resources of one run.
        options: options of sbatch in a sweep's file.

    Raises:
        SweepError: an option cannot be used here.
    """
    given = {str(key).lstrip("-").replace("-", "_"): value for key, value in options.items()}
    for key in sorted(given.keys() & OWN.keys()):
        raise SweepError(f"slurm.{key} cannot be set: {OWN[key]}")
    cpus = whole_number("cpus_per_task", given.pop("cpus_per_task", math.ceil(resources.cpus)))
    found: dict[str, Any] = {
        "time": None,
        "wckey": None,  # otherwise submitit sets its own
        "cpus_per_task": cpus,
        "srun_args": [
            f"--cpus-per-task={cpus}"
        ],  # since Slurm 22.05 a step does not inherit them from its job
        "setup": ["trap : TERM"],  # otherwise the job's script ends before the run has saved
    }
    extra: dict[str, Any] = {"requeue": True}
    if given.pop("requeue", True) is False:
        extra = {"no-requeue": True}
    if resources.memory and not given.keys() & {"mem", "mem_per_cpu", "mem_per_gpu"}:
        extra["mem"] = f"{math.ceil(resources.memory / (1 << 20))}M"
    if resources.gpus and not given.keys() & {"gres", "gpus", "gpus_per_node", "gpus_per_task"}:
        if resources.gpus % 1:
            raise SweepError(f"a run takes {resources.gpus:g} GPUs, and Slurm gives whole ones")
        extra["gpus-per-node"] = int(resources.gpus)
    extra |= {
        key.replace("_", "-"): value
        for key, value in given.items()
        if value is not None and value is not False
    }
    return {**found, "additional_parameters": extra}


def whole_number(name: str, value: object) -> int:
    """A whole number from 1; raises SweepError for other values."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SweepError(f"slurm.{name} must be a whole number from 1, not {value!r}")
    return value
