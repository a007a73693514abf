# ruff: noqa: ARG002, ARG005
# (policies that look at nothing)
from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from environments import Alternating, Counting, Crashing, Drawing, Seeing

from rla_client.contract.errors import ArgumentError, WorkerError
from rla_client.launcher import deterministic
from rla_client.launcher.sampling.env_spec import StepType
from rla_client.launcher.sampling.fragment_worker import FragmentWorker, VecWorker
from rla_client.launcher.sampling.local_sampler import LocalSampler
from rla_client.launcher.sampling.multiprocessing_sampler import MultiprocessingSampler
from rla_client.launcher.sampling.worker import DefaultWorker
from rla_client.launcher.sampling.worker_factory import WorkerFactory


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


@pytest.mark.parametrize("cls", [LocalSampler, MultiprocessingSampler])
def test_batches_know_what_the_environment_takes_and_gives(cls: Any) -> None:
    sampler = cls(Alternating(), Counting(), seed=1, n_workers=2, max_episode_length=3)
    for batch in (sampler.obtain_samples(0, 10), sampler.obtain_exact_episodes(1)):
        assert batch.env_spec.observation_space == Counting.observation_space
        assert batch.env_spec.action_space == Counting.action_space
        assert batch.env_spec.max_episode_length == 3
    sampler.shutdown_worker()


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


class Masked(Alternating):
    """Is told where episodes begin, and asked once for all."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[list[bool]] = []

    def reset(self, begins: Any) -> None:
        self.begins.append(begins.tolist())

    def get_actions(self, observations: Any) -> Any:
        self.asked += 1
        return np.ones(len(observations), dtype=int), {"asked": np.full(len(observations), self.asked)}


def test_whole_episodes_of_copies_side_by_side() -> None:
    made = factory(n_workers=1, worker_class=VecWorker, worker_args={"n_envs": 3})
    policy = Masked()
    sampler = LocalSampler(policy, [Counting(5)], worker_factory=made)
    found = sampler.obtain_samples(0, 20)
    assert found.lengths.tolist() == [5, 5, 5, 5]
    assert found.agent_infos["asked"][:5].tolist() == [1, 2, 3, 4, 5], "one call for all copies"
    assert len(set(found.episode_infos["drawn"])) == 4
    assert policy.begins == [[True] * 3, [True] * 3, [True] * 3]
    assert sampler.obtain_exact_episodes(2).lengths.tolist() == [5, 5]
    assert np.array_equal(sampler.obtain_samples(0, 20).observations, found.observations)


def test_an_episode_that_ends_alone_begins_alone() -> None:
    policy = Masked()
    worker = VecWorker(seed=1, worker_number=0, n_envs=2)
    worker.update_agent(policy)
    worker.update_env([Counting(3), Counting(5)])
    worker.start_epoch(0)
    assert [worker.rollout().n_steps for _ in range(4)] == [3, 5, 3, 3]
    assert policy.begins == [[True, True], [True, False], [False, True], [True, False], [True, False]]
    with pytest.raises(ArgumentError, match="n_envs=2 has 1"):
        worker.update_env([Counting()])


@pytest.mark.parametrize("worker_class", [DefaultWorker, FragmentWorker, VecWorker])
def test_processes_sample_what_this_one_does(multi: Any, worker_class: Any) -> None:
    """Of a policy that draws nothing from this process's generators."""
    arguments = {} if worker_class is DefaultWorker else {"n_envs": 3}
    made = factory(worker_class=worker_class, worker_args=arguments)
    local = LocalSampler(Seeing(), Counting(), worker_factory=made)
    there = MultiprocessingSampler(Seeing(), Counting(), worker_factory=made)
    for epoch in (0, 3):
        assert same(local.obtain_samples(epoch, 40), there.obtain_samples(epoch, 40))
    there.shutdown_worker()


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
    pids = [process.process.pid for process in sampler._processes]
    assert all(psutil.pid_exists(pid) for pid in pids)
    sampler.shutdown_worker()
    sampler.shutdown_worker()
    assert not any(psutil.pid_exists(pid) for pid in pids)


