"""stable-baselines3: its rows, exactly resumable checkpoints, videos.

    model = PPO("MlpPolicy", "CartPole-v1")
    model.learn(100_000, callback=RLACallback(save_freq=20_000))

`configure_sb3(model)` alone gives rows. Where no run is open, one is opened, with the model's
hyper-parameters. progress.csv has the keys of SB3's own CSV logger and the same values.

A run that was killed continues where its last checkpoint was made, when the same script is started again with
RLA_RUN_ID and RLA_RESUME=allow: parameters, optimizers, replay buffer, VecNormalize, the environments and
all random generators are as they were, and so is the state of other callbacks. A script that calls `learn`
several times continues in the call in which it was killed. Only time/fps and time/time_elapsed begin anew.

`model.py` says what of a model is kept, `environments.py` of environments, `callbacks.py` of other callbacks,
`learns.py` how calls of `learn` are counted.
"""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.adapter import Joined, in_its_run, join_or_open, open_for_adapter, script_name
from rla_client.contract.errors import ArgumentError, NoCheckpointError, extra
from rla_client.contract.layout import SINKS
from rla_client.manager import ExpManager, exp_manager
from rla_client.run.configure import RUN_ID_VARIABLE
from rla_client.run.current_logger import warn
from rla_client.run.failure import reason_text
from rla_client.run.state.random_state import capture_random_state, restore_random_state
from rla_client.run_handle import OpenRun
from rla_client.stream import scope as scopes
from rla_client.stream.clock import clock, time_step_holder

with extra("sb3", "rla_client.integrations.sb3"):
    import numpy as np
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import Figure, HParam, Image, KVWriter, Video
    from stable_baselines3.common.utils import configure_logger
    from stable_baselines3.common.vec_env import VecEnv

    from rla_client.integrations.sb3.callbacks import callback_states, note_beginning, restore_callbacks
    from rla_client.integrations.sb3.learns import (
        Learn,
        Learns,
        frame_of,
        iterations,
        learns_of,
        set_iterations,
    )
    from rla_client.integrations.sb3.model import exploration, model_state, restore_state
    from rla_client.media.recorders import VideoRecorder
    from rla_client.run.record.summary_writer import tbx_writer

if TYPE_CHECKING:
    import gymnasium

__all__ = ["RLACallback", "RLAOutputFormat", "configure_sb3"]

DEFAULT_FPS = 30.0
_INSTEAD = ("the model is as at the newest one", "the model is as the script made it")
_MEDIA = Video | Figure | Image | HParam  # which SB3's CSV refuses


class RLAOutputFormat(KVWriter):
    """Writes what SB3 dumps as one row at SB3's step; media go to TensorBoard.

    The clock follows SB3's number of time-steps. SB3 prints for itself, so rows are not printed twice.
    Without an open run, the first row opens one in a table of the script's name; so it does beside a run
    that was opened for another model.
    """

    def __init__(self) -> None:
        self._joined = Joined()
        self._wrote = False
        self._own: OpenRun | None = None  # which stays open as long as this is there

    def join(self) -> ExpManager:
        """Write into the run that is current now; its `exp_manager`."""
        self._wrote = True
        self._joined.join()
        return self._joined.manager

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        """See SB3's `KVWriter`."""
        if not self._wrote:
            self._begin()
        with self._joined.active():
            self._write(key_values, key_excluded, step)

    def _begin(self) -> None:
        """Join the run of the model that we write for, else that of the script, else one of our own."""
        for model, held in list(_own.items()):
            if held.run is not None and self in model.logger.output_formats:
                with held.active():
                    self.join()
                return
        opens = open_for_adapter if exp_manager.run in _trained else join_or_open
        self._own = opens(script_name(), {})
        if self._own is not None and self._own.run is not None:
            _trained[self._own.run] = weakref.ref(self)
        self.join()

    def _write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int) -> None:
        current = logger.get_current()
        with current.lock:
            current.clock.put(step)
            for key, value in key_values.items():
                hidden = {name for name in key_excluded.get(key) or () if name in SINKS}
                number = _number(value)
                if number is None:
                    if "tensorboard" not in hidden:
                        _show(current, key, value, step)
                    hidden |= {"tensorboard"}
                if not isinstance(value, _MEDIA):
                    cell = number if number is not None or value is None else str(value)
                    current.record(key, cell, hidden | {"stdout"})
            current.dump()

    def close(self) -> None:
        """Nothing to do: the run continues."""


