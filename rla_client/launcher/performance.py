"""Performance of episodes, under garage's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from rla_client.launcher import dowel
from rla_client.launcher.deterministic import derive_seed, get_seed
from rla_client.launcher.sampling.episode_batch import EpisodeBatch
from rla_client.launcher.sampling.policy_calls import reset_agent
from rla_client.launcher.sampling.worker import DefaultWorker

SUCCESS_KEY = "success"  # of env_infos; recorded if an environment has it
MAX_EPISODE_STEPS = 1000  # of a shown or evaluated episode without a limit


def log_performance(
    itr: int, batch: EpisodeBatch, discount: float, prefix: str = "Evaluation"
) -> list[float]:
    """Record statistics of the episodes of `batch` in the current row; names as in garage.

    Args:
        itr: the iteration.
        batch: N episodes.
        discount: per step, for AverageDiscountedReturn.
        prefix: group of the keys.

    Returns:
        The N undiscounted returns.
    """
    returns = batch.returns
    ends = np.cumsum(batch.lengths)
    discounted = [
        float(np.sum(rewards * discount ** np.arange(len(rewards))))
        for rewards in np.split(batch.rewards, ends[:-1])
    ]
    with dowel.tabular.prefix(f"{prefix}/"):
        dowel.tabular.record("Iteration", itr)
        dowel.tabular.record("NumEpisodes", len(batch))
        dowel.tabular.record("AverageDiscountedReturn", float(np.mean(discounted)))
        dowel.tabular.record("AverageReturn", float(np.mean(returns)))
        dowel.tabular.record("StdReturn", float(np.std(returns)))
        dowel.tabular.record("MaxReturn", float(np.max(returns)))
        dowel.tabular.record("MinReturn", float(np.min(returns)))
        dowel.tabular.record("TerminationRate", float(np.mean(batch.terminals[ends - 1])))
        if SUCCESS_KEY in batch.env_infos:
            reached = [bool(np.any(one)) for one in np.split(batch.env_infos[SUCCESS_KEY], ends[:-1])]
            dowel.tabular.record("SuccessRate", float(np.mean(reached)))
    return [float(one) for one in returns]


def obtain_evaluation_episodes(
    policy: object,
    env: object,
    max_episode_length: int | None = MAX_EPISODE_STEPS,
    num_eps: int = 100,
    deterministic: bool = True,
) -> EpisodeBatch:
    """Run `num_eps` episodes of `policy` in `env`, which the training must not use meanwhile.

    Args:
        policy: as for samplers.
        env: e.g. `runner.get_env_copy()`. Each call begins with the same seed.
        max_episode_length: steps after which an episode is cut off.
        num_eps: number of episodes.
        deterministic: use the action's `mean` if the policy's infos have one.
    """
    worker = DefaultWorker(seed=get_seed() or 0, worker_number=0, max_episode_length=max_episode_length)
    worker.update_agent(_ByMean(policy) if deterministic else policy)
    worker.update_env(env)
    worker.reset_seed = derive_seed(worker.seed, num_eps)
    return EpisodeBatch.concatenate([worker.rollout() for _ in range(num_eps)])


class _ByMean:
    """A policy that takes the mean action of another one."""

    def __init__(self, policy: Any) -> None:  # noqa: ANN401
        self._policy = policy

    def get_action(self, observation: object) -> object:
        answer = getattr(self._policy, "get_action", self._policy)(observation)
        if isinstance(answer, tuple) and isinstance(answer[-1], dict) and "mean" in answer[-1]:
            return answer[-1]["mean"], answer[-1]
        return answer

    def reset(self) -> None:
        reset_agent(self._policy)
