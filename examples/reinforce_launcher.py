"""A launcher in garage's style: REINFORCE on CartPole.

    python examples/reinforce_launcher.py --seed 3 --epochs 40
    rla resume @last      # after an interruption; without rla_config.yaml: data/local/experiment/…

Everything about the run lies in `data`: rows (progress.csv, TensorBoard),
text (debug.log), parameters, the launching code and snapshots.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from rla_client.launcher import (
    ExperimentContext,
    LocalRunner,
    LocalSampler,
    logger,
    set_seed,
    tabular,
    wrap_experiment,
)


class Policy(nn.Module):
    """A categorical policy over two actions."""

    def __init__(self, env: gymnasium.Env[Any, Any], hidden: int = 32) -> None:
        super().__init__()
        inputs = int(np.prod(env.observation_space.shape or ()))
        self.net = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, observations: torch.Tensor) -> torch.distributions.Categorical:
        """Distribution over actions for observations of shape (…, 4)."""
        return torch.distributions.Categorical(logits=self.net(observations))

    def get_action(self, observation: np.ndarray) -> tuple[int, dict[str, Any]]:
        """Draw an action for one observation."""
        with torch.no_grad():
            return int(self(torch.as_tensor(observation, dtype=torch.float32)).sample()), {}


class Reinforce:
    """Monte-Carlo policy gradient with whitened returns-to-go."""

    def __init__(self, policy: Policy, lr: float, discount: float = 0.99) -> None:
        self.policy = policy
        self.sampler_cls = LocalSampler
        self._discount = discount
        self._optimizer = torch.optim.Adam(policy.parameters(), lr=lr)

    def train(self, runner: LocalRunner) -> float:
        """Train; returns the mean return of the last epoch."""
        mean_return = 0.0
        for _ in runner.step_epochs():
            runner.step_path = runner.obtain_samples(runner.step_itr)
            mean_return = self._train_once(runner.step_path)
            runner.step_itr += 1
        return mean_return

    def _train_once(self, paths: list[dict[str, Any]]) -> float:
        observations = torch.as_tensor(np.concatenate([path["observations"] for path in paths]))
        actions = torch.as_tensor(np.concatenate([path["actions"] for path in paths]))
        returns_to_go = torch.as_tensor(np.concatenate([self._to_go(path["rewards"]) for path in paths]))
        advantages = (returns_to_go - returns_to_go.mean()) / (returns_to_go.std() + 1e-8)
        loss = -(self.policy(observations.float()).log_prob(actions) * advantages.float()).mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        returns = [float(path["rewards"].sum()) for path in paths]
        tabular.record("loss/policy", loss.item())
        with tabular.prefix("perf/"):
            tabular.record("return", float(np.mean(returns)))
            tabular.record("episodes", len(paths))
        logger.log(f"mean return {np.mean(returns):.1f}")
        return float(np.mean(returns))

    def _to_go(self, rewards: np.ndarray) -> np.ndarray:
        result = np.zeros_like(rewards)
        following = 0.0
        for step in reversed(range(len(rewards))):
            following = rewards[step] + self._discount * following
            result[step] = following
        return result


@wrap_experiment(snapshot_mode="gap_and_last", snapshot_gap=10, name_parameters="passed")
def reinforce_cartpole(
    ctxt: ExperimentContext, seed: int = 1, lr: float = 1e-2, epochs: int = 40, batch_size: int = 2000
) -> float:
    """Train REINFORCE on CartPole."""
    set_seed(seed)
    runner = LocalRunner(snapshot_config=ctxt)
    env = gymnasium.make("CartPole-v1")
    policy = Policy(env)
    runner.setup(algo=Reinforce(policy, lr), env=env)
    return float(runner.train(n_epochs=epochs, batch_size=batch_size))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train REINFORCE on CartPole.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=2000)
    given = parser.parse_args()
    reinforce_cartpole(seed=given.seed, lr=given.lr, epochs=given.epochs, batch_size=given.batch_size)