def _number(value: Any) -> float | int | None:
    """A number, with float32 as SB3's CSV prints it; None for text, media, arrays and all else."""
    if isinstance(value, (np.ndarray, torch.Tensor)) and np.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, (np.float32, np.float16)):
        return float(str(value))
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (bool, int, float)) else None


def _show(current: Any, key: str, value: Any, step: int) -> None:
    """Give TensorBoard what is not a number."""
    if isinstance(value, HParam) and current.take_parameters is not None:
        current.take_parameters(value.hparam_dict)
    if "tensorboard" not in current.sinks or current.folder is None:
        return
    writer = tbx_writer(current)
    if isinstance(value, str):
        writer.add_text(key, value, step)
    elif isinstance(value, Video):
        writer.add_video(key, value.frames, step, value.fps)
    elif isinstance(value, Figure):
        writer.add_figure(key, value.figure, step, close=value.close)
    elif isinstance(value, Image):
        writer.add_image(key, value.image, step, dataformats=value.dataformats)
    elif isinstance(value, HParam):
        writer.name_hparams(value.hparam_dict, value.metric_dict, step)
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        array = value.detach().cpu().double().numpy() if isinstance(value, torch.Tensor) else value
        if array.dtype.kind in "biuf" and np.isfinite(array).any():
            writer.add_histogram(key, array[np.isfinite(array)], step)


@scopes.opening()
def configure_sb3(
    model: BaseAlgorithm, task_table_name: str | None = None, *, track: Iterable[str] = ()
) -> ExpManager:
    """Have an SB3 model log into the open run, or into one that is opened for it.

    Each model gets a run of its own, which stays open as long as the model is there, unless the script has
    opened one.

    Args:
        model: any algorithm of SB3 or sb3-contrib. Its own logger keeps printing and writing.
        task_table_name: of a run that is opened here; default `<environment>-<algorithm>`.
        track: hyper-parameters of the model that become part of such a run's index, e.g. `["seed"]`.

    Returns:
        `exp_manager` of the run.

    Raises:
        ArgumentError: see `rla_client.init`.
    """
    held = _own.get(model)
    with nullcontext() if held is None or held.run is None else held.active():
        return _configure(model, task_table_name, track)


def _configure(model: BaseAlgorithm, task_table_name: str | None, track: Iterable[str]) -> ExpManager:
    global _opened  # noqa: PLW0603 - of the process
    parameters = model_parameters(model)
    algorithm = type(model).__name__
    table = task_table_name or f"{parameters['env_id']}-{algorithm}".replace("/", "-")
    run = exp_manager.run
    whose = None if run is None else _trained.get(run)
    if whose is not None and whose() is not model:  # beside that of another model, or after one that is gone
        opened: OpenRun | None = open_for_adapter(table, parameters, track, run_id=_own_run_id())
    else:
        if logger.get_current().folder is not None:  # what the script says of itself stays
            known = exp_manager.hyper_param
            parameters = {name: value for name, value in parameters.items() if name not in known}
        opened = join_or_open(table, parameters, track, run_id=_own_run_id())
    if opened is not None:
        _own[model] = opened
        if opened.run is not None:
            _trained[opened.run] = weakref.ref(model)
        _opened += 1
    own = getattr(model, "_logger", None)
    if own is None:
        own = configure_logger(model.verbose, model.tensorboard_log, algorithm)  # as `learn` would
    ours = next((each for each in own.output_formats if isinstance(each, RLAOutputFormat)), None)
    if ours is None:
        ours = RLAOutputFormat()
        own.output_formats.append(ours)
    model.set_logger(own)  # which `learn` keeps
    return ours.join()


