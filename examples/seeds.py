"""Is the change an improvement? Two settings, ten seeds each, compared with intervals.

    python examples/seeds.py          # 20 runs on all cores, then seeds.png and a verdict

The learner is the cross-entropy method with a linear policy on CartPole. The question is whether noise added
to its search distribution helps (Szita and Lőrincz, 2006). The comparison reads the runs from the database.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import gymnasium
import numpy as np

import rla_client
import rla_client.database as rla
from rla_client import exp_manager
from rla_client.plot import curves, statistics

TABLE = "cem_cartpole"


def episode(env: gymnasium.Env[np.ndarray, int], weights: np.ndarray) -> float:
    """The return of a policy that pushes to the side of the sign of observation x weights."""
    obs, _ = env.reset()
    total, done = 0.0, False
    while not done:
        obs, reward, ended, cut, _ = env.step(int(obs @ weights > 0))
        total, done = total + float(reward), ended or cut
    return total


def train(noise: float, seed: int, data_root: str, iterations: int) -> None:
    """One run: 16 candidates an iteration, of which the best 3 form the next distribution."""
    rla_client.init(
        TABLE,
        config={"noise": noise, "seed": seed},
        track=["noise", "seed"],
        data_root=data_root,
        rla_config={"LOG_USED": ["csv", "tensorboard"]},  # 20 runs at once: nothing printed
    )
    random = np.random.default_rng(seed)
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=seed)
    mean, std = np.zeros(4), np.ones(4)
    for iteration in range(1, iterations + 1):
        candidates = random.normal(mean, std, size=(16, 4))
        returns = np.array([episode(env, weights) for weights in candidates])
        elite = candidates[np.argsort(returns)[-3:]]
        mean, std = elite.mean(0), elite.std(0) + noise
        rla_client.log({"perf/return": returns.mean(), "perf/best": returns.max()}, step=iteration)
    exp_manager.close()


def compare(data_root: str) -> None:
    """Print interquartile means with 95 % intervals and the chance that noise is better; draw the curves."""
    exp_manager.flush(60)
    runs = rla.open(data_root).runs(TABLE, where="state == 'finished'")
    scores = {noise: part["perf/return"].to_numpy() for noise, part in runs.groupby("noise")}
    for noise, values in scores.items():
        found = statistics.bootstrap(values, statistics.interquartile_mean)
        print(
            f"noise {noise}: IQM {found.point:.0f} [{found.low:.0f}, {found.high:.0f}], {len(values)} seeds"
        )
    without, with_noise = (scores[noise] for noise in sorted(scores))
    chance = statistics.improvement_interval(with_noise, without)
    print(f"P(with noise > without) = {chance.point:.2f} [{chance.low:.2f}, {chance.high:.2f}]")
    curves(runs, "perf/return", group="noise", band="iqm").savefig("seeds.png")


def main() -> None:
    """Train all seeds of both settings, then compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", default="data")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=25)
    options = parser.parse_args()
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [
            pool.submit(train, noise, seed, options.data_root, options.iterations)
            for noise, seed in product((0.0, 0.3), range(options.seeds))
        ]
        for job in jobs:
            job.result()
    compare(options.data_root)


if __name__ == "__main__":
    main()
