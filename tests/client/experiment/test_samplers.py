# ruff: noqa: ARG005
# (policies that look at nothing)
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from environments import Alternating, Counting, Crashing, Drawing

from rla_client.errors import ArgumentError, WorkerError
from rla_client.experiment.episode_batch import StepType
from rla_client.experiment.samplers import (
    FragmentWorker,
    LocalSampler,
    MultiprocessingSampler,
    WorkerFactory,
)


def factory(**changes: Any) -> Any:
    return WorkerFactory(**{"seed": 5, "n_workers": 2, **changes})


@pytest.fixture
def multi() -> Any:
    made = []

    def make(env: Any, policy: Any, **changes: Any) -> Any:
        made.append(MultiprocessingSampler(policy, env, worker_factory=factory(**changes)))
        return made[-1]

    yield make
    for sampler in made:
        sampler.shutdown_worker()


def same(one: Any, two: Any) -> Any:
    names = ("observations", "actions", "rewards", "lengths", "step_types")
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in names)


def test_local_sampler_gives_whole_episodes_and_repeats_an_iteration() -> None:
    sampler = LocalSampler(Alternating(), Counting(), worker_factory=factory())
    first = sampler.obtain_samples(0, 12)
    assert first.lengths.tolist() == [5, 5, 5, 5]
    assert first.step_types[:5].tolist() == [0, 1, 1, 1, StepType.TERMINAL]
    assert first.observations.shape == (20, 2)
    assert first.env_infos["step"].shape == (20,)
    assert first.agent_infos["asked"].tolist() == [*range(1, 21)]
    assert first.episode_infos["drawn"].shape == (4,)
    second = sampler.obtain_samples(1, 12)
    assert not np.array_equal(first.observations, second.observations)
    assert np.array_equal(sampler.obtain_samples(0, 12).observations, first.observations)
    assert len(set(first.episode_infos["drawn"])) == 4


def test_a_limit_of_steps_is_a_timeout() -> None:
    sampler = LocalSampler(
        Alternating(), Counting(), worker_factory=factory(n_workers=1, max_episode_length=3)
    )
    assert sampler.obtain_samples(0, 3).step_types.tolist() == [0, 1, StepType.TIMEOUT]


def test_a_plain_function_is_a_policy() -> None:
    sampler = LocalSampler(lambda observation: 1, Counting(), worker_factory=factory(n_workers=1))
    assert sampler.obtain_samples(0, 1).actions.tolist() == [1] * 5


def test_fragments() -> None:
    made = factory(
        n_workers=1, worker_class=FragmentWorker, worker_args={"n_envs": 3, "timesteps_per_call": 4}
    )
    sampler = LocalSampler(Alternating(), Counting(), worker_factory=made)
    found = sampler.obtain_samples(0, 20)
    assert found.n_steps == 24
    assert found.lengths.tolist() == [4, 4, 4, 1, 1, 1, 3, 3, 3]
    assert found.step_types[12:18].tolist() == [StepType.TERMINAL] * 3 + [StepType.FIRST, 1, 1]
    assert len(set(found.observations[found.step_types == 0][:, 0])) == 6
    assert np.array_equal(sampler.obtain_samples(0, 20).observations, found.observations)


def test_processes_sample_the_same_whenever_they_are_asked(multi: Any) -> None:
    one = multi(Counting(), Drawing())
    first = one.obtain_samples(3, 20)
    assert first.n_steps == 20
    assert len(set(first.episode_infos["drawn"])) == 4
    other = multi(Counting(), Drawing())
    other.obtain_samples(0, 7)
    again = other.obtain_samples(3, 20)
    assert same(first, again)
    assert np.array_equal(first.agent_infos["u"], again.agent_infos["u"])
    assert not np.array_equal(first.agent_infos["u"][:10], first.agent_infos["u"][10:])


def test_processes_get_the_new_policy(multi: Any) -> None:
    sampler = multi(Counting(), Alternating())
    policy = Alternating()
    policy.asked = 100
    assert sampler.obtain_samples(0, 10, policy).agent_infos["asked"][0] == 101


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_crash_is_reported_and_sampling_goes_on(
    multi: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    sampler = multi(Crashing(tmp_path / "crashed", how=how), Alternating(), n_workers=1)
    found = sampler.obtain_samples(0, 10)
    assert found.n_steps == 10
    assert ("fell over" if how == "raise" else "exit status 7") in caplog.text
    assert sampler.obtain_samples(1, 10).n_steps == 10


def test_an_environment_that_always_crashes_ends_the_sampling_with_its_traceback(
    multi: Any, tmp_path: Path
) -> None:
    sampler = multi(Crashing(tmp_path / "crashed", how="always"), Alternating(), n_workers=1)
    with pytest.raises(WorkerError, match="fell over"):
        sampler.obtain_samples(0, 10)


def test_shutdown_reaps_and_happens_once(multi: Any) -> None:
    sampler = multi(Counting(), Alternating())
    sampler.obtain_samples(0, 2)
    pids = [process.pid for process in sampler._processes]
    assert all(psutil.pid_exists(pid) for pid in pids)
    sampler.shutdown_worker()
    sampler.shutdown_worker()
    assert not any(psutil.pid_exists(pid) for pid in pids)


TRAINER = """
import sys
sys.path.insert(0, {folder!r})
from environments import Alternating, Counting
from rla_client.experiment.samplers import MultiprocessingSampler, WorkerFactory
sampler = MultiprocessingSampler(
    Alternating(), Counting(length=10**9, step_s=0.001), worker_factory=WorkerFactory(seed=1, n_workers=2))
print(*[process.pid for process in sampler._processes], flush=True)
try:
    sampler.obtain_samples(0, 10**9)
finally:
    sampler.shutdown_worker()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_trainer(tmp_path: Path, wait_until: Callable[..., Any], number: int) -> None:
    command = [sys.executable, "-c", TRAINER.format(folder=str(Path(__file__).parent))]
    trainer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = [int(word) for word in trainer.stdout.readline().split()]
    assert len(pids) == 2
    wait_until(lambda: all(psutil.Process(pid).cpu_times().user > 0.5 for pid in pids), 30)
    os.kill(trainer.pid, number)
    trainer.communicate(timeout=20)
    assert trainer.returncode == -number
    wait_until(lambda: not any(psutil.pid_exists(pid) and _runs(pid) for pid in pids), 10)


def _runs(pid: Any) -> Any:
    try:
        return (
            psutil.Process(pid).status() != psutil.STATUS_ZOMBIE or psutil.Process(pid).ppid() == os.getpid()
        )
    except psutil.NoSuchProcess:
        return False


def test_what_cannot_be_meant() -> None:
    with pytest.raises(ArgumentError):
        WorkerFactory(seed=1, n_workers=0)
    with pytest.raises(ArgumentError):
        WorkerFactory(seed=1, max_episode_length=0)


@pytest.mark.soak
def test_two_processes_sample_faster_than_one(multi: Any) -> None:
    def rate(sampler: Any) -> Any:
        sampler.obtain_samples(0, 200)
        begin = time.perf_counter()
        steps = sampler.obtain_samples(1, 3000).n_steps
        return steps / (time.perf_counter() - begin)

    env = Counting(length=50, step_s=0.001)
    local = rate(LocalSampler(Alternating(), env, worker_factory=factory(n_workers=1)))
    parallel = rate(multi(env, Alternating()))
    assert parallel >= 1.5 * local
