"""Ray Tune's callback on the driver."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rla_client import logger
from rla_client.contract.errors import extra
from rla_client.init_run import describe
from rla_client.integrations.tune.trial_run import open_trial, table_of
from rla_client.log_row import flat
from rla_client.manager import ExpManager
from rla_client.run.current_logger import get_current, warn
from rla_client.run.parameters.run_parameters import add_hyper_param
from rla_client.run.record.excluded_sinks import Row
from rla_client.run.record.run_logger import WARN
from rla_client.run.resume.resume_in_place import take_back
from rla_client.run.run_data import RunData
from rla_client.stream.values import to_plain

with extra("ray", "rla_client.integrations.tune"):
    from ray import tune

ITERATION = "training_iteration"
SINCE_START = "iterations_since_restore"
OF_TUNE = frozenset({
    "time_this_iter_s", "time_total_s", "time_since_restore", SINCE_START,
    "timesteps_since_restore",
})  # fmt: skip
DROPPED = frozenset({
    "checkpoint_dir_name", "config", "date", "done", "experiment_id", "experiment_tag", "hostname", "node_ip",
    "pid", "should_checkpoint", "timestamp", "trial_id",
})  # fmt: skip
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FAILURE = re.compile(r"^Failure # \d+ \(occurred at .*\)\n", re.MULTILINE)
_told: set[str] = set()
Hook = TypeVar("Hook", bound=Callable[..., None])


def _tells(hook: Hook) -> Hook:
    """A hook that turns its errors into warnings."""

    @functools.wraps(hook)
    def call(self: RLACallback, *args: Any, **info: Any) -> None:
        try:
            hook(self, *args, **info)
        except Exception as error:  # noqa: BLE001 - Tune must continue
            _tell_once(f"{hook.__name__} {type(error).__name__}", f"{info.get('trial', '')}: {error}")

    return call  # type: ignore[return-value]


def _tell_once(kind: str, text: str) -> None:
    if kind not in _told:
        _told.add(kind)
        warn(f"Ray Tune continues, but its trials are not fully recorded: {text} (shown once)")


class _Trial:
    """The run of one trial, on the driver."""

    def __init__(self, data: RunData, last_step: float | None, config: Mapping[str, Any]) -> None:
        self.data = data
        self._config = config
        self._last_step = last_step  # of the rows of an earlier process
        self._last_iteration: float | None = None

    def write(
        self, iteration: float, step: float, row: Row, wall_time: float, config: Mapping[str, Any] | None
    ) -> None:
        """Write a row; earlier rows of this and of later iterations are withdrawn.

        Args:
            iteration: of the trial.
            step: time-step.
            row: its values.
            wall_time: Unix seconds.
            config: configuration of a trial that was just started; None: it was running already.
        """
        run = self.data.run
        if run is None:
            return
        if self._last_iteration is None:
            again = self._last_step is not None and step <= self._last_step
        else:
            again = iteration <= self._last_iteration
        if again and not take_back(self.data, step):
            _tell_once("spool", "rows of a restarted trial could not be removed and appear twice")
        self._last_iteration = iteration
        self.data.clock.put(step)
        if config is not None:
            self._follow(config)
        run.logger.write_row(row, step, wall_time, ())

    def _follow(self, config: Mapping[str, Any]) -> None:
        """Record changes of the trial's configuration by a scheduler such as PBT."""
        try:
            same = bool(config == self._config)
        except Exception:  # noqa: BLE001 - arrays and the user's classes may raise
            same = False
        if not same:
            self._config = config
            add_hyper_param(self.data, dict(config))

    def log(self, text: str, level: int = logger.INFO) -> None:
        """Write a line of text without printing it, as there are many trials."""
        if self.data.run is not None:
            self.data.run.logger.log(text, level=level, echo=False)

    def close(self, state: str, reason: str = "", details: str = "") -> None:
        """End the run."""
        run = self.data.let_go()
        if run is not None:
            run.close(state, reason, details)


