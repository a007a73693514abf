"""stable-baselines3: its rows, exactly resumable checkpoints, videos.

    model = PPO("MlpPolicy", "CartPole-v1")
    model.learn(100_000, callback=RLACallback(save_freq=20_000))

`configure_sb3(model)` alone gives rows. Where no run is open, one is opened, with the model's
hyper-parameters. progress.csv has the keys of SB3's own CSV logger and the same values.

A run that was killed continues where its last checkpoint was made, when the same script is started again with
RLA_RUN_ID and RLA_RESUME=allow: parameters, optimizers, replay buffer, VecNormalize, the environments and
all random generators are as they were. Only time/fps, time/iterations and time/time_elapsed begin anew.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.contract.errors import ArgumentError, NoCheckpointError, extra
from rla_client.contract.layout import SINKS
from rla_client.manager import ExpManager, exp_manager
from rla_client.run.archive import capture_random_state, restore_random_state
from rla_client.run.run import warn
from rla_client.shortcuts import (
    Joined,
    OpenRun,
    ensure_run,
    in_its_run,
    join_or_open,
    open_for_adapter,
    script_name,
)
from rla_client.stream.clock import clock, time_step_holder

with extra("sb3", "rla_client.integrations.sb3"):
    import numpy as np
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import Figure, HParam, Image, KVWriter, Video
    from stable_baselines3.common.utils import configure_logger
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

    from rla_client.checkpoint.pickling import capture
    from rla_client.media.recorders import VideoRecorder
    from rla_client.run.tensorboard import tbx_writer

if TYPE_CHECKING:
    import gymnasium

__all__ = ["RLACallback", "RLAOutputFormat", "configure_sb3"]

_LOG = logging.getLogger("rla_client")
DEFAULT_FPS = 30.0
# of a model, that are made anew by `learn`, or say what the script wants rather than how far it is
_OF_THE_SCRIPT = frozenset({"start_time", "_total_timesteps", "_num_timesteps_at_start", "lr_schedule"})


class RLAOutputFormat(KVWriter):
    """Writes what SB3 dumps as one row at SB3's step; media go to TensorBoard.

    The clock follows SB3's number of time-steps. SB3 prints for itself, so rows are not printed twice.
    Without an open run, the first row opens one in a table of the script's name.
    """

    def __init__(self) -> None:
        self._joined = Joined()
        self._wrote = False

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
            ensure_run(script_name(), {})
            self.join()
        with self._joined.active():
            self._write(key_values, key_excluded, step)

    def _write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int) -> None:
        current = logger.get_current()
        with current.lock:
            current.clock.put(step)
            for key, value in key_values.items():
                hidden = {name for name in key_excluded.get(key) or () if name in SINKS}
                plain = _plain(value)
                if isinstance(plain, str) or plain is None:
                    if "tensorboard" not in hidden:
                        _show(current, key, value, step)
                    hidden |= {"tensorboard"}
                if plain is not None:
                    current.record(key, plain, hidden | {"stdout"})
            current.dump()

    def close(self) -> None:
        """Nothing to do: the run continues."""


def _plain(value: Any) -> float | int | str | None:
    """A number or text, with float32 as SB3's CSV prints it; None for media and arrays."""
    if isinstance(value, (np.ndarray, torch.Tensor)) and np.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, (np.float32, np.float16)):
        return float(str(value))
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (bool, int, float, str)) else None


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
        writer.add_histogram(key, value, step)


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
    parameters = model_parameters(model)
    algorithm = type(model).__name__
    table = task_table_name or f"{parameters['env_id']}-{algorithm}".replace("/", "-")
    run = exp_manager.run
    if run is not None and any(held.run is run for one, held in list(_own.items()) if one is not model):
        _own[model] = open_for_adapter(table, parameters, track)  # beside that of the other model
    else:
        if logger.get_current().folder is not None:  # what the script says of itself stays
            known = exp_manager.hyper_param
            parameters = {name: value for name, value in parameters.items() if name not in known}
        opened = join_or_open(table, parameters, track)
        if opened is not None:
            _own[model] = opened
    own = getattr(model, "_logger", None)
    if own is None:
        own = configure_logger(model.verbose, model.tensorboard_log, algorithm)  # as `learn` would
    ours = next((each for each in own.output_formats if isinstance(each, RLAOutputFormat)), None)
    if ours is None:
        ours = RLAOutputFormat()
        own.output_formats.append(ours)
    model.set_logger(own)  # which `learn` keeps
    return ours.join()


