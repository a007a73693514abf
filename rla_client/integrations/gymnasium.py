"""Gymnasium: a recorder of episodes.

    env = record_episodes(gymnasium.make("CartPole-v1", render_mode="rgb_array"), video_every=100)
    envs = record_episodes(gymnasium.make_vec("CartPole-v1", num_envs=8))

Each finished episode is a row with `episode/return`, `episode/length` and `episode/seconds`. Its time-step is
that of the clock or, if the program does not set the clock, the number of environment steps so far (with
several environments, of the first one). The agent encodes the frames beside the training. gymnasium's
`RecordEpisodeStatistics` computes the statistics.
"""

from __future__ import annotations

import multiprocessing
import time
import weakref
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordVectorStatistics

from rla_client import logger
from rla_client.adapter import Joined, ensure_run, in_its_run
from rla_client.contract.errors import ArgumentError
from rla_client.manager import exp_manager
from rla_client.media.video_recorder import VideoRecorder
from rla_client.stream.clock import TimeStepHolder, time_step_holder

__all__ = ["EpisodeRecorder", "VectorEpisodeRecorder", "record_episodes"]

DEFAULT_FPS = 30.0
_COUNTED = ("episode_start_times", "episode_returns", "episode_lengths", "prev_dones")  # gymnasium's counters
# by run; None after the leader was closed
_leaders: weakref.WeakKeyDictionary[logger.Logger, weakref.ref[_Recorder] | None] = (
    weakref.WeakKeyDictionary()
)
_KEY = "rla_episode"  # in gymnasium's infos, removed again; other wrappers use `episode`


def record_episodes(env: Any, video_every: int = 0, name: str = "episode") -> Any:
    """Record the episodes of an environment, single or vectorised.

    If no run is open at the first reset, one is opened in a table named after the environment.

    Args:
        env: a gymnasium environment; `video_every` needs render_mode `rgb_array`.
        video_every: film each n-th episode, beginning with the first (of a vector: of its first environment);
            0 films none.
        name: prefix of the columns (`<name>/return`) and of the names of the videos.

    Returns:
        The wrapped environment.

    Raises:
        ArgumentError: `video_every` is set and the environment does not render frames.
    """
    kind = VectorEpisodeRecorder if isinstance(env, VectorEnv) else EpisodeRecorder
    return kind(env, video_every, name)


class EpisodeRecorder(RecordEpisodeStatistics[Any, Any]):
    """See `record_episodes`, for a single environment."""

    env: gymnasium.Env[Any, Any]

    def __init__(self, env: gymnasium.Env[Any, Any], video_every: int = 0, name: str = "episode") -> None:
        RecordConstructorArgs.__init__(
            self, video_every=video_every, name=name
        )  # before the base's, for `spec`
        super().__init__(env, stats_key=_KEY)
        self._recorder = _Recorder(env, video_every, name)
        self._counted = 0  # steps of this episode that are in `_recorder.steps`

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._count_steps()
        found = super().reset(**kwargs)
        self._counted = 0
        self._recorder.begin()
        if self._recorder.video is not None:
            self._recorder.video.add(self.env.render())
        return found

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step; the last one of an episode writes its row."""
        found = self.env.step(action)
        if self._recorder.video is not None:
            self._recorder.video.add(self.env.render())
        if found[2] or found[3]:
            return self._end(action, found)
        self.episode_returns += found[1]  # inlined from gymnasium's wrapper, which costs more at each step
        self.episode_lengths += 1
        recorder = self._recorder
        if recorder.leads:
            recorder.clock.follow(recorder.steps + self.episode_lengths - self._counted)
        return found

    def _end(self, action: Any, found: tuple[Any, Any, bool, bool, dict[str, Any]]) -> Any:
        """Pass the result of an episode's last step through gymnasium's wrapper."""
        env = self.env
        self.env = cast("gymnasium.Env[Any, Any]", _StepResult(found))
        try:
            found = super().step(action)
        finally:
            self.env = env
        ended = found[4].pop(_KEY)
        self._count_steps()
        self._recorder.write(ended["r"], ended["l"], ended["t"])
        self._recorder.end()
        return found

    def _count_steps(self) -> None:
        self._recorder.steps += self.episode_lengths - self._counted
        self._counted = self.episode_lengths

    def close(self) -> None:
        """Close the environment; an unfinished film is sent as it is."""
        self._recorder.close()
        super().close()


class _StepResult:
    """An environment whose step returns a known result."""

    def __init__(self, found: tuple[Any, Any, bool, bool, dict[str, Any]]) -> None:
        self._found = found

    def step(self, _: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The result."""
        return self._found


