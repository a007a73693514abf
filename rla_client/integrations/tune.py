"""Ray Tune: trials as runs, reports as rows.

    tuner = tune.Tuner(train, run_config=tune.RunConfig(callbacks=[RLACallback()]))

`RLACallback` leaves the training code as it is: Tune's driver writes the rows of all trials. Each trial is
a run of its own, open beside the others (`begin_beside`); a row is one append to its stream in memory. With
many trials on many nodes, `setup_rla(config)` in the trainable keeps them off the driver: the trial's own
process writes a run on its node, and the node's agent does the rest. A trial has one or the other.

A trial that Tune starts again continues in its run, which it finds by the experiment's name and its own id.
All rows stay until the first one comes that is not behind the last: it and those after it take the places
of the earlier ones, which are kept in `abandoned-N/`. So Tune's checkpoints need no mark here.

Nothing here ends an experiment: what goes wrong is a warning, once for each kind of error.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rla_client import logger
from rla_client.code.find_code import find_code
from rla_client.contract.errors import RlaError, extra
from rla_client.contract.layout import CHECKPOINT
from rla_client.manager import ExpManager, current_data, exp_manager
from rla_client.run import environment, failure
from rla_client.run.close import end_run
from rla_client.run.current_logger import get_current, warn
from rla_client.run.disabled_run import begin_storing_nothing
from rla_client.run.item import Item
from rla_client.run.item_run import begin_beside
from rla_client.run.open_run import open_run
from rla_client.run.open_stream import bind_recorders
from rla_client.run.record.row import Row
from rla_client.run.record.run_logger import WARN
from rla_client.run.resume.earlier_streams import StillWritingError
from rla_client.run.resume.find_run import find_here
from rla_client.run.resume.resume_in_place import continue_at, take_back
from rla_client.run.resume.resume_point import prepare
from rla_client.run.run_data import CHECKPOINT_NAME, RunData
from rla_client.shortcuts import describe, flat
from rla_client.stream import scope as scopes
from rla_client.stream.values import to_plain

with extra("ray", "rla_client.integrations.tune"):
    from ray import tune

__all__ = ["RLACallback", "setup_rla"]

ITERATION = "training_iteration"
OF_TUNE = frozenset({
    "time_this_iter_s", "time_total_s", "time_since_restore", "iterations_since_restore",
    "timesteps_since_restore",
})  # fmt: skip
DROPPED = frozenset({
    "checkpoint_dir_name", "config", "date", "done", "experiment_id", "experiment_tag", "hostname", "node_ip",
    "pid", "should_checkpoint", "timestamp", "trial_id",
})  # fmt: skip
FORMER_ENDS_S = 10.0  # for the process that had the trial before
POLL_S = 0.05
_DATE = re.compile(r"_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d$")  # that Tune puts behind the name of an experiment
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FAILURE = re.compile(r"^Failure # \d+ \(occurred at .*\)\n", re.MULTILINE)
_told: set[str] = set()
Hook = TypeVar("Hook", bound=Callable[..., None])


def _tells(hook: Hook) -> Hook:
    """A hook whose errors are warnings."""

    @functools.wraps(hook)
    def call(self: RLACallback, *args: Any, **info: Any) -> None:
        try:
            hook(self, *args, **info)
        except Exception as error:  # noqa: BLE001 - of the disk, or in what was reported: Tune continues
            _tell_once(f"{hook.__name__} {type(error).__name__}", f"{info.get('trial', '')}: {error}")

    return call  # type: ignore[return-value]


def _tell_once(kind: str, text: str) -> None:
    if kind not in _told:
        _told.add(kind)
        warn(f"Ray Tune continues, but its trials are not recorded as they should be: {text} (told once)")


def _table(experiment: str) -> str:
    """The experiment's name without the date, if Tune has put one there."""
    return _DATE.sub("", experiment) or experiment