_own: weakref.WeakKeyDictionary[BaseAlgorithm, OpenRun] = (
    weakref.WeakKeyDictionary()
)  # it ends with its model


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
        self._noise: dict[str, Any] | None = None  # of the checkpoint that was just restored
        self._told = False  # that environments cannot be kept
        self._saved = 0  # time-steps at the last checkpoint
        self._filmed: int | None = None  # and at the last film
        self._joined = Joined()

    def _init_callback(self) -> None:
        own = self.model._custom_logger  # noqa: SLF001 - else the next `learn` would not make its logger
        with configure_sb3(self.model, self._table, track=self._track).active():
            self._joined.join()
        self.model._custom_logger = own  # noqa: SLF001

    @in_its_run
    def _on_training_start(self) -> None:
        if self._resume and exp_manager.resumed_from is not None:
            self._resume = False  # a second `learn` continues from where the first one ended
            self._restore()
        self._saved = self.model.num_timesteps

    def _restore(self) -> None:
        try:
            _, state = exp_manager.load_checkpoint(checkpoint_name=self._name, trust=self._trust)
        except NoCheckpointError:
            if exp_manager.resumed_from:
                raise
            return  # the run ended before its first checkpoint, and begins again
        restore_state(self.model, state)
        torchs = {key: kept for key, kept in capture_random_state().items() if key in {"torch", "cuda"}}
        self._noise = {"random": torchs, "exploration": state["exploration"]}

    @in_its_run
    def _on_rollout_start(self) -> None:
        if self._noise is not None:  # a rollout with gSDE has just drawn its noise
            restore_random_state(self._noise["random"])
            _exploration(self.model).update(self._noise["exploration"])
            self._noise = None
        done = self.model.num_timesteps
        if self._save_freq and done - self._saved >= self._save_freq:
            self._save()
        if self._video_freq and (self._filmed is None or not 0 <= done - self._filmed < self._video_freq):
            try:
                self._film()
            except Exception as error:
                if self._filmed is None:  # a fault of the script, which has just begun
                    raise
                warn(f"no film at {done}: {error}")
            self._filmed = done

    def _on_step(self) -> bool:
        clock.of(self._joined.scope).put(self.num_timesteps)  # of what other callbacks save
        return True

    @in_its_run
    def _on_training_end(self) -> None:
        if self.model.num_timesteps != self._saved:
            self._save()

    def _save(self) -> None:
        self._saved = self.model.num_timesteps
        time_step_holder.set_time(self._saved)
        state = model_state(self.model, replay_buffer=self._with_buffer)
        if None in state["environments"] and not self._told:
            self._told = True
            warn("the environments cannot be part of checkpoints: a resumed run begins new episodes")
        exp_manager.save_checkpoint(state, checkpoint_name=self._name)

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


# -- all of a model -----------------------------------------------------------------------------


def model_state(model: BaseAlgorithm, *, replay_buffer: bool = True) -> dict[str, Any]:
    """Everything that a model needs to continue exactly where it is, between two rollouts.

    Returns:
        `attributes`, `parameters` (state dicts), `variables` (tensors), `replay_buffer`, `environments` (from
        the outermost wrapper inwards; None for one that cannot be kept), `exploration` (the noise of gSDE),
        `pending` (values of the next row). `restore_state` takes it.
    """
    modules, variables = model._get_torch_save_params()  # noqa: SLF001 - as BaseAlgorithm.save
    left_out = {*model._excluded_save_params(), *(name.split(".")[0] for name in (*modules, *variables))}  # noqa: SLF001
    left_out |= _OF_THE_SCRIPT | (set(inspect.signature(type(model).__init__).parameters) - {"action_noise"})
    attributes = {name: value for name, value in vars(model).items() if name not in left_out}
    buffer = getattr(model, "replay_buffer", None)
    pending = model.logger
    return {
        "algorithm": type(model).__name__,
        "attributes": _portable(attributes),
        "parameters": model.get_parameters(),
        "variables": {name: attrgetter(name)(model).data for name in variables},
        "replay_buffer": _buffer_state(buffer) if replay_buffer and buffer is not None else None,
        "exploration": {name: value for name, value in _exploration(model).items() if "exploration" in name},
        "environments": [_environment_state(layer) for layer in _layers(model.env)],
        "pending": [dict(pending.name_to_value), dict(pending.name_to_count), dict(pending.name_to_excluded)],
    }


