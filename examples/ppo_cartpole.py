"""PPO on CartPole-v1, logged through rla_client: reaches a mean return of 400 in well under 2 minutes.

    python examples/ppo_cartpole.py --data-root demo_data/data
    rla plot perf/return --data-root demo_data/data

Everything about logging is in `main` and `train`; the rest is a small, complete PPO.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import nn

from rla_client import exp_manager, logger, time_step_holder

CONFIG = Path(__file__).resolve().parent.parent / "rla_config.yaml"


@dataclass(frozen=True)
class Options:
    """Hyper-parameters; each is also a command-line option."""

    seed: int = 1
    timesteps: int = 150_000
    envs: int = 16
    rollout: int = 128
    lr: float = 1.5e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    epochs: int = 6
    minibatches: int = 8
    entropy: float = 0.005
    hidden: int = 64


@dataclass
class Batch:
    """One rollout; tensors of shape (rollout, envs), `obs` (rollout, envs, 4)."""

    obs: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    used: torch.Tensor  # False where the environment only reset itself


class Policy(nn.Module):
    """Two separate networks: action logits, and the value of a state."""

    def __init__(self, obs_size: int, actions: int, hidden: int) -> None:
        super().__init__()
        self.actor = self._network(obs_size, hidden, actions, gain=0.01)
        self.critic = self._network(obs_size, hidden, 1, gain=1.0)

    @staticmethod
    def _network(inputs: int, hidden: int, outputs: int, gain: float) -> nn.Sequential:
        layers = [nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()]
        layers.append(nn.Linear(hidden, outputs))
        for layer, scale in zip(layers[::2], (2**0.5, 2**0.5, gain), strict=True):
            nn.init.orthogonal_(layer.weight, scale)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(*layers)

    def forward(self, obs: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        """Distribution over actions, and values, for observations of shape (..., 4)."""
        logits = self.actor(obs)
        return torch.distributions.Categorical(logits=logits, validate_args=False), self.critic(obs)[..., 0]


class Collector:
    """Plays the environments and keeps the returns of the last 50 episodes."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.envs = gymnasium.make_vec(
            "CartPole-v1", num_envs=options.envs, vectorization_mode="vector_entry_point"
        )
        self.obs, _ = self.envs.reset(seed=options.seed)
        self.resetting = np.zeros(options.envs, dtype=bool)
        self.scores = np.zeros(options.envs)
        self.finished: deque[float] = deque(maxlen=50)

    @torch.no_grad()
    def rollout(self, policy: Policy) -> Batch:
        """Play `rollout` steps in each environment and compute the advantages (GAE)."""
        shape = (self.options.rollout, self.options.envs)
        obs = torch.zeros(*shape, self.obs.shape[-1])
        actions = torch.zeros(shape, dtype=torch.int64)
        log_probs, values, rewards, ended, terminated = (torch.zeros(shape) for _ in range(5))
        used = torch.zeros(shape, dtype=torch.bool)
        for t in range(shape[0]):
            obs[t] = torch.from_numpy(self.obs)
            used[t] = torch.from_numpy(~self.resetting)
            distribution, values[t] = policy(obs[t])
            actions[t] = distribution.sample()
            log_probs[t] = distribution.log_prob(actions[t])
            reward, stop, cut = self._step(actions[t].numpy())
            rewards[t] = torch.from_numpy(reward)
            terminated[t] = torch.from_numpy(stop)
            ended[t] = torch.from_numpy(stop | cut)
        last_value = policy(torch.from_numpy(self.obs))[1]
        advantages = self._advantages(torch.cat([values, last_value[None]]), rewards, ended, terminated)
        return Batch(obs, actions, log_probs, advantages, advantages + values, used)

    def _step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One step of all environments; an ended one resets itself in the following step."""
        self.obs, reward, stop, cut, _ = self.envs.step(actions)
        self.scores = np.where(self.resetting, 0.0, self.scores + reward)
        self.resetting = stop | cut
        self.finished.extend(self.scores[self.resetting].tolist())
        return reward.astype(np.float32), stop, cut

    def _advantages(
        self, values: torch.Tensor, rewards: torch.Tensor, ended: torch.Tensor, terminated: torch.Tensor
    ) -> torch.Tensor:
        options = self.options
        advantages = torch.zeros_like(rewards)
        following = torch.zeros(options.envs)
        for t in reversed(range(options.rollout)):
            delta = rewards[t] + options.gamma * values[t + 1] * (1 - terminated[t]) - values[t]
            following = delta + options.gamma * options.gae_lambda * (1 - ended[t]) * following
            advantages[t] = following
        return advantages


def update(
    policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch, options: Options
) -> dict[str, float]:
    """Several epochs of clipped policy-gradient steps over one rollout; mean losses."""
    flat = {item.name: getattr(batch, item.name)[batch.used] for item in fields(batch) if item.name != "used"}
    size = len(flat["actions"])
    losses = []
    for _ in range(options.epochs):
        for chosen in torch.randperm(size).chunk(options.minibatches):
            part = {name: value[chosen] for name, value in flat.items()}
            distribution, values = policy(part["obs"])
            ratio = (distribution.log_prob(part["actions"]) - part["log_probs"]).exp()
            advantage = (part["advantages"] - part["advantages"].mean()) / (part["advantages"].std() + 1e-8)
            clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
            policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            value_loss = 0.5 * (values - part["returns"]).square().mean()
            entropy = distribution.entropy().mean()
            optimizer.zero_grad()
            (policy_loss + 0.5 * value_loss - options.entropy * entropy).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
            kl = (ratio - 1 - ratio.log()).mean()
            losses.append(torch.stack([policy_loss, value_loss, entropy, kl]).detach())
    means = torch.stack(losses).mean(0).tolist()
    return dict(zip(("policy", "value", "entropy", "approx_kl"), means, strict=True))


def train(options: Options) -> float:
    """Train, logging a row per update and printing a few; the mean return of the last 50 episodes."""
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the networks are too small to share out
    collector = Collector(options)
    policy = Policy(4, 2, options.hidden)
    optimizer = torch.optim.Adam(policy.parameters(), lr=options.lr, eps=1e-5)
    steps_per_update = options.envs * options.rollout
    updates = options.timesteps // steps_per_update
    started = time.perf_counter()
    mean_return = 0.0
    for number in range(updates):
        optimizer.param_groups[0]["lr"] = options.lr * (1 - number / updates)
        losses = update(policy, optimizer, collector.rollout(policy), options)
        steps = (number + 1) * steps_per_update
        mean_return = float(np.mean(collector.finished)) if collector.finished else 0.0

        time_step_holder.set_time(steps)
        row = {"perf/return": mean_return, **{f"loss/{name}": value for name, value in losses.items()}}
        row["time/steps_per_s"] = steps / (time.perf_counter() - started)
        for name, value in row.items():
            logger.record_tabular(name, value)
        logger.dump_tabular()
    return mean_return


def main() -> None:
    """Parse the options, open a run, train."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", default="demo_data/data", help="folder of the database")
    parser.add_argument("--table", default="ppo_cartpole", help="task table of the run")
    parser.add_argument("--config", default=str(CONFIG), help="path of rla_config.yaml")
    for item in fields(Options):
        default = item.default
        parser.add_argument(f"--{item.name.replace('_', '-')}", type=type(default), default=default)
    given = parser.parse_args()
    options = Options(**{item.name: getattr(given, item.name) for item in fields(Options)})

    exp_manager.configure(
        task_table_name=given.table,
        rla_config=given.config,
        data_root=given.data_root,
        code_root=Path(__file__).parent,
    )
    exp_manager.set_hyper_param(**asdict(options))
    exp_manager.add_record_param(["seed", "lr"])
    exp_manager.log_files_gen()
    exp_manager.print_args()

    mean_return = train(options)
    print(f"mean return of the last 50 episodes: {mean_return:.1f}")


if __name__ == "__main__":
    main()
