"""`rla sweep --on slurm` on a real Slurm: every run is done once, whatever is killed meanwhile."""

from __future__ import annotations

import time

import pytest
from slurm_lab import SlurmLab
from sweep_lab import NAME, Lab

pytestmark = [pytest.mark.scale, pytest.mark.slow, pytest.mark.root]


def test_runs_are_jobs(slurm_lab: SlurmLab, lab: Lab) -> None:
    lab.train([0.1, 0.2], resources={"cpus": 1, "memory": "200MiB"})
    t = time.time()
    print(lab.run(f"{NAME}.yaml", "--on", "slurm"))
    print(time.time() - t)
    assert lab.states() == ["finished"] * 4
    assert {len(rows) for rows in lab.rows().values()} == {20}
