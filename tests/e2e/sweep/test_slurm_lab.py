"""The Slurm that tests of sweeps are run on does what a real one does: it is one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from support.slurm_lab import CORES, GPUS, SlurmLab
from support.waiting import wait_until

if TYPE_CHECKING:
    import submitit

pytestmark = [pytest.mark.scale, pytest.mark.slow, pytest.mark.root]

WAITS = """
sleep 1000 >/dev/null 2>&1 & echo $! >> "$1/pids"
setsid sleep 1000 >/dev/null 2>&1 & echo $! >> "$1/pids"
echo "${SLURM_RESTART_COUNT:-0} ${CUDA_VISIBLE_DEVICES:-no} $OF_SUBMITTER" >> "$1/starts"
until [ -e "$1/go" ]; do sleep 0.1; done
"""


def executor(folder: Path, **parameters: Any) -> submitit.AutoExecutor:
    import submitit

    made = submitit.AutoExecutor(folder=folder / "%j", cluster="slurm")
    made.update_parameters(timeout_min=10, cpus_per_task=1, mem_gb=0.1, **parameters)
    return made


def waiting_job(folder: Path) -> Any:
    """Tells of each start and of its processes, and ends once there is a file `go`."""
    import submitit

    return submitit.helpers.CommandFunction(["sh", "-c", WAITS, "sh", str(folder)])


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def living(folder: Path) -> list[str]:
    return [pid for pid in lines(folder / "pids") if psutil.pid_exists(int(pid))]


def wait_for(lab: SlurmLab, state: str, job: submitit.Job[Any]) -> None:
    wait_until(
        lambda: lab.job_state(job.job_id) == state,
        what=lambda: f"{state}: {lab.job(job.job_id)}, {job.stderr()}",
    )


def test_an_array_of_jobs_runs(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    jobs = executor(tmp_path, slurm_array_parallelism=CORES).map_array(pow, range(6), [2] * 6)
    for job in jobs:
        wait_for(slurm_lab, "COMPLETED", job)
    assert [job.result() for job in jobs] == [0, 1, 4, 9, 16, 25]
    assert {slurm_lab.job(job.job_id)["ExitCode"] for job in jobs} == {"0:0"}


def test_a_job_that_dies_with_its_machine_is_run_again(
    slurm_lab: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_SUBMITTER", "mine")
    submitter = executor(tmp_path, gpus_per_node=GPUS, slurm_additional_parameters={"requeue": True})
    job = submitter.submit(waiting_job(tmp_path))
    wait_until(
        lambda: lines(tmp_path / "starts"), what=lambda: f"the job's start: {slurm_lab.job(job.job_id)}"
    )
    assert len(living(tmp_path)) == 2

    slurm_lab.lose_node()
    assert not living(tmp_path)
    wait_for(slurm_lab, "PENDING", job)

    slurm_lab.start_node()
    slurm_lab.release(job.job_id)
    (tmp_path / "go").touch()
    wait_for(slurm_lab, "COMPLETED", job)
    assert lines(tmp_path / "starts") == ["0 0,1 mine", "1 0,1 mine"]
    assert slurm_lab.job(job.job_id)["Restarts"] == "1"


def test_a_job_that_may_not_be_run_again_ends_as_node_fail(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    job = executor(tmp_path, slurm_additional_parameters={"no-requeue": True}).submit(waiting_job(tmp_path))
    wait_until(
        lambda: lines(tmp_path / "starts"), what=lambda: f"the job's start: {slurm_lab.job(job.job_id)}"
    )
    slurm_lab.lose_node()
    wait_for(slurm_lab, "NODE_FAIL", job)


def test_one_task_of_an_array_is_cancelled(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("kept", "cancelled")]
    for folder in folders:
        folder.mkdir()
    kept, cancelled = executor(tmp_path).submit_array([waiting_job(folder) for folder in folders])
    for folder in folders:
        wait_until(partial(lines, folder / "starts"), what="the start of a job")
    cancelled.cancel()
    wait_for(slurm_lab, "CANCELLED", cancelled)
    assert slurm_lab.job_state(kept.job_id) == "RUNNING"
    (folders[0] / "go").touch()
    wait_for(slurm_lab, "COMPLETED", kept)
