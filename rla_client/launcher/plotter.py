"""Plotter of `train(plot=True)`.

It shows one episode of the policy after each epoch, in a copy of the environment. The environment must
have `render_mode="human"`; for any other the log says once that nothing is shown. The generators' states
are restored afterwards, so a run with plots equals one without. If no window can be opened, the log says
so and the training continues.
"""

from __future__ import annotations

import sys

from rla_client.launcher import dowel
from rla_client.launcher.deterministic import capture_rng, restore_generators
from rla_client.launcher.performance import MAX_EPISODE_STEPS
from rla_client.launcher.sampling.env_pickle import copy_env
from rla_client.launcher.sampling.worker import DefaultWorker


class Plotter:
    """Shows the policy of one training.

    Args:
        env: the environment; it is copied at the first episode.
        seed: of the shown episodes.
        max_episode_length: steps after which an episode is cut off; None: MAX_EPISODE_STEPS.
    """

    def __init__(self, env: object, seed: int, max_episode_length: int | None) -> None:
        self._env = env
        self._worker: DefaultWorker | None = None
        self._seed = seed
        self._limit = max_episode_length or MAX_EPISODE_STEPS
        self._useless = False

    def show(self, policy: object, epoch: int, *, pause: bool) -> None:
        """Show one episode of `policy`; with `pause` wait for Enter afterwards."""
        if self._useless:
            return
        if getattr(self._env, "render_mode", None) != "human":
            self._give_up("plot=True shows nothing: make the environment with render_mode='human'")
            return
        state = capture_rng()
        try:
            self._roll_out(policy, epoch)
        except Exception as error:  # noqa: BLE001 - no display, a broken driver: training continues
            self._give_up(f"plot=True shows nothing: {type(error).__name__}: {error}")
        finally:
            restore_generators(state)
        if not pause or self._useless:
            return
        if sys.stdin is not None and sys.stdin.isatty():
            input("Plotting evaluation run: press Enter to continue...")
        else:
            dowel.logger.log("pause_for_plot does not pause: standard input is not a terminal")

    def close(self) -> None:
        """Close the window."""
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None

    def _roll_out(self, policy: object, epoch: int) -> None:
        if self._worker is None:
            self._worker = DefaultWorker(seed=self._seed, worker_number=0, max_episode_length=self._limit)
            self._worker.update_env(copy_env(self._env))
        self._worker.update_agent(policy)
        self._worker.start_epoch(epoch)
        self._worker.rollout()

    def _give_up(self, why: str) -> None:
        self._useless = True
        dowel.logger.log(why)