def _find(data: RunData) -> tuple[Item | None, str]:
    """The run that the trial has so far; and why one is left in the spool."""
    table, config, root = data.setup.configured()
    run_id, autostart = data.setup.run_id or "", config.agent.autostart
    return find_here(root, table, run_id, autostart=autostart, any_state=True)


def _open(data: RunData, *, known: bool) -> float | None:
    """Open the trial's run; one that is `known` may be there already.

    Returns:
        The time-step of the last row of a run that continues; None for a new one.
    """
    told = f"{data.setup.run_id} cannot continue its run, a new one begins"
    earlier, late = (
        _find(data) if known and not environment.disabled() and environment.rank() == 0 else (None, "")
    )
    if late:
        warn(f"{told}: {late}")
    try:
        return begin_beside(data, earlier)
    except StillWritingError:
        raise
    except RlaError as error:
        if earlier is None:
            raise
        warn(f"{told}: {error}")
        return begin_beside(data)


# -- on the driver ---------------------------------------------------------------------------------


class _Trial:
    """The run of one trial, on the driver."""

    def __init__(self, data: RunData, last_step: float | None, config: Mapping[str, Any]) -> None:
        self.data = data
        self._config = config  # the dict that Tune has: a scheduler that changes it puts another in its place
        self._last_step = last_step  # of rows of an earlier process
        self._last_iteration: float | None = None

    def write(self, iteration: float, step: float, row: Row, wall_time: float) -> None:
        """Write a row; earlier ones of this iteration and later ones are taken back."""
        run = self.data.run
        if run is None:
            return
        if self._last_iteration is None:
            again = self._last_step is not None and step <= self._last_step
        else:
            again = iteration <= self._last_iteration
        if again and not take_back(self.data, step):
            _tell_once(
                "spool", "rows of a trial that was started again could not be taken back, and are there twice"
            )
        self._last_iteration = iteration
        self.data.clock.put(step)
        run.logger.write_row(row, step, wall_time, ())

    def follow(self, config: Mapping[str, Any]) -> None:
        """Note what a scheduler, such as PBT, has changed of the trial's configuration."""
        if config is not self._config:
            self._config = config
            self.data.add_hyper_param(dict(config))

    def log(self, text: str, level: int = logger.INFO) -> None:
        """Write a line of text, which is not printed: there are many trials."""
        if self.data.run is not None:
            self.data.run.logger.log(text, level=level, echo=False)

    def close(self, state: str, reason: str = "", details: str = "") -> None:
        """End the run."""
        run = self.data.let_go()
        if run is not None:
            run.close(state, reason, details)


class RLACallback(tune.Callback):
    """Records each trial of an experiment as a run, by Tune's driver; the trainable stays as it is.

    Args:
        task_table_name: default the experiment's name, without the date that Tune puts behind it.
        time_step: key of the results that is the time-step, e.g. `timesteps_total`.
        track: names of the config that become part of each run's index, dotted ones reach into nested dicts;
            default what is searched.
        data_root: see `rla_client.init`.
        rla_config: see `rla_client.init`.
        **further: other arguments of `exp_manager.configure`.

    Raises:
        ArgumentError: an argument is wrong.
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
        self._known: set[str] = set()  # trials that had a run before
        self._restored = False  # any trial may have had one
        _describe(ExpManager(), task_table_name or "table", **self._options)  # wrong ones are told now

    def __getstate__(self) -> dict[str, Any]:  # Tune keeps it with the experiment
        return {**self.__dict__, "_trials": {}}

    def get_state(self) -> dict[str, Any]:
        """That there were trials: a restored experiment looks for their runs."""
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
            manager, self._table or _table(experiment), config=config, **self._options,
            track=[name for name in track if "." in name or name in config],
            run_id=f"{experiment}/{trial.trial_id}", resume="never",
        )  # fmt: skip
        data: RunData = manager._data.successor()  # noqa: SLF001 - with a scope of its own
        known = self._restored or trial.trial_id in self._known
        self._trials[trial.trial_id] = _Trial(data, _open(data, known=known), trial.config)
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
        known.follow(trial.config)
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
        known.write(number, step, row, float(result.get("timestamp") or time.time()))

    @_tells
    def on_checkpoint(
        self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any
    ) -> None:
        """Note where Tune's checkpoint lies."""
        del iteration, trials, info
        if trial.trial_id in self._trials:
            step = (trial.last_result or {}).get(self._time_step, "")
            self._trials[trial.trial_id].log(f"[CHECKPOINT] {step} : {checkpoint.path}")

    @_tells
    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note why Tune starts the trial again."""
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
        """End the runs of trials that did not come to their end: `Tuner.restore` may continue them."""
        del info
        for trial in trials:
            self._close(trial, "interrupted", "the experiment ended before this trial")

    def _close(self, trial: Any, state: str, reason: str = "", details: str = "") -> None:
        known = self._trials.pop(trial.trial_id, None)
        if known is not None:
            known.close(state, reason, details)


def _describe(manager: ExpManager, table: str, **options: Any) -> None:
    """`describe`, and nothing is said of it to the process's own logger."""
    current = get_current()
    reminder = current.reminder
    describe(manager, table, **options)
    current.reminder = reminder