TRAINER = """
import sys
sys.path.insert(0, {folder!r})
from environments import Alternating, Counting
from rla_client.launcher.sampling.multiprocessing_sampler import MultiprocessingSampler
from rla_client.launcher.sampling.worker_factory import WorkerFactory
sampler = MultiprocessingSampler(
    Alternating(), Counting(length=10**9, step_s=0.001), worker_factory=WorkerFactory(seed=1, n_workers=2))
print(*[process.process.pid for process in sampler._processes], flush=True)
try:
    sampler.obtain_samples(0, 10**9)
finally:
    sampler.shutdown_worker()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_trainer(tmp_path: Path, wait_until: Callable[..., Any], number: int) -> None:
    command = [sys.executable, "-c", TRAINER.format(folder=str(Path(__file__).parents[1]))]
    trainer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    pids = [int(word) for word in trainer.stdout.readline().split()]
    assert len(pids) == 2
    wait_until(lambda: all(psutil.Process(pid).cpu_times().user > 0.5 for pid in pids), 30)
    os.kill(trainer.pid, number)
    trainer.communicate(timeout=60)
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


class Hooked(DefaultWorker):
    """A worker in garage's manner, older names too."""

    def __init__(self, *, seed: int, max_path_length: int, worker_number: int, bonus: float = 0.0) -> None:
        super().__init__(seed=seed, max_path_length=max_path_length, worker_number=worker_number)
        self.bonus = bonus
        self.calls: list[str] = []

    def start_rollout(self) -> None:
        self.calls.append("start")
        super().start_rollout()

    def step_episode(self) -> bool:
        self.calls.append("step")
        return super().step_episode()

    def collect_episode(self) -> Any:
        self.calls.append("collect")
        return super().collect_episode()


def test_a_worker_of_the_users_own_with_garages_hooks() -> None:
    sampler = LocalSampler(
        Alternating(),
        Counting(),
        max_path_length=2,
        seed=1,
        is_tf_worker=False,
        worker_class=Hooked,
        worker_args={"bonus": 1.0},
    )
    assert sampler.obtain_samples(0, 4).lengths.tolist() == [2, 2]
    (worker,) = sampler._workers
    assert isinstance(worker, Hooked)
    assert worker.bonus == 1.0
    assert worker.calls == ["start", "step", "step", "collect"] * 2


class Foreign(DefaultWorker):
    """Gives what workers of garage 2020.06 give."""

    def rollout(self) -> Any:
        paths = super().rollout().to_trajectory_list()
        return SimpleNamespace(to_trajectory_list=lambda: paths)


def test_a_worker_of_the_users_own_may_give_any_batch_of_garage() -> None:
    both = [
        LocalSampler(Alternating(), Counting(), seed=1, worker_class=one) for one in (DefaultWorker, Foreign)
    ]
    for ours, theirs in (
        [sampler.obtain_samples(0, 8) for sampler in both],
        [sampler.obtain_exact_episodes(2) for sampler in both],
    ):
        assert same(ours, theirs)


class Weighted:
    """A policy with parameters; its actions are its weight."""

    def __init__(self, weight: int = 0) -> None:
        self.weight = weight

    def get_action(self, observation: Any) -> Any:
        return self.weight, {}

    def get_param_values(self) -> dict[str, int]:
        return {"weight": self.weight}

    def set_param_values(self, values: dict[str, int]) -> None:
        self.weight = values["weight"]


