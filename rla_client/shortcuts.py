"""`rla_client.init` and `rla_client.log`: a run and its rows, one call each.

    run = rla_client.init("cartpole", config=args, track=["seed", "optimizer.lr"])
    for step in range(1000):
        rla_client.log({"loss/policy": loss, "perf/return": episode_return}, step=step)

Several runs may be open. `run.log` writes into its own, from any thread; what names no run writes into that
which its thread opened last, else into that of the process (`stream/scope.py`). The next `init` of a thread
ends the run before it, unless somebody still has its handle: then it stays open until that is given up.

The configuration is the nearest `rla_config.yaml` from the working folder upwards; without one the
built-in defaults hold, and what the code is `rla_client.code.find_code` finds. The database lies in
`data` beside the configuration (without one: in the working folder), or where `RLA_DATA_ROOT` says.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rla_client import logger
from rla_client.contract.errors import ArgumentError
from rla_client.manager import ExpManager, current_data, exp_manager, open_beside
from rla_client.media.pictures import is_picture
from rla_client.run.begin import end_given_up, give_up
from rla_client.run.recording import Exclude, Row, scalar_rows
from rla_client.run.run import ending
from rla_client.run.setup import accepted, names_code, unexpected
from rla_client.stream import scope as scopes
from rla_client.stream.clock import TimeStep, time_step_holder
from rla_client.stream.param_values import resolved
from rla_client.stream.scope import Scope
from rla_client.stream.values import MAX_DEPTH, to_plain

if TYPE_CHECKING:
    from typing_extensions import Self

    from rla_client.run.data import RunData
    from rla_client.run.run import Run

_NO_GROUPS = frozenset((float, int, bool, str))  # types of which `log` need not ask whether they are dicts


def init(
    task_table_name: str,
    *,
    config: object = None,
    track: Iterable[str] = (),
    data_root: str | os.PathLike[str] | None = None,
    rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    all_ranks: bool = False,
    **further: Any,  # noqa: ANN401 - arguments of configure
) -> OpenRun:
    """Open a run: `configure`, `set_hyper_param`, `add_record_param` and `log_files_gen` in one call.

    Args:
        task_table_name: table that collects the runs of one task.
        config: hyper-parameters: a mapping, an argparse Namespace, a dataclass, an OmegaConf, or
            any object with attributes.
        track: names of those that become part of the run's index; dotted ones reach into nested ones.
        data_root: folder of the database; default `$RLA_DATA_ROOT`, else `data` beside the configuration.
        rla_config: path or dict; default the nearest rla_config.yaml upwards, else built-in defaults.
        all_ranks: see `exp_manager.log_files_gen`.
        **further: other arguments of `exp_manager.configure` (code_root, run_file, console, …).

    Returns:
        The run, which has all that `exp_manager` has. `exp_manager`, `logger` and `rla_client.log` mean it
        too, in the thread that called this, and in those that have opened none.

    Raises:
        ArgumentError: an argument is wrong.
        ConfigError: the configuration has faults.
        KeyError: a tracked name without dot is not among the hyper-parameters.
        TypeError: there is no such argument.
    """
    if further and (unknown := further.keys() - (names := accepted())):
        raise unexpected("init", min(unknown), [*names, "config", "track", "all_ranks"])
    former = current_data()
    opened = OpenRun(former.successor())
    describe(
        opened,
        task_table_name,
        config=config,
        track=track,
        data_root=data_root,
        rla_config=rla_config,
        **further,
    )
    open_beside(former, opened._data, all_ranks=all_ranks)  # noqa: SLF001 - its own
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
    start: Path | None = None,
    **further: Any,  # noqa: ANN401 - arguments of configure
) -> None:
    """`init` without opening the run: `configure`, `set_hyper_param`, `add_record_param`.

    Args:
        manager: what is to open it.
        task_table_name: see `init`, as all others but `start`.
        config: hyper-parameters.
        track: names of those in the index.
        data_root: folder of the database.
        rla_config: path or dict.
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
    source, folder = _source(rla_config, further.get("code_root"), start)
    if isinstance(source, Mapping) and names_code(source):
        further.setdefault("code_root", folder)
    manager.configure(
        task_table_name=task_table_name,
        rla_config=source,
        data_root=data_root or os.environ.get(DATA_ROOT_VARIABLE) or folder / DATA_FOLDER,
        **further,
    )
    manager.set_hyper_param(**parameters)
    manager.clear_record_param()
    manager.add_record_param(track)


