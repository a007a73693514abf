"""What submitit is told of a run."""

from __future__ import annotations

from typing import Any

import pytest

from rla_client.sweep.engines.slurm_parameters import parameters_of
from rla_client.sweep.journal import SweepError
from rla_client.sweep.spec import Resources


def test_resources_become_options() -> None:
    found = parameters_of(
        Resources(cpus=1.5, memory=(1 << 30) + 1, gpus=2), {"partition": "gpu", "time": "1:00:00"}
    )
    assert found["cpus_per_task"] == 2
    assert found["additional_parameters"] == {
        "requeue": True,
        "mem": "1025M",
        "gpus-per-node": 2,
        "partition": "gpu",
        "time": "1:00:00",
    }


def test_what_is_given_counts() -> None:
    options = {"--gres": "gpu:a100:1", "mem_per_cpu": "1G", "requeue": False, "cpus-per-task": 3}
    found = parameters_of(Resources(memory=1 << 30, gpus=1), options)
    assert found["cpus_per_task"] == 3
    assert found["additional_parameters"] == {"no-requeue": True, "gres": "gpu:a100:1", "mem-per-cpu": "1G"}


def test_no_time_is_none() -> None:
    assert parameters_of(Resources(), {})["time"] is None  # else submitit's five minutes


@pytest.mark.parametrize(
    ("resources", "options", "said"),
    [
        (Resources(gpus=0.5), {}, "whole ones"),
        (Resources(), {"job-name": "mine"}, "slurm.job_name cannot be set"),
        (Resources(), {"nodes": 2}, "slurm.nodes cannot be set"),
        (Resources(), {"cpus_per_task": "two"}, "slurm.cpus_per_task must be"),
    ],
)
def test_faults(resources: Resources, options: dict[str, Any], said: str) -> None:
    with pytest.raises(SweepError, match=said):
        parameters_of(resources, options)