def restore_state(model: BaseAlgorithm, state: Mapping[str, Any]) -> None:
    """Put a model where `model_state` was taken. Call it after `learn` has begun, as the callback does.

    Raises:
        ArgumentError: the state is of another algorithm, or its networks have other shapes.
    """
    if state.get("algorithm") != type(model).__name__:
        raise ArgumentError(f"this checkpoint is of {state.get('algorithm')}, not of {type(model).__name__}")
    try:
        model.set_parameters(state["parameters"], exact_match=True, device=model.device)
    except (ValueError, RuntimeError) as error:
        raise ArgumentError(f"this checkpoint does not fit the model: {error}") from error
    for name, value in state["variables"].items():
        attrgetter(name)(model).data.copy_(value)
    layers = list(_layers(model.env))
    fits = len(layers) == len(state["environments"]) and None not in state["environments"]
    attributes = dict(state["attributes"])
    if fits:
        for layer, kept in zip(layers, state["environments"], strict=True):
            vars(layer).update(kept)
    else:
        warn("the environments could not be kept with the checkpoint: they begin a new episode")
        for name in ("_last_obs", "_last_episode_starts", "_last_original_obs"):
            attributes.pop(name, None)
    vars(model).update(attributes)
    model._num_timesteps_at_start = model.num_timesteps  # noqa: SLF001 - what fps is counted from
    if state["replay_buffer"] is not None:
        held = vars(model.replay_buffer)
        held.update({name: _filled(held.get(name), value) for name, value in state["replay_buffer"].items()})
    for kept, values in zip(("value", "count", "excluded"), state["pending"], strict=True):
        getattr(model.logger, f"name_to_{kept}").update(values)


def _layers(env: Any) -> Iterable[VecEnv]:
    while isinstance(env, VecEnvWrapper):
        yield env
        env = env.venv
    if env is not None:
        yield env


def _exploration(model: BaseAlgorithm) -> dict[str, Any]:
    """The attributes of the distribution that draws gSDE's noise; of a model without one, nothing."""
    for owner in (model.policy, getattr(model, "actor", None)):
        distribution: Any = getattr(owner, "action_dist", None)
        if hasattr(distribution, "exploration_mat"):
            return vars(distribution)
    return {}


def _environment_state(layer: VecEnv) -> dict[str, Any] | None:
    """The attributes of a wrapper that can be kept (an open file cannot); of the environments all or None."""
    state = {name: value for name, value in vars(layer).items() if name not in {"venv", "class_attributes"}}
    kept = _portable(state)
    return kept if isinstance(layer, VecEnvWrapper) or len(kept) == len(state) else None


def _portable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a checkpoint takes: no lambdas, no classes made within functions, no open files."""
    found = {}
    for name, value in values.items():
        try:
            capture(value)
        except Exception as error:  # noqa: BLE001 - environments and subclasses hold whatever: windows, sockets
            _LOG.debug("%s is not part of the checkpoint: %s", name, error)
        else:
            found[name] = value
    return found


def _buffer_state(buffer: Any) -> dict[str, Any]:
    """A replay buffer as far as it is filled; its arrays are copied by the checkpoint.

    With `optimize_memory_usage` the place after the newest transition holds its next observation.
    """
    filled = buffer.buffer_size if buffer.full else min(buffer.pos + 1, buffer.buffer_size)
    return {
        name: _tensors(value, buffer.buffer_size, filled)
        for name, value in vars(buffer).items()
        if name not in {"env", "device"}
    }


def _tensors(value: Any, size: int, filled: int) -> Any:
    if isinstance(value, dict):  # gymnasium's spaces.Dict is a mapping, too, and stays as it is
        return {key: _tensors(entry, size, filled) for key, entry in value.items()}
    if isinstance(value, np.ndarray) and value.dtype != object and value.shape[:1] == (size,):
        return torch.from_numpy(value[:filled])
    return value


def _filled(held: Any, value: Any) -> Any:
    """The buffer's own array with the kept part in it, or what was kept as it is."""
    if isinstance(value, dict) and isinstance(held, dict):
        return {key: _filled(held.get(key), entry) for key, entry in value.items()}
    if isinstance(value, torch.Tensor) and isinstance(held, np.ndarray):
        held[: len(value)] = value.numpy()
        return held
    return value
