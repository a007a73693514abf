"""DQN on CartPole-v1 with the two-call API: `rla_client.init` and `rla_client.log`.

    python examples/dqn_cartpole.py
    rla plot perf/return -d data

A small, complete double DQN: replay buffer, target network, linear exploration. About 30 seconds on one core.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

import rla_client


def network(obs_size: int, actions: int) -> nn.Sequential:
    """Q-values of all actions for observations of shape (..., obs_size)."""
    return nn.Sequential(
        nn.Linear(obs_size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, actions)
    )


class DQN:
    """Double DQN that replays all transitions so far."""

    def __init__(self, options: argparse.Namespace, obs_size: int, actions: int) -> None:
        self.options = options
        self.actions = actions
        self.online, self.target = network(obs_size, actions), network(obs_size, actions)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=options.lr)
        self.buffer = torch.zeros(options.timesteps, 2 * obs_size + 3)  # obs, action, reward, ended, next obs
        self.used = 0

    def keep(self, *transition: np.ndarray | float) -> None:
        """Append a transition to the buffer."""
        self.buffer[self.used] = torch.from_numpy(np.hstack(transition).astype(np.float32))
        self.used += 1

    @torch.no_grad()
    def act(self, obs: np.ndarray, epsilon: float) -> int:
        """The greedy action, or with probability `epsilon` a random one."""
        if random.random() < epsilon:  # noqa: S311 - not cryptography
            return random.randrange(self.actions)  # noqa: S311
        return int(self.online(torch.from_numpy(obs)).argmax())

    def update(self) -> dict[str, Any]:
        """One gradient step on a random batch; the loss and the mean Q-value."""
        chosen = self.buffer[torch.randint(self.used, (self.options.batch_size,))]
        obs, action, reward, ended, following = chosen.split([4, 1, 1, 1, 4], -1)
        with torch.no_grad():
            best = self.online(following).argmax(-1, keepdim=True)
            goal = reward + self.options.gamma * (1 - ended) * self.target(following).gather(-1, best)
        values = self.online(obs).gather(-1, action.long())
        loss = nn.functional.smooth_l1_loss(values, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.data.lerp_(fast.data, self.options.tau)
        return {"loss/td": loss, "q/mean": values.mean()}


def train(options: argparse.Namespace) -> float:
    """Train; one row every 1,000 steps. Returns the mean return of the last 20 episodes."""
    env = gymnasium.make("CartPole-v1")
    agent = DQN(options, obs_size=4, actions=2)
    obs, _ = env.reset(seed=options.seed)
    score, scores, row = 0.0, deque[float](maxlen=20), dict[str, Any]()
    for step in range(1, options.timesteps + 1):
        epsilon = max(0.04, 1 - step / (0.16 * options.timesteps))
        action = agent.act(obs, epsilon)
        following, reward, ended, cut, _ = env.step(action)
        agent.keep(obs, action, float(reward), ended, following)
        score, obs = score + float(reward), following
        if ended or cut:
            scores.append(score)
            score, (obs, _) = 0.0, env.reset()
        if step > options.learning_starts and step % 2 == 0:
            agent.optimizer.param_groups[0]["lr"] = options.lr * (1 - step / (options.timesteps + 1))
            row = agent.update()
        if step % 1000 == 0:
            rla_client.log({"perf/return": float(np.mean(scores)), "epsilon": epsilon, **row}, step=step)
    return float(np.mean(scores))


def main() -> None:
    """Parse the options, open a run, train."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timesteps", type=int, default=30_000)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.02, help="how far the target network moves per step")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-starts", type=int, default=1_000)
    options = parser.parse_args()
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the networks are too small to share out

    rla_client.init("dqn_cartpole", config=options, track=["seed", "lr"])
    print(f"mean return of the last 20 episodes: {train(options):.1f}")


if __name__ == "__main__":
    main()