def _own_run_id() -> str | None:
    """RLA_RUN_ID names the run of the first model; those of others have a number behind it."""
    name, number = os.environ.get(RUN_ID_VARIABLE), _opened + 1
    return f"{name}-{number}" if name and number > 1 else None


_opened = 0  # runs, each for a model
# by run: the model that it was opened for, or what writes for one
_trained: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()
_own: weakref.WeakKeyDictionary[BaseAlgorithm, OpenRun] = (
    weakref.WeakKeyDictionary()
)  # it ends with its model
_learns: weakref.WeakKeyDictionary[Any, dict[str, Learns]] = weakref.WeakKeyDictionary()  # by run and series


def model_parameters(model: BaseAlgorithm) -> dict[str, Any]:
    """The arguments that made a model, as plain data; schedules that are constant as their number."""
    names = inspect.signature(type(model).__init__).parameters
    found: dict[str, Any] = {"algo": type(model).__name__, "env_id": _env_id(model.env)}
    found["n_envs"], found["policy"] = model.n_envs, model.policy_class.__name__
    for name in names:
        if name not in found and name not in {"self", "env", "_init_setup_model"} and hasattr(model, name):
            found[name] = _shown(getattr(model, name))
    return found


def _shown(value: Any) -> Any:
    if isinstance(value, (type(None), bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _shown(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(entry) for entry in value]
    if callable(value) and not isinstance(value, type):
        try:
            first, last = float(value(1.0)), float(value(0.0))
        except Exception:  # noqa: BLE001 - the user's function, of whatever arguments
            return repr(value)
        return first if first == last else f"from {first:g} to {last:g}"
    return str(getattr(value, "__name__", value))


def _env_id(env: VecEnv | None) -> str:
    try:
        specs = [] if env is None else env.get_attr("spec", 0)
        return str(specs[0].id)
    except (AttributeError, IndexError):
        return "environment"


class RLACallback(BaseCallback):
    """Logs, saves and resumes a model, and records videos of it.

    Args:
        save_freq: time-steps (of all environments together) between checkpoints; 0: only one at the end.
            One is made when the next rollout begins.
        replay_buffer: part of the checkpoints of off-policy algorithms, as far as it is filled.
        resume: if the run was resumed (RLA_RUN_ID, `configure(resume=)`), continue at its last checkpoint.
        video_freq: time-steps between two videos; 0: none.
        video_env: the environment that is recorded, with render_mode `rgb_array`; the model plays one
            episode in it, without exploring.
        video_length: maximum number of frames.
        task_table_name: see `configure_sb3`.
        track: see `configure_sb3`.
        checkpoint_name: the series of checkpoints.
        trust: see `exp_manager.load_checkpoint`; needed where the checkpoint is from another machine.
        verbose: SB3's.

    Raises:
        ArgumentError: `video_freq` without a `video_env` that renders.
    """

    def __init__(  # noqa: PLR0913 - each is told apart by its name
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
        self._noise: dict[str, Any] | None = None  # of the checkpoint that was just restored
        self._theirs: dict[str, Any] | None = None  # likewise, the state of the other callbacks
        self._told = False  # that environments cannot be kept
        self._told_end = False  # that the run has ended before the training
        self._learns = Learns()  # of the run
        self._call: Learn | None = None  # of them, the present one
        self._by_learn = False  # whether that was begun by `learn`, not by a loop of the user's own
        self._ended: int | None = None  # where it had ended before the run was resumed
        self._saved = 0  # time-steps at the last checkpoint
        self._filmed: int | None = None  # and at the last film
        self._joined = Joined()

    def _init_callback(self) -> None:
        own = self.model._custom_logger  # noqa: SLF001 - else the next `learn` would not make its logger
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
        """What `learn` calls, which calls us."""
        return self.locals.get("callback") or self

    def _continue(self) -> None:
        """Restore what the run was resumed from, or see that a `learn` that had ended trains nothing."""
        learns, state = self._learns, None
        if not learns.read:
            learns.read = True
            state = self._load()
            if state is None:
                if self._manager.resumed_from is not None:
                    raise NoCheckpointError(f"there is no checkpoint of {self._name!r} to continue from")
                return  # the run ended before its first checkpoint, and begins again
            learns.former = learns_of(state)
        before = learns.had_ended()
        if before is not None:
            self._pass_over(before)
        elif learns.continues():
            self._restore(state or self._load() or {})

    def _load(self, step: int | None = None) -> dict[str, Any] | None:
        """A checkpoint, the newest by default; None where there is none."""
        try:
            found = self._manager.load_checkpoint(step, checkpoint_name=self._name, trust=self._trust)
        except NoCheckpointError:
            return None
        state: dict[str, Any] = found[1]
        return state

    def _restore(self, state: dict[str, Any]) -> None:
        restore_state(self.model, state)
        set_iterations(frame_of(self.model), learns_of(state)[-1].iterations)
        torchs = {key: kept for key, kept in capture_random_state().items() if key in {"torch", "cuda"}}
        self._noise = {"random": torchs, "exploration": state["exploration"]}
        self._theirs = state.get("callbacks")
        self._filmed = state.get("filmed")

    def _pass_over(self, before: Learn) -> None:
        """Have the present `learn` train nothing, and leave the model as the earlier one did."""
        place = len(self._learns.calls)
        state = self._load(before.end)
        if state is None or [call.end for call in learns_of(state)[place - 1 :]] != [before.end]:
            state = self._load()
            if state is None or learns_of(state)[-1].model != before.model:
                state = None
            instead = _INSTEAD[state is None]
            warn(f"the checkpoint of the end of learn() number {place} is superseded: {instead}")
        else:
            restore_callbacks(self._root(), state.get("callbacks", {}), RLACallback)
        if state is not None:
            restore_state(self.model, state)
        assert self._call is not None
        self._ended = before.end
        self.model.num_timesteps = max(before.end or 0, self._call.total)  # nothing is left to do for `learn`
        told = (
            f"learn() number {place} of this run ended at {before.end} time-steps before: nothing is trained"
        )
        logger.get_current().log(f"[RESUME] {told}")

    @in_its_run
    def _on_rollout_start(self) -> None:
        if self._noise is not None:  # a rollout with gSDE has just drawn its noise
            restore_random_state(self._noise["random"])
            exploration(self.model).update(self._noise["exploration"])
            self._noise = None
        if self._theirs is not None:  # now that `on_training_start` was called for all of them
            restore_callbacks(self._root(), self._theirs, RLACallback)
            self._theirs = None
        done = self.model.num_timesteps
        if self._save_freq and done - self._saved >= self._save_freq:
            self._save()
        if self._video_freq and (self._filmed is None or not 0 <= done - self._filmed < self._video_freq):
            try:
                self._film()
            except Exception as error:
                if self._filmed is None:  # a fault of the script, which has just begun
                    raise
                warn(f"no film at {done}: {reason_text(error)}")
            self._filmed = done

    def _on_step(self) -> bool:
        clock.of(self._joined.scope).put(self.num_timesteps)  # of what other callbacks save
        return True

    @in_its_run
    def _on_training_end(self) -> None:
        call, self._call = self._call, None
        if call is None or (self._by_learn and frame_of(self.model) is None):
            return  # RL Zoo calls this again, and after Ctrl-C: then training has not ended
        if self._ended is not None:
            self.model.num_timesteps = self._ended
        call.end = self.model.num_timesteps
        if call.end != self._saved and self._ended is None:
            self._save()

    def _save(self) -> None:
        model = self.model
        self._saved = model.num_timesteps
        if self._manager.run is None:
            if not self._told_end:
                self._told_end = True
                warn(f"the run of this training has ended: there is no checkpoint of {self._saved}")
            return
        time_step_holder.set_time(self._saved)
        state = model_state(model, replay_buffer=self._with_buffer)
        if None in state["environments"] and not self._told:
            self._told = True
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
