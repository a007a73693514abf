"""stable-baselines3's PPO on CartPole-v1: one callback gives rows, checkpoints, resuming and videos.

    python examples/sb3_ppo.py
    rla ls -d data; rla plot rollout/ep_rew_mean -d data

Kill it and start it again with the same RLA_RUN_ID and RLA_RESUME=allow: it goes on at its last checkpoint.
"""

from __future__ import annotations

import argparse

from stable_baselines3 import PPO

from rla_client.integrations.sb3 import RLACallback


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--timesteps", type=int, default=50_000)
    parser.add_argument("--save-freq", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    model = PPO("MlpPolicy", "CartPole-v1", seed=options.seed, device="cpu", verbose=1)
    model.learn(options.timesteps, callback=RLACallback(options.save_freq, track=["seed"]))


if __name__ == "__main__":
    main()
