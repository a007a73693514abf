"""`rla_client.init`, `join`, `log`: a run or a row by one call.

    run = rla_client.init("cartpole", config=args, track=["seed", "optimizer.lr"])
    for step in range(1000):
        rla_client.log({"loss/policy": loss, "perf/return": episode_return}, step=step)

Several runs may be open. `run.log` writes into its own, from any thread; what names no run writes into that
which its thread opened last, else into that of the process (`stream/scope.py`). The next `init` of a thread
ends the run before it, unless somebody still has its handle. The configuration is the nearest
`rla_config.yaml` from the working folder upwards; without one the built-in defaults hold, and
`rla_client.code.find_code` finds the code. The database lies in `data` beside the configuration, or where
`RLA_DATA_ROOT` says.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.contract.errors import ArgumentError, NotConfiguredError
from rla_client.contract.process.loaded_modules import loaded
from rla_client.manager import ExpManager, current_data, exp_manager, open_beside
from rla_client.run.close import end_given_up, entered, give_up
from rla_client.run.configure import names_code
from rla_client.run.environment import disabled
from rla_client.run.failure import ending
from rla_client.run.record.row import Exclude, Row
from rla_client.stream import scope as scopes
from rla_client.stream.clock import TimeStep, time_step_holder
from rla_client.stream.param_values import resolved
from rla_client.stream.values import MAX_DEPTH

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from rla_client.run.configure import ConfigureArguments, ResumeMode
    from rla_client.run.run_data import RunData


_NO_GROUPS = frozenset((float, int, bool, str))  # types of which `log` need not ask whether they are dicts


@scopes.opening()
def init(  # noqa: PLR0913 - those of `configure` are spelt out
    task_table_name: str,
    *,
    config: object = None,
    track: Iterable[str] = (),
    data_root: str | os.PathLike[str] | None = None,
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    run_id: str | None = None,
    resume: ResumeMode | None = None,
    console: bool | None = None,
    code_root: str | os.PathLike[str] | None = None,
    run_file: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    ignore_file_path: str | os.PathLike[str] | None = None,
    log_callback_fn: Callable[[Row], object] | None = None,
    is_master_node: bool = False,
    all_ranks: bool = False,
) -> OpenRun:
    """Open a run: `configure`, `set_hyper_param`, `add_record_param` and `log_files_gen` in one call.

    Args:
        task_table_name: table that collects the runs of one task.
        config: hyper-parameters: a mapping, an argparse Namespace, a dataclass, an OmegaConf, or
            any object with attributes.
        track: names of those that become part of the run's index; dotted ones reach into nested ones.
        data_root: folder of the database; default `$RLA_DATA_ROOT`, else `data` beside the configuration.
        rla_config: path or dict; default the nearest rla_config.yaml upwards, else built-in defaults.
        run_id: names this run for a later process; see `exp_manager.configure`, as the six after it.
        resume: `never`; `allow` continues the newest run of this `run_id`, or opens a new run; `must` raises
            if there is none.
        console: keep what the run prints in `console.txt`.
        code_root: root of the code to back up.
        run_file: file or files to back up beside the code.
        ignore_file_path: gitignore rules of what the code backup leaves out.
        log_callback_fn: called with each written row.
        is_master_node: this machine is the master, so the run is not replicated.
        all_ranks: see `exp_manager.log_files_gen`.

    Returns:
        The run, which has all that `exp_manager` has. `exp_manager`, `logger` and `rla_client.log` mean it
        too, in the thread that called this, and in those that have opened none.

    Raises:
        ArgumentError: an argument is wrong.
        ConfigError: the configuration has faults.
        KeyError: a tracked name without dot is not among the hyper-parameters.
    """
    former = current_data()
    opened = OpenRun(former.successor())
    describe(
        opened,
        task_table_name,
        config=config,
        track=track,
        data_root=data_root,
        rla_config=rla_config,
        run_id=run_id,
        resume=resume,
        console=console,
        code_root=code_root,
        run_file=run_file,
        ignore_file_path=ignore_file_path,
        log_callback_fn=log_callback_fn,
        is_master_node=is_master_node,
    )
    open_beside(former, opened._data, all_ranks=all_ranks)  # noqa: SLF001 - its own
    return opened


def run_address() -> str:
    """The address of the open run, by which other processes `join` it while it is open, here or elsewhere.

    Plain text, for an argument or a variable, of a few hundred characters. Empty where this process stores
    nothing (RLA_MODE=disabled, ranks above 0): who joins that stores nothing either.

    Raises:
        NotConfiguredError: no run is open.
    """
    current = logger.get_current()
    if not current.address and exp_manager.run is None:
        raise NotConfiguredError("no run is open: call rla_client.init(...) before rla_client.run_address()")
    return current.address


@scopes.opening()
def join(address: str, role: str = "") -> OpenRun:
    """Take part in a living run that another process opened, as an actor or a worker does.

        rla_client.join(address, role="rollout-3")  # address: what rla_client.run_address() gave there
        rla_client.log({"reward": 0.5}, step=3)

    What is logged from here on is written to the run's `progress.<role>.csv`; readers call such a metric
    `reward@rollout-3`. Media go into a folder `<role>` of the run's results; checkpoints and hyper-parameters
    are those of the process that opened it. It joins at once or raises: nothing is waited for.

    On another machine than that process's, this one writes a part of the run: the same index below this
    machine's own data root, the role with the machine's name behind it. On the master it is one run.

    Args:
        address: see `run_address`.
        role: name of this writer; where another one has it, with a number behind it. Default its rank or
            process number.

    Returns:
        Its handle, as `init` gives one.

    Raises:
        ArgumentError: this is no address, or no role.
        NoSuchRunError: no such run lives on the machine that its address names, where that is this one; or a
            copy of the run lies where this machine would write.
    """
    from rla_client.run import join_run  # noqa: PLC0415 - not at import of the package
    from rla_client.run.disabled_run import begin_storing_nothing  # noqa: PLC0415

    if role:
        join_run.check_role(role)
    former = current_data()
    opened = OpenRun(former.successor())
    if not address or disabled():
        describe(opened, "joined", rla_config={}, code_root=os.curdir)
        open_beside(former, opened._data, opens=partial(begin_storing_nothing, all_ranks=False))  # noqa: SLF001 - its own
        return opened
    elsewhere = join_run.told_elsewhere(address)
    if elsewhere is not None:
        describe(opened, elsewhere.table)

        def opens_part(data: RunData) -> None:
            with entered(data):
                join_run.join_part(data, address, elsewhere, role)

        open_beside(former, opened._data, opens=opens_part)  # noqa: SLF001 - its own
        return opened
    opening = join_run.living_run(address)
    has_config = opening.config is not None and os.path.exists(opening.config)
    config: str | dict[str, Any] | None = opening.config if has_config else {}
    describe(
        opened, opening.table or "joined", data_root=opening.root, rla_config=config, code_root=os.curdir
    )

    def opens(data: RunData) -> None:
        with entered(data):
            join_run.open_joined(data, address, opening, role)

    open_beside(former, opened._data, opens=opens)  # noqa: SLF001 - its own
    return opened


class OpenRun(ExpManager):
    """The handle of a run that `init` opened: an `exp_manager` of that run alone, for any thread.

        with rla_client.init("cartpole", config=args) as run:
            run.log({"loss": 0.5}, step=1)

    At the end of a `with` block the run ends: failed where an exception ended it.
    """

    def __init__(self, data: RunData) -> None:
        super().__init__(data)
        self.time_step_holder = data.clock
        self._told = False  # that it has ended
        data.is_held = True
        weakref.finalize(self, give_up, data).atexit = False

    @property
    def id(self) -> str:
        """Its `run_id`; without one, what tells it from all others."""
        opening = None if self.run is None else self.run.opening
        return self.run_id or ("" if opening is None else opening.run)

    @property
    def index(self) -> str:
        """Its index in the table, as `rla ls` and `rla show` have it; empty where nothing is stored."""
        item = self._data.item
        return "" if item is None else item.index.path

    def log(self, values: Mapping[str, Any], step: TimeStep | None = None) -> Row:
        """`rla_client.log` into this run; once it has ended, a warning."""
        if self._has_ended():
            return {}
        with self.active():
            return log(values, step)

    def log_samples(
        self,
        rows: object,
        step: TimeStep | None = None,
        name: str = "train",
        group: object = None,
        *,
        tokens: bool = False,
    ) -> None:
        """`rla_client.log_samples` into this run; once it has ended, a warning."""
        if not self._has_ended():
            with self.active():
                log_samples(rows, step, name, group, tokens=tokens)

    def record_tabular(self, key: str, val: object, exclude: Exclude = None) -> None:
        """`logger.record_tabular` into this run."""
        if self._has_ended():
            return
        with self.active():
            logger.record_tabular(key, val, exclude)

    def dump_tabular(self, step: TimeStep | None = None) -> Row:
        """`logger.dump_tabular` of this run."""
        if self._has_ended():
            return {}
        with self.active():
            return logger.dump_tabular(step)

    def _has_ended(self) -> bool:
        """Whether nothing can be written any more; said once."""
        if self.run is None and not self._told:
            self._told = True
            logging.getLogger("rla_client").warning("%r has ended: what is logged into it is not kept", self)
        return self.run is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            self.close(*ending(error))

    def __repr__(self) -> str:
        return f"<run {self.task_table_name}/{self.index}>"


def describe(  # noqa: PLR0913 - `init`'s
    manager: ExpManager,
    task_table_name: str,
    *,
    config: object = None,
    track: Iterable[str] = (),
    data_root: str | os.PathLike[str] | None = None,
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    code_root: str | os.PathLike[str] | None = None,
    start: Path | None = None,
    **further: Unpack[ConfigureArguments],
) -> None:
    """`init` without opening the run: `configure`, `set_hyper_param`, `add_record_param`.

    Args:
        manager: what is to open it.
        task_table_name: see `init`, as all others but `start`.
        config: hyper-parameters.
        track: names of those in the index.
        data_root: folder of the database.
        rla_config: path or dict.
        code_root: root of the code to back up.
        start: where a configuration is looked for and paths start from; default the working folder.
        **further: other arguments of `configure`.

    Raises:
        ArgumentError: an argument is wrong.
        ConfigError: the configuration has faults.
        KeyError: a tracked name without dot is not among the hyper-parameters.
    """
    from rla_client.config.project import DATA_FOLDER, DATA_ROOT_VARIABLE  # noqa: PLC0415 - not at import of the package

    if isinstance(track, str):
        raise ArgumentError(f"track takes a list of names, e.g. track=[{track!r}]")
    parameters = to_parameters(config)
    if start is not None:
        data_root = None if data_root is None else start / data_root
        rla_config = start / rla_config if isinstance(rla_config, str | os.PathLike) else rla_config
    source, folder = _source(rla_config, code_root, start)
    if code_root is None and isinstance(source, Mapping) and names_code(source):
        code_root = folder
    manager.configure(
        task_table_name=task_table_name,
        rla_config=source,
        data_root=data_root or os.environ.get(DATA_ROOT_VARIABLE) or folder / DATA_FOLDER,
        code_root=code_root,
        **further,
    )
    manager.set_hyper_param(**parameters)
    manager.clear_record_param()
    manager.add_record_param(track)


def default_data_root() -> Path:
    """Where `init` puts runs that are told no data root."""
    from rla_client.config.project import DATA_FOLDER, DATA_ROOT_VARIABLE  # noqa: PLC0415 - not at import of the package

    root = os.environ.get(DATA_ROOT_VARIABLE)
    return Path(root) if root else _source(None, None)[1] / DATA_FOLDER


def starts_agent() -> bool:
    """Whether `init` would start an agent where none runs.

    Raises:
        ConfigError: the configuration has faults.
    """
    from rla_client.config.schema import load_config  # noqa: PLC0415 - not at import of the package

    config = exp_manager.config or load_config(_source(None, None)[0])
    return config.agent.autostart


def log(values: Mapping[str, Any], step: TimeStep | None = None) -> Row:
    """Write one row: `record_tabular` for each value, the clock set to `step`, `dump_tabular`.

    Values that were recorded before and not yet dumped are part of the row.

    Args:
        values: name to number, text or array; nested dicts become `group/name`. Figures of matplotlib
            and plotly, PIL images, uint8 arrays of shape (H, W, C) or (C, H, W) with C of 1, 3 or 4, and
            lists of these are saved as `results/…/<time-step>-<name>.png` (plotly: `.html`) by the agent.
        step: the time-step. Without it, the clock keeps its value; if it was never set, the
            calls are counted from 0.

    Returns:
        The row with `time-step` and `timestamp`; an empty dict when there was no value, pictures aside.

    Raises:
        ArgumentError: `values` is not a dict, or `step` is not a finite number; nothing is written then.
    """
    given = flat(values)
    end_given_up()
    current = logger.get_current()
    with current.lock:  # rows of two threads do not mix
        if step is not None:
            time_step_holder.set_time(step)
        for name, value in given:
            logger.record_tabular(name, value)
        row = current.dump()
        if row or given:
            time_step_holder.count()
    return row


def log_samples(
    rows: object,
    step: TimeStep | None = None,
    name: str = "train",
    group: object = None,
    *,
    tokens: bool = False,
) -> None:
    """Keep samples of a language model: prompts, completions, rewards, and whatever else a row has.

    A call that has returned is safe from a kill of this process, as a row is. It never raises and never
    waits: what cannot be kept is counted as lost, with a warning. rla_config.yaml has the limits (`SAMPLES`).

    Args:
        rows: a list of dicts, a dict of columns, or a DataFrame. Known names: `prompt` and `completion`
            (text or messages), `reward`, `rewards` ({name: number}), `advantage`, `group`,
            `tokens_prompt`, `tokens_completion`, `finish`, `truth`, `policy_version`, `error`. Other
            numbers and texts become columns, too; lists and dicts JSON; pictures files of the results.
        step: the time-step; default that of the clock, which stays as it is.
        name: tells them from others, such as those of an evaluation.
        group: what tells samples of one prompt from others: the name of a column, or one value a row;
            default a hash of the prompt.
        tokens: keep lists of token ids, masks and log-probabilities, too.
    """
    from rla_client.run.record.log_samples import log_samples as log_into  # noqa: PLC0415 - only where there are some

    end_given_up()
    log_into(logger.get_current(), rows, step=step, name=name, group=group, tokens=tokens)


def flat(values: object, prefix: str = "", around: tuple[int, ...] = ()) -> list[tuple[str, Any]]:
    """Names and values of a dict, those of nested dicts as `group/name`.

    Dicts below `MAX_DEPTH`, or that contain themselves, stay values. `around`: identities of those around it.

    Raises:
        ArgumentError: it is no dict.
    """
    if not isinstance(values, Mapping):
        what = type(values).__name__
        raise ArgumentError(f"log takes a dict of values, e.g. log({{'loss': 0.1}}, step=1), got {what}")
    found: list[tuple[str, Any]] = []
    inside = (*around, id(values))
    for name, value in values.items():
        is_group = type(value) not in _NO_GROUPS and isinstance(value, Mapping)
        if is_group and len(around) < MAX_DEPTH and id(value) not in inside:
            found += flat(value, f"{prefix}{name}/", inside)
        else:
            found.append((f"{prefix}{name}", value))
    return found


def to_parameters(config: object) -> dict[str, Any]:
    """Hyper-parameters by name, values as they are.

    Raises:
        ArgumentError: it holds no names.
    """
    if config is None:
        return {}
    omegaconf = loaded("omegaconf")
    if omegaconf is not None and omegaconf.OmegaConf.is_config(config):
        config = resolved(config)
    if isinstance(config, Mapping):
        return {str(key): value for key, value in config.items()}
    fields = getattr(type(config), "__dataclass_fields__", None)
    if fields is not None and not isinstance(config, type):
        return {name: getattr(config, name) for name in fields if hasattr(config, name)}
    if hasattr(config, "_asdict"):
        return dict(config._asdict())
    if isinstance(config, type) or not hasattr(config, "__dict__"):
        raise ArgumentError(
            "config takes the hyper-parameters as a dict, Namespace, dataclass or OmegaConf, "
            f"got {type(config).__name__}"
        )
    return dict(vars(config))


def _source(
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None,
    code_root: object,
    start: Path | None = None,
) -> tuple[str | os.PathLike[str] | Mapping[str, Any], Path]:
    """The configuration, and the folder beside which the database lies by default."""
    from rla_client.config.project import find_config  # noqa: PLC0415 - not at import of the package

    try:
        begin = start or Path.cwd()
        here = begin if code_root is None else Path(str(code_root)).absolute()
        if isinstance(rla_config, Mapping):
            return rla_config, here
        if rla_config is not None:
            return rla_config, Path(rla_config).absolute().parent
        found = find_config(begin)
    except FileNotFoundError as error:
        raise ArgumentError(
            "a path starts from the working folder, which is gone: change to another folder"
        ) from error
    return ({}, here) if found is None else (found, found.parent)