class RLACallback(tune.Callback):
    """Records each trial of an experiment as a run, in Tune's driver; the trainable needs no change.

    Args:
        task_table_name: by default the experiment's name without the date that Tune appends.
        time_step: key of the results that is the time-step, e.g. `timesteps_total`.
        track: names of the config that become part of each run's index; dotted names reach into nested dicts.
            By default the names that Tune searches.
        data_root: see `rla_client.init`.
        rla_config: see `rla_client.init`.
        **further: other arguments of `exp_manager.configure`.

    Raises:
        ArgumentError: an argument is invalid.
        ConfigError: the configuration has faults.
    """

    def __init__(
        self,
        task_table_name: str | None = None,
        *,
        time_step: str = ITERATION,
        track: Iterable[str] | None = None,
        data_root: str | os.PathLike[str] | None = None,
        rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        **further: Any,
    ) -> None:
        self._table, self._time_step = task_table_name, time_step
        self._track = None if track is None else [track] if isinstance(track, str) else list(track)
        self._options = {"data_root": data_root, "rla_config": rla_config, "start": Path.cwd(), **further}
        self._trials: dict[str, _Trial] = {}
        self._known: set[str] = set()  # trials with an earlier run
        self._restored = False  # any trial may have an earlier run
        _describe(ExpManager(), task_table_name or "table", **self._options)  # raises for invalid options

    def __getstate__(self) -> dict[str, Any]:  # Tune keeps it with the experiment
        return {**self.__dict__, "_trials": {}}

    def get_state(self) -> dict[str, Any]:
        """The state of an experiment that has trials; when it is restored, their runs are looked up."""
        return {"restored": True}

    def set_state(self, state: dict[str, Any]) -> None:
        """See `get_state`."""
        self._restored = bool(state.get("restored"))

    @_tells
    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Open the trial's run; one that is started again continues in the one it has."""
        del iteration, info
        if trial.trial_id in self._trials:
            return
        manager, experiment = ExpManager(), trial.storage.experiment_dir_name
        config = dict(trial.config)
        track = _searched(trial, trials) if self._track is None else self._track
        _describe(
            manager, self._table or table_of(experiment), config=config, **self._options,
            track=[name for name in track if "." in name or name in config],
            run_id=f"{experiment}/{trial.trial_id}", resume="never",
        )  # fmt: skip
        data: RunData = manager._data.successor()  # noqa: SLF001 - with a scope of its own
        known = self._restored or trial.trial_id in self._known
        self._trials[trial.trial_id] = _Trial(data, open_trial(data, known=known), config)
        self._known.add(trial.trial_id)

    @_tells
    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: Mapping[str, Any], **info: Any
    ) -> None:
        """Write a row."""
        del iteration, trials, info
        known = self._trials.get(trial.trial_id)
        if known is None:
            return
        number = result.get(ITERATION, 0)
        step = to_plain(result.get(self._time_step))
        if not isinstance(step, int | float):
            _tell_once(
                "step", f"a result without a number {self._time_step!r} has {ITERATION} as its time-step"
            )
            step = number
        row = dict(_row(result))
        if self._time_step != ITERATION:
            row[f"tune/{ITERATION}"] = number
        # PBT may have changed `trial.config` for this result; the result has the configuration that led to it
        used = result.get("config", trial.config) if result.get(SINCE_START) == 1 else None
        config = used if isinstance(used, Mapping) else None
        known.write(number, step, row, float(result.get("timestamp") or time.time()), config)

    @_tells
    def on_checkpoint(
        self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any
    ) -> None:
        """Log the path of Tune's checkpoint."""
        del iteration, trials, info
        if trial.trial_id in self._trials:
            step = (trial.last_result or {}).get(self._time_step, "")
            self._trials[trial.trial_id].log(f"[CHECKPOINT] {step} : {checkpoint.path}")

    @_tells
    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Log why Tune restarts the trial."""
        del iteration, trials, info
        if trial.trial_id in self._trials:
            reason, details = _failure(trial)
            self._trials[trial.trial_id].log(f"[WARN] Tune starts it again: {reason}\n{details}", WARN)

    @_tells
    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """End the run."""
        del iteration, trials, info
        self._close(trial, "finished")

    @_tells
    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """End the run as failed."""
        del iteration, trials, info
        self._close(trial, "failed", *_failure(trial))

    @_tells
    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """End the runs of unfinished trials as interrupted; `Tuner.restore` may continue them."""
        del info
        for trial in trials:
            self._close(trial, "interrupted", "the experiment ended before this trial")

    def _close(self, trial: Any, state: str, reason: str = "", details: str = "") -> None:
        known = self._trials.pop(trial.trial_id, None)
        if known is not None:
            known.close(state, reason, details)


def _describe(manager: ExpManager, table: str, **options: Any) -> None:
    """Call `describe` without an effect on the process's own logger."""
    current = get_current()
    reminder = current.reminder
    describe(manager, table, **options)
    current.reminder = reminder


def _searched(trial: Any, trials: Iterable[Any]) -> list[str]:
    """Names that Tune searches; if a searcher sets all parameters, those that differ between trials."""
    given = dict(flat(trial.evaluated_params or {}))
    if len(given) < len(dict(flat(trial.config))) or not given:
        names = list(given)
    else:
        others = [dict(flat(other.evaluated_params or {})) for other in trials if other is not trial]
        differs = [name for name in given if any(other.get(name) != given[name] for other in others)]
        names = differs or list(given)
    return sorted(name.replace("/", ".") for name in names)


def _row(result: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The reported values, with nested names joined by '/'; Tune's own values are below `tune/`."""
    own = {key: value for key, value in result.items() if key not in DROPPED and key != ITERATION}
    for key, value in flat(own):
        plain = to_plain(value)
        if plain is not None:
            yield f"tune/{key}" if key in OF_TUNE else f"_{key}" if key == "time-step" else key, plain


def _failure(trial: Any) -> tuple[str, str]:
    """The last line and the complete text of the trial's newest error."""
    try:
        text = Path(trial.error_file).read_text(encoding="utf-8", errors="replace")
    except (OSError, TypeError):
        return "it failed, and Tune does not say why", ""
    newest = _COLOUR.sub("", _FAILURE.split(text)[-1]).strip()
    return newest.rpartition("\n")[2].strip(), newest