def ensure_run(
    table: str,
    parameters: Mapping[str, Any],
    track: Iterable[str] = (),
    *,
    joins: bool = True,
    **further: Any,  # noqa: ANN401 - arguments of configure
) -> bool:
    """`join_or_open`; whether the run is its own."""
    return join_or_open(table, parameters, track, joins=joins, **further) is not None


def join_or_open(
    table: str,
    parameters: Mapping[str, Any],
    track: Iterable[str] = (),
    *,
    joins: bool = True,
    **further: Any,  # noqa: ANN401 - arguments of configure
) -> OpenRun | None:
    """Open a run for something that writes and was told of none, unless one is open.

    What the script has configured itself is opened as it says; otherwise `init(table, …)`. Another thread's
    run is not joined, where nobody but something like this opened it.

    Args:
        table: table of a run of its own.
        parameters: hyper-parameters; they join those of the script's run.
        track: those that become part of the index of a run of its own.
        joins: take part in the run of a process that started this one.
        **further: arguments of `exp_manager.configure` for a run of its own.

    Returns:
        The run, if it is its own.

    Raises:
        ArgumentError: the data root cannot be written.
        ConfigError: the configuration has faults.
    """
    data, here = current_data(), scopes.current()
    current = logger.get_current()
    of_another = data.of_adapter and here.is_anothers()  # of one like this one, in its own thread
    if current.folder is not None and (joins or opened_here()) and not of_another:
        if parameters and current.take_parameters is not None:
            current.take_parameters(parameters)
        return None
    of_script = data.next_setup is not None or not data.of_adapter
    if exp_manager.config is not None and of_script and here.is_free():
        exp_manager.hyper_param = {**exp_manager.hyper_param, **parameters}
        exp_manager.log_files_gen()
        return None
    return open_for_adapter(table, parameters, track, **further)


def open_for_adapter(
    table: str,
    parameters: Mapping[str, Any],
    track: Iterable[str] = (),
    **further: Any,  # noqa: ANN401 - arguments of configure
) -> OpenRun:
    """`init` for something that was not told of a run."""
    former = current_data()
    try:
        return init(table, config=parameters, track=track, **further)
    finally:  # what failed is not the script's own either
        if current_data() is not former:
            current_data().of_adapter = True


class Joined:
    """The run that an adapter writes to: that which was current when it joined, whatever is current later.

    Where that has ended, it is the one that was opened in its place since. One that was open beside it all
    the while is somebody else's: then nothing is kept of what the adapter logs, which is said once.
    """

    def __init__(self) -> None:
        self._scope: Scope | None = None
        self._told = False

    def join(self) -> None:
        """Write to the current run from here on."""
        self._scope = scopes.current()

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return self._scope is not None and self._scope.used

    @property
    def is_left(self) -> bool:
        """Whether the run has ended, and the one that is current is somebody else's."""
        now = scopes.current()
        return not self.is_open and self._scope is not None and now.used and now.opened < self._scope.ended

    @property
    def scope(self) -> Scope:
        """The run's."""
        if self._scope is None:
            self.join()
        elif not self._scope.used:
            if self.is_left:
                self._tell()
            elif scopes.current().used:
                self.join()
            else:
                return scopes.current()
        assert self._scope is not None
        return self._scope

    def _tell(self) -> None:
        if self._told or self._scope is None:
            return
        self._told = True
        data = current_data.of(self._scope)
        name = (
            data.setup.task_table_name if data.item is None else f"{data.item.table}/{data.item.index.path}"
        )
        logging.getLogger("rla_client").warning(
            "the run %s has ended, and the one that is open is another: what is logged for it is not kept",
            name,
        )

    @property
    def manager(self) -> ExpManager:
        """`exp_manager` of the run."""
        return ExpManager(current_data.of(self.scope))

    def active(self) -> AbstractContextManager[None]:
        """For the length of a `with` block, what names no run is part of this one."""
        return scopes.inside(self.scope)


