"""Callback of `learn` for checkpoints of a model."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.adapter import Joined, in_its_run
from rla_client.contract.errors import ArgumentError, NoCheckpointError, extra
from rla_client.integrations.sb3.model_run import configure_sb3
from rla_client.manager import exp_manager
from rla_client.run.current_logger import warn
from rla_client.run.failure import reason_text
from rla_client.run.state.random_state import capture_random_state, restore_random_state
from rla_client.stream.clock import clock, time_step_holder

with extra("sb3", "rla_client.integrations.sb3"):
    from stable_baselines3.common.callbacks import BaseCallback

    from rla_client.integrations.sb3.callbacks import callback_states, note_beginning, restore_callbacks
    from rla_client.integrations.sb3.learns import (
        Learn,
        Learns,
        frame_of,
        iterations,
        learns_of,
        set_iterations,
    )
    from rla_client.integrations.sb3.model_state import exploration, model_state, restore_state
    from rla_client.media.video_recorder import VideoRecorder

if TYPE_CHECKING:
    import gymnasium

DEFAULT_FPS = 30.0
_INSTEAD = ("the model is as at the newest one", "the model is as the script made it")
_learns: weakref.WeakKeyDictionary[Any, dict[str, Learns]] = weakref.WeakKeyDictionary()  # by run and series


class RLACallback(BaseCallback):
    """Logs, saves and resumes a model, and records videos of it.

    Args:
        save_freq: time-steps (of all environments together) between checkpoints; 0: only one at the end.
            A checkpoint is made when the next rollout begins.
        replay_buffer: include the filled part of the replay buffer of off-policy algorithms.
        resume: if the run was resumed (RLA_RUN_ID, `configure(resume=)`), continue at its last checkpoint.
        video_freq: time-steps between two videos; 0: none.
        video_env: environment for videos, with render_mode `rgb_array`; the model plays one episode in it,
            without exploration.
        video_length: maximum number of frames.
        task_table_name: see `configure_sb3`.
        track: see `configure_sb3`.
        checkpoint_name: the series of checkpoints.
        trust: see `exp_manager.load_checkpoint`; needed for a checkpoint from another machine.
        verbose: of SB3.

    Raises:
        ArgumentError: `video_freq` without a `video_env` that renders.
    """

    def __init__(  # noqa: PLR0913 - all but one by name
        self,
        save_freq: int = 10_000,
        *,
        replay_buffer: bool = True,
        resume: bool = True,
        video_freq: int = 0,
        video_env: gymnasium.Env[Any, Any] | None = None,
        video_length: int = 1000,
        task_table_name: str | None = None,
        track: Iterable[str] = (),
        checkpoint_name: str = "checkpoint",
        trust: bool = False,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if video_freq and (video_env is None or video_env.render_mode != "rgb_array"):
            raise ArgumentError("video_freq needs a video_env made with render_mode='rgb_array'")
        self._save_freq, self._video_freq = save_freq, video_freq
        self._with_buffer, self._resume, self._trust = replay_buffer, resume, trust
        self._video_env, self._video_length = video_env, video_length
        self._table, self._track, self._name = task_table_name, track, checkpoint_name
        self._manager = exp_manager  # of the run that it writes
        self._noise: dict[str, Any] | None = None  # gSDE's noise in the restored checkpoint
        self._callbacks: dict[str, Any] | None = None  # state of other callbacks in the restored checkpoint
        self._warned_of_environments = False  # that they cannot be kept
        self._warned_of_end = False  # that the run has ended before the training
        self._learns = Learns()  # of the run
        self._call: Learn | None = None  # the current one
        self._by_learn = False  # the current call is by `learn`, not by a loop of the user
        self._ended: int | None = None  # time-steps at which it had ended before the run was resumed
        self._saved = 0  # time-steps at the last checkpoint
        self._filmed: int | None = None  # time-steps at the last film
        self._joined = Joined()

    def _init_callback(self) -> None:
        own = self.model._custom_logger  # noqa: SLF001 - otherwise the next `learn` would not make its logger
        self._manager = configure_sb3(self.model, self._table, track=self._track)
        with self._manager.active():
            self._joined.join()
        self.model._custom_logger = own  # noqa: SLF001

    @in_its_run
    def _on_training_start(self) -> None:
        note_beginning(self._root(), RLACallback)
        self._learns = _learns.setdefault(self._manager.run or self, {}).setdefault(self._name, Learns())
        self._call = self._learns.begin(self.model)
        self._by_learn = frame_of(self.model) is not None
        self._ended = None
        if self._resume and self._manager.resumed:
            self._continue()
        self._saved = self.model.num_timesteps

    def _root(self) -> BaseCallback:
        """The callback that `learn` calls, which contains this one."""
        return self.locals.get("callback") or self

    def _continue(self) -> None:
        """Restore the checkpoint of a resumed run, or skip a `learn` that had already ended."""
        learns, state = self._learns, None
        if not learns.read:
            learns.read = True
            state = self._load()
            if state is None:
                if self._manager.resumed_from is not None:
                    raise NoCheckpointError(f"there is no checkpoint of {self._name!r} to continue from")
                return  # the run ended before its first checkpoint and starts again
            learns.former = learns_of(state)
        before = learns.had_ended()
        if before is not None:
            self._skip(before)
        elif learns.continues():
            self._restore(state or self._load() or {})

    def _load(self, step: int | None = None) -> dict[str, Any] | None:
        """A checkpoint, by default the newest; None if it does not exist."""
        try:
            found = self._manager.load_checkpoint(step, checkpoint_name=self._name, trust=self._trust)
        except NoCheckpointError:
            return None
        state: dict[str, Any] = found[1]
        return state

    def _restore(self, state: dict[str, Any]) -> None:
        restore_state(self.model, state)
        set_iterations(frame_of(self.model), learns_of(state)[-1].iterations)
        of_torch = {key: kept for key, kept in capture_random_state().items() if key in {"torch", "cuda"}}
        self._noise = {"random": of_torch, "exploration": state["exploration"]}
        self._callbacks = state.get("callbacks")
        self._filmed = state.get("filmed")

    def _skip(self, before: Learn) -> None:
        """Let the current `learn` train nothing, and set the model to the end of the earlier call."""
        place = len(self._learns.calls)
        state = self._load(before.end)
        if state is None or [call.end for call in learns_of(state)[place - 1 :]] != [before.end]:
            state = self._load()
            if state is None or learns_of(state)[-1].model != before.model:
                state = None
            instead = _INSTEAD[state is None]
            warn(f"the checkpoint from the end of learn() call {place} no longer exists: {instead}")
        else:
            restore_callbacks(self._root(), state.get("callbacks", {}), RLACallback)
        if state is not None:
            restore_state(self.model, state)
        assert self._call is not None
        self._ended = before.end
        self.model.num_timesteps = max(before.end or 0, self._call.total)  # so that `learn` ends at once
        ended = f"learn() call {place} of this run already ended, at {before.end} time-steps"
        logger.get_current().log(f"[RESUME] {ended}: it trains nothing now")

    @in_its_run
    def _on_rollout_start(self) -> None:
        if self._noise is not None:  # a rollout with gSDE has just drawn its noise
            restore_random_state(self._noise["random"])
            exploration(self.model).update(self._noise["exploration"])
            self._noise = None
        if self._callbacks is not None:  # `on_training_start` was called for all of them
            restore_callbacks(self._root(), self._callbacks, RLACallback)
            self._callbacks = None
        done = self.model.num_timesteps
        if self._save_freq and done - self._saved >= self._save_freq:
            self._save()
        if self._video_freq and (self._filmed is None or not 0 <= done - self._filmed < self._video_freq):
            try:
                self._film()
            except Exception as error:
                if self._filmed is None:  # a fault of the script, at its start
                    raise
                warn(f"no film at {done}: {reason_text(error)}")
            self._filmed = done

    def _on_step(self) -> bool:
        clock.of(self._joined.scope).put(self.num_timesteps)  # for files of other callbacks
        return True

    @in_its_run
    def _on_training_end(self) -> None:
        call, self._call = self._call, None
        if call is None or (self._by_learn and frame_of(self.model) is None):
            return  # a further call by RL Zoo, also after Ctrl-C, when the training has not ended
        if self._ended is not None:
            self.model.num_timesteps = self._ended
        call.end = self.model.num_timesteps
        if call.end != self._saved and self._ended is None:
            self._save()

    def _save(self) -> None:
        model = self.model
        self._saved = model.num_timesteps
        if self._manager.run is None:
            if not self._warned_of_end:
                self._warned_of_end = True
                warn(f"the run of this training has ended: there is no checkpoint of {self._saved}")
            return
        time_step_holder.set_time(self._saved)
        state = model_state(model, replay_buffer=self._with_buffer)
        if None in state["environments"] and not self._warned_of_environments:
            self._warned_of_environments = True
            warn("the environments cannot be part of checkpoints: a resumed run begins new episodes")
        if self._call is not None:
            self._call.iterations = iterations(frame_of(model))
        state["learns"] = self._learns.kept()
        state["callbacks"] = callback_states(self._root(), model, RLACallback)
        state["filmed"] = self._filmed
        self._manager.save_checkpoint(state, checkpoint_name=self._name)

    def _film(self) -> None:
        env, model = self._video_env, self.model
        assert env is not None
        time_step_holder.set_time(model.num_timesteps)
        fps = float(env.metadata.get("render_fps") or DEFAULT_FPS)
        normalize = model.get_vec_normalize_env()
        observation, _ = env.reset()
        with VideoRecorder("episode", fps=fps) as video:
            video.add(env.render())
            for _ in range(self._video_length - 1):
                seen = observation if normalize is None else normalize.normalize_obs(observation)
                action, _ = model.predict(seen, deterministic=True)
                observation, _, terminated, truncated, _ = env.step(action)
                video.add(env.render())
                if terminated or truncated:
                    break