def _searched(trial: Any, trials: Iterable[Any]) -> list[str]:
    """Names of what Tune searches; where a searcher gives all, of what differs between trials so far."""
    given = dict(flat(trial.evaluated_params or {}))
    if len(given) < len(dict(flat(trial.config))) or not given:
        names = list(given)
    else:
        others = [dict(flat(other.evaluated_params or {})) for other in trials if other is not trial]
        differs = [name for name in given if any(other.get(name) != given[name] for other in others)]
        names = differs or list(given)
    return sorted(name.replace("/", ".") for name in names)


def _row(result: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What was reported, nested names joined by '/', and Tune's own measures below `tune/`."""
    own = {key: value for key, value in result.items() if key not in DROPPED and key != ITERATION}
    for key, value in flat(own):
        plain = to_plain(value)
        if plain is not None:
            yield f"tune/{key}" if key in OF_TUNE else f"_{key}" if key == "time-step" else key, plain


def _failure(trial: Any) -> tuple[str, str]:
    """The last line of the trial's newest error, and all of it."""
    try:
        text = Path(trial.error_file).read_text(encoding="utf-8", errors="replace")
    except (OSError, TypeError):
        return "it failed, and Tune does not say why", ""
    newest = _COLOUR.sub("", _FAILURE.split(text)[-1]).strip()
    return newest.rpartition("\n")[2].strip(), newest


# -- in the trainable --------------------------------------------------------------------------------


def setup_rla(
    config: Mapping[str, Any] | None = None,
    *,
    task_table_name: str | None = None,
    track: Iterable[str] = (),
    data_root: str | os.PathLike[str] | None = None,
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    trainable: Any = None,
    **further: Any,
) -> ExpManager:
    """Open the run of this trial, in its own process; call it first in a trainable.

    A trial that Tune starts again continues in its run. With checkpoints of `exp_manager.save_checkpoint` it
    continues at the newest of them (`exp_manager.load_checkpoint()` gives it); with Tune's own, earlier rows
    give way as soon as one comes whose time-step is not behind the last.

    The run ends with the training function, or with the process; it fails with its exception.

    Args:
        config: the trial's: its hyper-parameters.
        task_table_name: default the experiment's name, without the date that Tune puts behind it.
        track: names of the config that become part of the run's index; dotted ones reach into nested dicts.
        data_root: see `rla_client.init`; relative paths start from the folder that Tune was started in.
        rla_config: see `rla_client.init`, and there.
        trainable: in `setup` of a class: `self`.
        **further: other arguments of `exp_manager.configure`.

    Returns:
        `exp_manager`; `rla_client.logger` and `rla_client.log` write into its run.

    Raises:
        ArgumentError: an argument is wrong.
        ConfigError: the configuration has faults.
        KeyError: a tracked name without dot is not in the config.
    """
    experiment, trial_id = _of_trial(trainable)
    start = Path(os.environ.get("TUNE_ORIG_WORKING_DIR") or os.getcwd())
    if scopes.current().is_free():
        end_run(current_data(), "finished", "")
    about = {"run_id": f"{experiment}/{trial_id}", "resume": "allow"} if trial_id else {}
    describe(
        exp_manager, task_table_name or _table(experiment), config=config, track=track, data_root=data_root,
        rla_config=rla_config, start=start if start.is_dir() else None, **{**about, **further},
    )  # fmt: skip
    data = current_data()
    if data.setup.found_code is not None and start.is_dir():
        data.setup.found_code = find_code(start)
        data.setup.project_root = str(data.setup.found_code.root)
    try:
        _open_here(data)
    except (RlaError, OSError) as error:
        warn(f"this trial is not recorded: {error}")
        begin_storing_nothing(data, all_ranks=False)
    _end_with(trainable)
    return exp_manager


def _of_trial(trainable: Any) -> tuple[str, str]:
    """Names of experiment and trial; outside of Tune `tune` and nothing."""
    if trainable is not None:
        return str(trainable._storage.experiment_dir_name), str(trainable.trial_id)  # noqa: SLF001
    context = tune.get_context()
    return str(context.get_experiment_name() or "tune"), str(context.get_trial_id() or "")


def _open_here(data: RunData) -> None:
    """Open the trial's run as that of this process, as soon as no other one has it."""
    if data.setup.run_id is None or environment.disabled() or environment.rank() > 0:
        open_run(data)
        return
    deadline = time.monotonic() + FORMER_ENDS_S
    while True:
        try:
            earlier, _late = _find(data)
            if earlier is None:
                open_run(data)
            elif any(Path(earlier.folder(CHECKPOINT)).glob(f"{CHECKPOINT_NAME}_*")):
                table, _config, root = data.setup.configured()
                continue_at(data, prepare(root, table, earlier, None, CHECKPOINT_NAME, autostart=True))
            else:
                _go_on_behind(data)
        except StillWritingError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        else:
            return


def _go_on_behind(data: RunData) -> None:
    data.enter()
    last = _open(data, known=True)
    run, item = data.run, data.item
    if run is None or item is None:
        return
    logger.set_current(run.logger, data.scope)
    bind_recorders(run, item)
    if last is None:
        return
    data.clock.put(last)
    dump = run.logger.dump

    def first_dump() -> Row:
        if run.logger.pending:
            del run.logger.__dict__["dump"]
            if data.clock.get_time() <= last:
                take_back(data, data.clock.get_time())
        return dump()

    run.logger.dump = first_dump  # type: ignore[method-assign]


def _end_with(trainable: Any) -> None:
    """End the run when the training function returns or raises, for Tune may use its process again."""
    data, thread = current_data(), threading.current_thread()
    run = data.run
    errors: list[BaseException] = []

    def close() -> None:
        if data.run is run:
            end_run(data, *(failure.ending(errors[-1]) if errors else ("finished", "")))

    if trainable is not None:
        step, cleanup = trainable.step, trainable.cleanup

        def told_step() -> Any:
            try:
                return step()
            except BaseException as error:
                errors.append(error)
                close()
                raise

        def told_cleanup() -> None:  # Ray may kill the process right after it
            try:
                cleanup()
            finally:
                close()

        trainable.step, trainable.cleanup = told_step, told_cleanup
    elif hasattr(thread, "_propagate_exception"):  # Ray's: it runs the function, and catches what it raises
        propagate = thread._propagate_exception  # noqa: SLF001 - see above

        def told(error: BaseException) -> None:
            errors.append(error)
            propagate(error)

        thread._propagate_exception = told  # noqa: SLF001

        def wait() -> None:
            thread.join()
            close()

        threading.Thread(target=wait, name="rla-tune-end", daemon=True).start()
