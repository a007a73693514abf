"""RaySampler against a real ray, where it is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from environments import Counting, Crashing, Drawing

from rla_client.contract.errors import ArgumentError, WorkerError
from rla_client.launcher.sampling.multiprocessing_sampler import MultiprocessingSampler
from rla_client.launcher.sampling.ray_sampler import RaySampler
from rla_client.launcher.sampling.worker_factory import WorkerFactory


def factory() -> WorkerFactory:
    return WorkerFactory(seed=5, n_workers=2)


def test_without_ray_it_says_what_to_install() -> None:
    try:
        import ray  # noqa: F401
    except ImportError:
        with pytest.raises(ArgumentError, match=r"\[ray\]"):
            RaySampler(Drawing(), Counting(), worker_factory=factory())
    else:
        pytest.skip("ray is installed")


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    found = pytest.importorskip("ray", reason="needs the extra ray")
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    found.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    yield found
    found.shutdown()


@pytest.mark.scale
def test_it_samples_what_processes_sample(ray: Any) -> None:
    several = [
        cls(Drawing(), Counting(), worker_factory=factory()) for cls in (RaySampler, MultiprocessingSampler)
    ]
    one, two = (sampler.obtain_samples(3, 12) for sampler in several)
    assert np.array_equal(one.observations, two.observations)
    assert np.array_equal(one.actions, two.actions)
    assert several[0].obtain_exact_episodes(2).lengths.tolist() == [5] * 4
    for sampler in several:
        sampler.shutdown_worker()
    assert np.array_equal(several[0].obtain_samples(3, 12).actions, one.actions)  # they begin again
    several[0].shutdown_worker()


@pytest.mark.scale
@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_crash_is_reported_and_sampling_goes_on(
    ray: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    sampler = RaySampler(
        Drawing(), Crashing(tmp_path / "crashed", how=how), worker_factory=WorkerFactory(seed=5, n_workers=1)
    )
    assert sampler.obtain_samples(0, 10).n_steps >= 10
    assert ("fell over" if how == "raise" else "the actor ended") in caplog.text
    sampler.shutdown_worker()


@pytest.mark.scale
def test_an_environment_that_always_crashes_ends_the_sampling(ray: Any, tmp_path: Path) -> None:
    environment = Crashing(tmp_path / "crashed", how="always")
    sampler = RaySampler(Drawing(), environment, worker_factory=WorkerFactory(seed=5, n_workers=1))
    with pytest.raises(WorkerError, match="fell over"):
        sampler.obtain_samples(0, 10)
    sampler.shutdown_worker()
