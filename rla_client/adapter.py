"""Run of an adapter for another library.

* `ensure_run`, `join_or_open`: at the first record of something that was told of no run.
* `open_own_run`, then `leave_run` when its work is done: the run stays open for what follows, until
  `renew_run` (or the next `open_own_run`) ends it; `rejoin_run` takes that back.
* `Joined` with `in_its_run`: calls that stay in the run that was current when the adapter joined.
* `write_row`, `CountedRows`, `add_scalar`: rows of the other library's values.
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
from rla_client.init_run import init
from rla_client.log_row import flat
from rla_client.manager import ExpManager, current_data, exp_manager
from rla_client.media.row_media import is_media
from rla_client.run.parameters.hyper_params import HyperParams
from rla_client.run.parameters.telling_names import telling_names
from rla_client.run.record.scalar_rows import scalar_rows
from rla_client.run_handle import OpenRun
from rla_client.stream import run_scope as scopes
from rla_client.stream.clock import time_step_holder
from rla_client.stream.run_scope import Scope
from rla_client.stream.values import to_plain

if TYPE_CHECKING:
    from rla_client.run.failure import EndStatus
    from rla_client.run.run import Run


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


@scopes.opening()
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


_left: weakref.WeakKeyDictionary[Run, EndStatus] = weakref.WeakKeyDictionary()  # and how it ends


@scopes.opening()
def open_own_run(table: str, parameters: Mapping[str, Any], track: Iterable[str] = ()) -> Run | None:
    """`ensure_run` for what says with `leave_run` when it is done; the run, if it is its own."""
    renew_run()
    return exp_manager.run if ensure_run(table, parameters, track) else None


def leave_run(run: Run | None, state: EndStatus = "finished") -> None:
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


def command_line() -> list[str]:
    """The arguments of the script; none in a notebook, whose command line is not the user's."""
    named = getattr(sys.modules["__main__"], "__file__", None) is not None
    return list(getattr(sys, "argv", ())[1:]) if named else []


def telling_parameters(parameters: Mapping[str, Any]) -> list[str]:
    """What to track where the script says nothing: seed, learning rate, what its command line overrides."""
    return telling_names(HyperParams(parameters).flat(), command_line())


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


def write_row(values: Mapping[str, Any], step: float) -> None:
    """Write a row of another library's values; it is not mixed with what is recorded, and not printed.

    Args:
        values: name to number, text or array; nested dicts become `group/name`.
        step: its time-step; the clock follows where this is ahead of it.
    """
    time_step_holder.follow(step, str(next(iter(values), "")))
    current, plain = logger.get_current(), {}
    for name, value in flat(values):
        if is_media(value):
            current.save_media(name, value, step)
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
            self._next = time_step_holder.get_time() + 1 if exp_manager.resumed_from is not None else 0
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
        time_step_holder.follow(step, name)