@pytest.mark.parametrize("cls", [LocalSampler, MultiprocessingSampler])
def test_updates_by_parameters_by_lists_and_by_functions(cls: Any, tmp_path: Path) -> None:
    policy = Weighted(1)
    sampler = cls(policy, Counting(), seed=1, n_workers=2)
    try:
        assert set(sampler.obtain_samples(0, 8).actions) == {1}
        policy.weight = 3
        assert set(sampler.obtain_samples(1, 8, agent_update=policy.get_param_values()).actions) == {3}
        both = sampler.obtain_samples(2, 8, agent_update=[{"weight": 5}, {"weight": 6}])
        assert sorted(set(both.actions)) == ([6] if cls is LocalSampler else [5, 6])  # one policy, or copies
        with pytest.raises(ArgumentError):
            sampler.obtain_samples(3, 8, agent_update=[{"weight": 5}])
        longer = sampler.obtain_samples(4, 8, env_update=lambda old: Counting(old.length + 2))
        assert set(longer.lengths) == {7}
        apart = sampler.obtain_samples(5, 2, env_update=[Counting(1), Counting(2)])
        assert apart.lengths.tolist() == [1, 2]
        assert sampler.obtain_exact_trajectories(3).lengths.tolist() == [1, 1, 1, 2, 2, 2]
        sampler.shutdown_worker()
        assert len(sampler.obtain_samples(6, 8)) > 0  # it begins again
    finally:
        sampler.shutdown_worker()


def test_a_worker_that_begins_afresh_has_the_parameters(multi: Any, tmp_path: Path) -> None:
    policy = Weighted(1)
    sampler = multi(Crashing(tmp_path / "crashed", how="exit"), policy, n_workers=1)
    policy.weight = 4
    assert set(sampler.obtain_samples(0, 5, agent_update=policy.get_param_values()).actions) == {4}


class OldGym:
    """An environment of gym before 0.26."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def reset(self) -> Any:
        self.steps = 0
        return np.zeros(2)

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.ones(2), 1, self.steps == 3, {"TimeLimit.truncated": self.steps == 3}


class GarageStep:
    """What garage's environments give."""

    def __init__(self, step_type: StepType) -> None:
        self.observation, self.reward, self.env_info = np.ones(2), 2.0, {"k": 1}
        self.step_type = step_type


class GarageEnv:
    """An environment in garage's manner, without a seed."""

    def reset(self) -> Any:
        self.steps = 0
        return np.zeros(2), {"first": True}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return GarageStep(StepType.TERMINAL if self.steps == 2 else StepType.MID)


def test_environments_of_older_gym_and_of_garage(caplog: pytest.LogCaptureFixture) -> None:
    old = OldGym()
    sampler = LocalSampler(lambda observation: 0, old, seed=1)
    batch = sampler.obtain_samples(0, 3)
    assert batch.step_types.tolist() == [StepType.FIRST, StepType.MID, StepType.TIMEOUT]
    assert len(old.seeds) == 1
    sampler = LocalSampler(lambda observation: 0, GarageEnv(), seed=1)
    batch = sampler.obtain_samples(0, 2)
    assert batch.step_types.tolist() == [StepType.FIRST, StepType.TERMINAL]
    assert batch.env_infos["k"].tolist() == [1, 1]
    assert batch.episode_infos["first"].tolist() == [True]
    assert "takes no seed" in caplog.text


class Wrapped:
    """A wrapper that hands no seed on."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def reset(self) -> Any:
        return self._env.reset()

    def step(self, action: Any) -> Any:
        return self._env.step(action)


def test_a_wrapped_environment_is_seeded(caplog: pytest.LogCaptureFixture) -> None:
    drawn = []
    for env in (Counting(), Wrapped(Counting()), Wrapped(Wrapped(Counting()))):
        sampler = LocalSampler(lambda observation: 0, env, seed=1)
        drawn.append([sampler.obtain_samples(itr, 1).observations[0, 0] for itr in (0, 1, 0)])
    assert all(first == again != second for first, second, again in drawn)
    assert not caplog.text


def test_a_sampler_takes_the_experiments_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(deterministic._current, "seed", 77)
    assert LocalSampler(Drawing(), Counting()).factory.seed == 77
    monkeypatch.delitem(deterministic._current, "seed")
    assert LocalSampler(Drawing(), Counting()).factory.seed is not None


def test_a_pickled_sampler_starts_when_it_is_asked() -> None:
    sampler = pickle.loads(pickle.dumps(MultiprocessingSampler(Drawing(), Counting(), seed=1, n_workers=1)))
    assert sampler._processes == []
    assert sampler.obtain_samples(0, 5).n_steps == 5
    sampler.shutdown_worker()
