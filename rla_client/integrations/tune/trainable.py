"""Recording of a trial by its own process, for trainables."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rla_client import logger
from rla_client.code.find_code import find_code
from rla_client.contract.errors import RlaError, extra
from rla_client.contract.layout import CHECKPOINT
from rla_client.init_run import describe
from rla_client.integrations.tune.trial_run import find_run, open_trial, table_of
from rla_client.manager import ExpManager, current_data, exp_manager
from rla_client.run import failure
from rla_client.run.close import end_run
from rla_client.run.current_logger import warn
from rla_client.run.open_run import open_run
from rla_client.run.open_stream import bind_recorders
from rla_client.run.record.excluded_sinks import Row
from rla_client.run.resume.earlier_streams import StillWritingError
from rla_client.run.resume.resume_in_place import continue_at, take_back
from rla_client.run.resume.resume_point import prepare
from rla_client.run.run_checkpoints import CHECKPOINT_NAME
from rla_client.run.run_data import RunData
from rla_client.run.unstored_run import begin_storing_nothing
from rla_client.run.writing_rank import writes_runs
from rla_client.stream import run_scope as scopes

with extra("ray", "rla_client.integrations.tune"):
    from ray import tune

FORMER_ENDS_S = 10.0  # wait for the trial's previous process to end
POLL_S = 0.05


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
    """Open the run of this trial in its own process; call this first in a trainable.

    A trial that Tune restarts continues in its run. With checkpoints of `exp_manager.save_checkpoint` it
    continues at the newest one (see `exp_manager.load_checkpoint()`). With Tune's own checkpoints, earlier
    rows are withdrawn when the first row comes that is not behind the last one.

    The run ends with the training function or with the process; it fails if the function raises.

    Args:
        config: the trial's configuration, which becomes hyper-parameters.
        task_table_name: by default the experiment's name without the date that Tune appends.
        track: names of the config that become part of the run's index; dotted names reach into nested dicts.
        data_root: see `rla_client.init`; relative paths start from the folder in which Tune was started.
        rla_config: see `rla_client.init`; relative paths as for `data_root`.
        trainable: `self`, if called in `setup` of a class.
        **further: other arguments of `exp_manager.configure`.

    Returns:
        `exp_manager`; `rla_client.logger` and `rla_client.log` write into its run.

    Raises:
        ArgumentError: an argument is invalid.
        ConfigError: the configuration has faults.
        KeyError: a tracked name without a dot is not in the config.
    """
    experiment, trial_id = _of_trial(trainable)
    start = Path(os.environ.get("TUNE_ORIG_WORKING_DIR") or os.getcwd())
    if scopes.current().is_free():
        end_run(current_data(), "finished", "")
    about = {"run_id": f"{experiment}/{trial_id}", "resume": "allow"} if trial_id else {}
    describe(
        exp_manager, task_table_name or table_of(experiment), config=config, track=track, data_root=data_root,
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
    """Name of the experiment and id of the trial; outside of Tune, `tune` and an empty text."""
    if trainable is not None:
        return str(trainable._storage.experiment_dir_name), str(trainable.trial_id)  # noqa: SLF001
    context = tune.get_context()
    return str(context.get_experiment_name() or "tune"), str(context.get_trial_id() or "")


def _open_here(data: RunData) -> None:
    """Open the trial's run in this process, once no other process writes it."""
    if data.setup.run_id is None or not writes_runs():
        open_run(data)
        return
    deadline = time.monotonic() + FORMER_ENDS_S
    while True:
        try:
            earlier, _late = find_run(data)
            if earlier is None:
                open_run(data)
            elif any(Path(earlier.folder(CHECKPOINT)).glob(f"{CHECKPOINT_NAME}_*")):
                table, config, root = data.setup.configured()
                autostart = config.agent.autostart
                continue_at(data, prepare(root, table, earlier, None, CHECKPOINT_NAME, autostart=autostart))
            else:
                _append_to_trial(data)
        except StillWritingError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        else:
            return


def _append_to_trial(data: RunData) -> None:
    data.enter()
    last = open_trial(data, known=True)
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
    """End the run when the training function returns or raises, as Tune may reuse the process."""
    data, thread = current_data(), threading.current_thread()
    run = data.run
    errors: list[BaseException] = []

    def close() -> None:
        if data.run is run:
            end_run(data, *(failure.ending(errors[-1]) if errors else ("finished", "")))

    if trainable is not None:
        step, cleanup = trainable.step, trainable.cleanup

        def step_then_close_on_error() -> Any:
            try:
                return step()
            except BaseException as error:
                errors.append(error)
                close()
                raise

        def cleanup_then_close() -> None:  # Ray may kill the process right afterwards
            try:
                cleanup()
            finally:
                close()

        trainable.step, trainable.cleanup = step_then_close_on_error, cleanup_then_close
    elif hasattr(
        thread, "_propagate_exception"
    ):  # Ray's thread, which runs the function and catches its errors
        propagate = thread._propagate_exception  # noqa: SLF001 - see above

        def note_and_propagate(error: BaseException) -> None:
            errors.append(error)
            propagate(error)

        thread._propagate_exception = note_and_propagate  # noqa: SLF001

        def wait() -> None:
            thread.join()
            close()

        threading.Thread(target=wait, name="rla-tune-end", daemon=True).start()