Method = TypeVar("Method", bound=Callable[..., Any])


def in_its_run(method: Method) -> Method:
    """A method of an adapter, whose `_joined` is a `Joined`: what it logs is part of that run."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with self._joined.active():
            return method(self, *args, **kwargs)

    return cast("Method", call)


def opened_here() -> bool:
    """Whether this process opened the run that is open."""
    run = exp_manager.run
    return run is not None and run.pid == os.getpid() and run.logger is logger.get_current()


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


_left: weakref.WeakKeyDictionary[Run, str] = weakref.WeakKeyDictionary()  # and the state in which it was


def open_own_run(table: str, parameters: Mapping[str, Any], track: Iterable[str] = ()) -> Run | None:
    """`ensure_run` for what says with `leave_run` when it is done; the run, if it is its own."""
    renew_run()
    return exp_manager.run if ensure_run(table, parameters, track) else None


def leave_run(run: Run | None, state: str = "finished") -> None:
    """Say that what opened a run is done. The run stays open for what follows, until `renew_run`.

    Args:
        run: what `open_own_run` gave; None: nothing is left.
        state: in which the run ends.
    """
    if run is not None:
        _left[run] = state


def rejoin_run() -> None:
    """Take back that what opened the open run is done: it continues."""
    if exp_manager.run is not None:
        _left.pop(exp_manager.run, None)


def renew_run() -> None:
    """End the open run if what opened it is done: what comes now has a run of its own."""
    if exp_manager.run is not None and exp_manager.run in _left and not scopes.current().is_anothers():
        exp_manager.close(_left[exp_manager.run])


def script_name() -> str:
    """What a run may be called after: the script, the module of `python -m`, `notebook` or `interactive`."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__").rpartition(".")[2]
    path = getattr(main, "__file__", None)
    if path is None:
        return "notebook" if "ipykernel" in sys.modules else "interactive"
    return Path(path).stem


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


def write_row(values: Mapping[str, Any], step: float) -> None:
    """Write a row of another library's values; it is not mixed with what is recorded, and not printed.

    Args:
        values: name to number, text or array; nested dicts become `group/name`.
        step: its time-step; the clock follows where this is ahead of it.
    """
    time_step_holder.follow(step)
    current, plain = logger.get_current(), {}
    for name, value in flat(values):
        if is_picture(value):
            current.save_picture(name, value, step)
        else:
            plain[name] = to_plain(value)
    if plain:
        current.write_row(plain, step, time.time(), ())


class CountedRows:
    """`write_row` for a library that need not say a step: then its rows are counted.

    In a run that was resumed they are counted on from where it continues.
    """

    def __init__(self) -> None:
        self._next: float | None = None

    def write(self, values: Mapping[str, Any], step: float | None) -> float:
        """Write a row; the step that it got."""
        if self._next is None:
            self._next = time_step_holder.get_time() + 1 if exp_manager.resumed_from else 0
        at = self._next if step is None else step
        self._next = at + 1
        write_row(values, at)
        return at


def add_scalar(name: str, value: object, step: float) -> None:
    """Add one value of another library to the row of a step, which the clock follows."""
    rows = scalar_rows(logger.get_current())
    if rows is not None:
        rows.add(name, to_plain(value), step, time.time(), ())
    else:
        time_step_holder.follow(step)


def flat(values: object, prefix: str = "", depth: int = 0) -> list[tuple[str, Any]]:
    """Names and values of a dict, those of nested dicts as `group/name`; below `MAX_DEPTH` dicts stay values.

    Raises:
        ArgumentError: it is no dict.
    """
    if not isinstance(values, Mapping):
        what = type(values).__name__
        raise ArgumentError(f"log takes a dict of values, e.g. log({{'loss': 0.1}}, step=1), got {what}")
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if type(value) not in _NO_GROUPS and isinstance(value, Mapping) and depth < MAX_DEPTH:
            found += flat(value, f"{prefix}{name}/", depth + 1)
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
    omegaconf = sys.modules.get("omegaconf")
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
