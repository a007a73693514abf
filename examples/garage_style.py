"""The smallest launcher in garage's style: random search on CartPole, in 40 lines.

    python examples/garage_style.py
    rla resume @last      # after an interruption; without rla_config.yaml: data/local/experiment/…

`reinforce_launcher.py` beside it trains a torch policy in the same way.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rla_client.launcher import ExperimentContext, LocalRunner, set_seed, tabular, wrap_experiment


class LinearPolicy:
    """Pushes to the side that a linear function of the observation says."""

    weights = np.zeros(4)

    def get_action(self, observation: np.ndarray) -> tuple[int, dict[str, Any]]:
        """Choose the action for an observation of shape (4,)."""
        return int(observation @ self.weights > 0), {}


class RandomSearch:
    """Keeps a random change of the weights if the return grew."""

    def __init__(self, policy: LinearPolicy) -> None:
        self.policy = policy
        self.best = -np.inf

    def train(self, runner: LocalRunner) -> float:
        """Train; returns the best mean return."""
        for _ in runner.step_epochs():
            kept = self.policy.weights
            self.policy.weights = kept + np.random.randn(4)  # noqa: NPY002 - the generator that set_seed seeds
            mean = float(runner.obtain_episodes(runner.step_itr).returns.mean())
            if mean < self.best:
                self.policy.weights = kept
            self.best = max(self.best, mean)
            tabular.record("perf/return", mean)
            tabular.record("perf/best", self.best)
            runner.step_itr += 1
        return self.best


@wrap_experiment(snapshot_mode="gap", snapshot_gap=5, name_parameters="passed")
def random_search(ctxt: ExperimentContext, seed: int = 1, epochs: int = 20) -> float:
    """Search for a policy."""
    set_seed(seed)
    runner = LocalRunner(snapshot_config=ctxt)
    runner.setup(algo=RandomSearch(LinearPolicy()), env=gymnasium.make("CartPole-v1"))
    return float(runner.train(n_epochs=epochs, batch_size=1000))


random_search(seed=3)
