"""SAC on Pendulum-v1: rows, a checkpoint of the best policy, and a figure of what it does.

    python examples/sac_pendulum.py
    rla plot perf/return -d data      # data/results/… holds the figure, data/checkpoint/… the policy

A small, complete soft actor-critic with a learned temperature. About 35 seconds on one core.
"""

from __future__ import annotations

import argparse
import math
from collections import deque

import gymnasium
import numpy as np
import torch
from torch import nn

import rla_client
from rla_client import MatplotlibRecorder, exp_manager

LIMIT = 2.0  # torque of the pendulum


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers of 64."""
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs)
    )


class Actor(nn.Module):
    """A Gaussian over torques, squashed by tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network(3, 2)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A sampled action of shape (..., 1) and its log-probability of the same shape."""
        mean, log_std = self.net(obs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp(), validate_args=False)
        raw = normal.rsample()
        squash = 2 * (math.log(2) - raw - nn.functional.softplus(-2 * raw))  # log(1 - tanh²)
        return torch.tanh(raw) * LIMIT, normal.log_prob(raw) - squash

    @torch.no_grad()
    def best(self, obs: np.ndarray) -> np.ndarray:
        """The most likely action for one observation."""
        return (torch.tanh(self.net(torch.from_numpy(obs))[..., :1]) * LIMIT).numpy()


class Buffer:
    """All transitions so far, as one tensor of 9 columns: obs 3, action, reward, ended, next obs 3."""

    def __init__(self, size: int) -> None:
        self.rows = torch.zeros(size, 9)
        self.used = 0

    def add(self, *parts: np.ndarray | float) -> None:
        """Append one transition."""
        self.rows[self.used] = torch.from_numpy(np.hstack(parts).astype(np.float32))
        self.used += 1

    def sample(self, count: int) -> tuple[torch.Tensor, ...]:
        """A random batch: obs, actions, rewards, ended, next obs."""
        return self.rows[torch.randint(self.used, (count,))].split([3, 1, 1, 1, 3], -1)


class SAC:
    """Actor, two critics with slow copies, and a temperature that keeps the entropy at -1."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.actor = Actor()
        self.critics = nn.ModuleList(network(4, 1) for _ in range(2))
        self.slow = nn.ModuleList(network(4, 1) for _ in range(2))
        self.slow.load_state_dict(self.critics.state_dict())
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.optimizers = [
            torch.optim.Adam(part, lr=options.lr)
            for part in (self.critics.parameters(), self.actor.parameters(), [self.log_alpha])
        ]

    def _step(self, which: int, loss: torch.Tensor) -> None:
        self.optimizers[which].zero_grad()
        loss.backward()
        self.optimizers[which].step()

    def update(self, batch: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        """One gradient step of each part; the losses."""
        obs, actions, rewards, ended, following = batch
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            after, log_prob = self.actor(following)
            pairs = torch.cat([following, after], -1)
            future = torch.min(*(critic(pairs) for critic in self.slow)) - alpha * log_prob
            goal = rewards + self.options.gamma * (1 - ended) * future
        pairs = torch.cat([obs, actions], -1)
        critic_loss = sum(
            (nn.functional.mse_loss(critic(pairs), goal) for critic in self.critics), torch.zeros(())
        )
        self._step(0, critic_loss)
        chosen, log_prob = self.actor(obs)
        value = torch.min(*(critic(torch.cat([obs, chosen], -1)) for critic in self.critics))
        actor_loss = (alpha * log_prob - value).mean()
        self._step(1, actor_loss)
        self._step(2, -(self.log_alpha * (log_prob.detach() - 1)).mean())
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.critics.parameters(), strict=True):
                slow.lerp_(fast, 0.005)
        return {"loss/critic": critic_loss, "loss/actor": actor_loss, "entropy/alpha": alpha}


def swing_up(actor: Actor) -> None:
    """Draw the pendulum's angle over one episode of the policy's most likely actions."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - only where a figure is drawn

    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=0)
    angles = []
    for _ in range(200):
        angles.append(math.degrees(math.atan2(obs[1], obs[0])))
        obs = env.step(actor.best(obs))[0]
    plt.plot(angles)
    plt.axhline(0, color="#444444", linestyle=":")


def train(options: argparse.Namespace) -> float:
    """Train; one row an episode (200 steps). Returns the mean return of the last 10 episodes."""
    env = gymnasium.make("Pendulum-v1")
    env.action_space.seed(options.seed)
    agent, buffer = SAC(options), Buffer(options.timesteps)
    obs, _ = env.reset(seed=options.seed)
    score, scores, losses = 0.0, deque[float](maxlen=10), dict[str, torch.Tensor]()
    for step in range(1, options.timesteps + 1):
        if step <= options.learning_starts:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = agent.actor(torch.from_numpy(obs))[0].numpy()
            losses = agent.update(buffer.sample(options.batch_size))
        following, reward, ended, cut, _ = env.step(action)
        buffer.add(obs, action, float(reward), float(ended), following)
        score, obs = score + float(reward), following
        if ended or cut:
            scores.append(score)
            score, (obs, _) = 0.0, env.reset()
            mean = float(np.mean(scores))
            rla_client.log({"perf/return": scores[-1], "perf/mean_10": mean, **losses}, step=step)
            if len(scores) == scores.maxlen:
                exp_manager.save_checkpoint({"actor": agent.actor.state_dict()})
    MatplotlibRecorder.pretty_plot_wrapper(
        "swing-up", lambda: swing_up(agent.actor), xlabel="step", ylabel="angle from upright (degrees)"
    )
    return float(np.mean(scores))


def main() -> None:
    """Parse the options, open a run, train."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timesteps", type=int, default=8_000)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-starts", type=int, default=600)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the networks are too small to share out

    rla_client.init("sac_pendulum", config=options, track=["seed", "lr"])
    exp_manager.new_saver(max_to_keep=1)
    exp_manager.keep_best("perf/mean_10", mode="max", k=1)
    print(f"mean return of the last 10 episodes: {train(options):.1f}")


if __name__ == "__main__":
    main()
