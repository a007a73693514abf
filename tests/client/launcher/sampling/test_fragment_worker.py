"""Keywords of workers."""

from __future__ import annotations

import inspect

import pytest

from rla_client.launcher.sampling.fragment_worker import FragmentWorker, VecWorker
from rla_client.launcher.sampling.worker import Worker
from rla_client.launcher.sampling.worker_factory import WorkerFactory


@pytest.mark.parametrize("worker", [FragmentWorker, VecWorker])
def test_workers_name_their_keywords(worker: type[Worker]) -> None:
    named = inspect.signature(worker).parameters
    assert list(named)[:5] == ["seed", "worker_number", "max_episode_length", "max_path_length", "n_envs"]
    with pytest.raises(
        TypeError, match=f"{worker.__name__}.__init__.. got an unexpected keyword argument 'n_env'"
    ):
        WorkerFactory(seed=1, worker_class=worker, worker_args={"n_env": 2})(0)