class VectorEpisodeRecorder(RecordVectorStatistics[Any, Any]):
    """See `record_episodes`, for a vector of environments; the first one is filmed."""

    def __init__(self, env: VectorEnv[Any, Any, Any], video_every: int = 0, name: str = "episode") -> None:
        super().__init__(env, stats_key=_KEY)
        self._recorder = _Recorder(env, video_every, name)
        self._begins = True  # the next step of the first environment resets it

    def reset(self, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes of all environments, or of those in `options["reset_mask"]`."""
        mask = (options or {}).get("reset_mask")
        held = {name: getattr(self, name, None) for name in _COUNTED}
        found = super().reset(seed=seed, options=options)
        if (
            mask is not None
        ):  # the environments remove it from `options`, so gymnasium resets all its counters
            for name, before in held.items():
                setattr(self, name, np.where(mask, getattr(self, name), before))
        if mask is None or mask[0]:
            self._begin()
        return found

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in each environment, and write a row for each episode that ended."""
        found = super().step(actions)
        self._recorder.steps += self.num_envs
        if self._recorder.leads:
            self._recorder.clock.follow(self._recorder.steps)
        infos = found[4]
        ended, which = infos.pop(_KEY, None), infos.pop(f"_{_KEY}", None)
        same_step = self._autoreset_mode == AutoresetMode.SAME_STEP
        if self._begins:
            self._begin()
        elif self._recorder.video is not None and not (same_step and which is not None and which[0]):
            self._recorder.video.add(self._frame())
        if which is not None:
            for at in np.flatnonzero(which):
                self._recorder.write(*(ended[part][at] for part in ("r", "l", "t")))
            if which[0]:
                self._recorder.end()
                self._begins = self._autoreset_mode == AutoresetMode.NEXT_STEP
                if same_step:
                    self._begin()
        return found

    def _begin(self) -> None:
        self._begins = False
        self._recorder.begin()
        if self._recorder.video is not None:
            self._recorder.video.add(self._frame())

    def _frame(self) -> Any:
        frames = self.env.render()
        return None if frames is None else frames[0]

    def close(self, **kwargs: Any) -> None:
        """Close the environments; an unfinished film is sent as it is."""
        self._recorder.close()
        super().close(**kwargs)


class _Recorder:
    """Writes rows of episodes and films some of them.

    Attributes:
        steps: of all environments so far; for a single environment, without the episode in progress. In a
            run that was resumed or whose leader was closed, the count starts at the run's time-step.
        clock: of the run.
        leads: the clock follows `steps`. The leader is the first recorder of the run that is not closed, so
            that the clock does not follow an environment for evaluation.
        video: of the episode in progress, if it is filmed.
    """

    def __init__(self, env: Any, video_every: int, name: str) -> None:
        if video_every and env.render_mode != "rgb_array":
            raise ArgumentError(
                f"video_every={video_every} films what the environment renders: make it with "
                f"render_mode='rgb_array', not {env.render_mode!r}"
            )
        self._env, self._name, self._video_every = env, name, video_every
        self.steps: float = 0
        self.clock: TimeStepHolder = time_step_holder
        self.leads = False
        self._joined = Joined()
        self._begun = False
        self._episodes = 0  # of the environment that is filmed
        self.video: VideoRecorder | None = None

    def begin(self) -> None:
        """Begin an episode of the environment that may be filmed."""
        self.cut()
        self._ensure_run()
        self._begin()

    @in_its_run
    def _begin(self) -> None:
        current = logger.get_current()
        self.clock = current.clock
        if not self._begun:
            self._begun = True
            self.steps += exp_manager.resumed_from or 0
        if current in _leaders:
            former = _leaders[current]
            leader = None if former is None else former()
            if leader is None:  # closed or deleted: this recorder continues its count
                self.steps = max(self.steps, self.clock.get_time())
        else:
            leader = None
        if leader is None:
            leader = self
            _leaders[current] = weakref.ref(self)
        self.leads = leader is self
        if self._video_every and self._episodes % self._video_every == 0:
            fps = float(self._env.metadata.get("render_fps") or DEFAULT_FPS)
            name = f"{self._step}-{self._name}-{self._episodes}"
            self.video = VideoRecorder(name, fps=fps, add_timestamp=False)

    def end(self) -> None:
        """End the episode."""
        self._episodes += 1
        self.cut()

    @in_its_run
    def cut(self) -> None:
        """Send the film."""
        if self.video is not None:
            self.video.close()
            self.video = None

    def close(self) -> None:
        """Send the film and stop leading the clock."""
        self.cut()
        if self.leads:
            self.leads = False
            for current, leader in list(_leaders.items()):
                if leader is not None and leader() is self:
                    _leaders[current] = None

    @in_its_run
    def write(self, total: float, length: int, seconds: float) -> None:
        """Write an episode's row."""
        values = {"return": float(total), "length": int(length), "seconds": float(seconds)}
        row = {f"{self._name}/{key}": value for key, value in values.items()}
        if self.leads:
            self.clock.follow(self.steps)
        logger.get_current().write_row(row, self._step, time.time(), ())

    @property
    def _step(self) -> float:
        return self.clock.get_time() if self.clock.was_set else self.steps

    def _ensure_run(self) -> None:
        if self._joined.is_open or self._joined.is_left:
            return
        spec = self._env.spec
        if logger.get_current().folder is None and multiprocessing.parent_process() is not None:
            raise ArgumentError(
                "this environment runs in a worker process, and no run is open: open one before the workers "
                "start (rla_client.init), or wrap the vector of environments"
            )
        ensure_run("gymnasium" if spec is None else spec.id.replace("/", "-"), {})
        self._joined.join()
