"""`wrap_experiment`: a function becomes an experiment whose every call is a run of its own.

    @wrap_experiment(snapshot_mode="gap", snapshot_gap=5, name_parameters="passed")
    def my_experiment(ctxt, seed=1, lr=1e-2):
        ...

    my_experiment(seed=3)                          # data/local/experiment/my_experiment_seed=3
    my_experiment({"log_dir": "elsewhere"}, seed=4)

A call claims a folder, keeps the launch record and the code as they are now, opens the outputs,
and calls the function with a context. However the function ends, the outputs are closed with
what happened and whoever logged before logs again. Calls nest and repeat.

Nothing but wrong arguments and a folder that cannot be made stops a run before it begins: an
archive that cannot be written is warned about.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar, overload

from rla_client.errors import ArgumentError, RlaError
from rla_client.experiment import launch_archive
from rla_client.experiment.context import ExperimentContext, ResumeFrom
from rla_client.experiment.database_run import DatabasePlan, ItemPlace, find_database, open_item, reopen_item
from rla_client.experiment.directories import (
    DATA_FOLDER,
    Folders,
    claim_folder,
    default_log_dir,
    experiment_name,
)
from rla_client.experiment.launch import (
    describe_launch,
    find_repository,
    launcher_path,
    plain_parameters,
    write_record,
)
from rla_client.experiment.options import Options
from rla_client.experiment.outputs import Outputs, current_outputs
from rla_client.experiment.relaunch import Relaunch, count_call, wanted
from rla_client.experiment.snapshotter import find_snapshot
from rla_client.snapshot_job import read_footer

ARCHIVE_WAIT_S = 10.0  # at the end of a run, for the compressor; it finishes without us too
CONTEXT_NAME = "ctxt"

Function = TypeVar("Function", bound=Callable[..., Any])
_log = logging.getLogger("rla_client")


@overload
def wrap_experiment(function: Function, **options: Any) -> Function: ...  # noqa: ANN401
@overload
def wrap_experiment(function: None = None, **options: Any) -> Callable[[Function], Function]: ...  # noqa: ANN401


def wrap_experiment(function: Any = None, **options: Any) -> Any:
    """Make an experiment of a function; with or without arguments.

    Args:
        function: its first parameter is `ctxt`; the others become keyword-only.
        **options: see `options.Options`.

    Returns:
        A function that takes a dict of changed options (or nothing) and the keyword arguments,
        and returns what `function` returns.

    Raises:
        ArgumentError: the first parameter is not `ctxt`, or an option cannot be meant.
    """
    checked = Options().changed(options)
    if function is None:
        return functools.partial(_wrap, checked)
    return _wrap(checked, function)


def _wrap(options: Options, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    shown = _keyword_only(function, signature)
    context = signature.parameters[CONTEXT_NAME]
    called = signature.replace(parameters=[context, *list(shown.parameters.values())])

    @functools.wraps(function)
    def run_experiment(*changes: Mapping[str, Any] | None, **parameters: Any) -> Any:  # noqa: ANN401
        changed = options.changed(_changes(function, changes))
        bound = called.bind(None, **parameters)
        passed = {key: bound.arguments[key] for key in shown.parameters if key in bound.arguments}
        bound.apply_defaults()
        everything = {key: bound.arguments[key] for key in shown.parameters}
        return _Call(function, changed, _flat(shown, passed), _flat(shown, everything)).run()

    run_experiment.__signature__ = shown  # type: ignore[attr-defined]
    return run_experiment


def _keyword_only(function: Callable[..., Any], signature: inspect.Signature) -> inspect.Signature:
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].name != CONTEXT_NAME:
        message = f"the first parameter of {function.__name__} must be `{CONTEXT_NAME}`"
        raise ArgumentError(message)
    kept = []
    for parameter in parameters[1:]:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY}:
            message = f"{function.__name__} takes {parameter} by position; experiments take keywords only"
            raise ArgumentError(message)
        named = parameter.kind is parameter.VAR_KEYWORD
        kept.append(parameter if named else parameter.replace(kind=parameter.KEYWORD_ONLY))
    return signature.replace(parameters=kept)


def _changes(function: Callable[..., Any], positional: tuple[Any, ...]) -> Mapping[str, Any]:
    if not positional or positional == (None,):
        return {}
    if len(positional) == 1 and isinstance(positional[0], Mapping):
        return positional[0]
    message = f"{function.__name__} takes one dict of options by position, and keywords; got {positional!r}"
    raise ArgumentError(message)


def _flat(shown: inspect.Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in arguments.items():
        if shown.parameters[key].kind is inspect.Parameter.VAR_KEYWORD:
            flat.update(value)
        else:
            flat[key] = value
    return flat


class _Call:
    """One call of an experiment."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        passed: dict[str, Any],
        everything: dict[str, Any],
    ) -> None:
        self._function = function
        self._options = options
        self._passed = passed
        self._parameters = everything
        self._resume_from: ResumeFrom = None
        self._snapshot_dir: Path | None = None
        self._relaunch: Relaunch | None = None

    def run(self) -> Any:  # noqa: ANN401 - what the function returns
        """Run it, or pass it over when another call is wanted."""
        name = self._function.__qualname__
        call = count_call(name)
        relaunch = wanted()
        if relaunch is not None and current_outputs() is None:
            if (relaunch.function, relaunch.call) != (name, call):
                _log.info("passing over call %d of %s: another run is being repeated", call, name)
                return None
            self._follow(relaunch)
        plan = (
            None if self._relaunch else find_database(self._options, self._function.__name__, launcher_path())
        )
        if plan is not None:
            return self._run_in(plan, call)
        log_dir = self._claim()
        snapshots = log_dir if self._snapshot_dir is None else self._snapshot_dir
        compression = self._keep_launch(Folders(log_dir, log_dir, snapshots), call)
        return self._call(self._open_outputs(log_dir, snapshots), snapshots, compression)

    def _open_outputs(self, log_dir: Path, snapshots: Path) -> Outputs:
        x_axis = self._options.x_axis
        relaunch = self._relaunch
        place = None if relaunch is None else ItemPlace.of(log_dir)
        if relaunch is not None and place is not None:
            config = None if relaunch.config is None else Path(relaunch.config)
            return reopen_item(place, log_dir, x_axis, self._rows_to_keep(snapshots) or 0, config)
        fresh = not self._options.use_existing_dir
        return Outputs(log_dir, x_axis, self._rows_to_keep(snapshots), fresh=fresh)

    def _follow(self, relaunch: Relaunch) -> None:
        self._relaunch = relaunch
        self._resume_from = relaunch.resume_from
        self._snapshot_dir = Path(relaunch.snapshot_dir)
        self._options = self._options.changed({"log_dir": relaunch.log_dir, "use_existing_dir": True})
        now = plain_parameters(self._parameters)
        for key, recorded in relaunch.parameters.items():
            if key in now and now[key] != recorded:
                _log.warning("%s=%r, as recorded; the launcher gave %r", key, recorded, self._parameters[key])
                self._parameters[key] = recorded

    def _claim(self) -> Path:
        options = self._options
        wished = options.log_dir
        if wished is None:
            shown = options.named_parameters(self._passed, self._parameters)
            name = experiment_name(options.name or self._function.__name__, shown)
            wished = default_log_dir(options.prefix, name)
        return claim_folder(wished, existing=options.use_existing_dir)

    def _rows_to_keep(self, snapshot_dir: Path) -> int | None:
        if self._resume_from is None:
            return None if self._relaunch is None else 0
        try:
            return int(read_footer(find_snapshot(snapshot_dir, self._resume_from)).get("rows", 0))
        except FileNotFoundError:
            if self._resume_from != "last":
                raise
            return 0

    def _keep_launch(
        self, folders: Folders, call: int, config: object = None
    ) -> launch_archive.Compression | None:
        if self._resume_from is not None:
            return None  # the record of the first start stays
        script = launcher_path()
        log_dir = folders.log
        data = (Path.cwd().joinpath(*DATA_FOLDER), *folders.roots)
        try:
            repository = find_repository(script.parent if script else Path.cwd(), data)
            options = asdict(self._options)
            if isinstance(options["rla_config"], Mapping):
                options["rla_config"] = "given as a dict"  # it may hold a password
            launch = replace(
                describe_launch(self._function.__qualname__, call, repository, options),
                snapshot_dir=os.path.relpath(folders.snapshots, log_dir),
                code_dir=os.path.relpath(folders.code, log_dir),
                config=os.path.abspath(config) if isinstance(config, Path) else None,
            )
            write_record(log_dir, launch, repository, self._parameters)
            if not self._options.archive_launch_repo:
                return None
            return launch_archive.capture(folders.code, repository, script, data)
        except (OSError, RlaError) as error:
            _log.warning("the launch of %s could not be kept whole: %s", log_dir, error)
            return None

    def _call(
        self, outputs: Outputs, snapshot_dir: Path, compression: launch_archive.Compression | None
    ) -> Any:  # noqa: ANN401
        options = self._options
        context = ExperimentContext(
            snapshot_dir=str(snapshot_dir),
            snapshot_mode=options.snapshot_mode,
            snapshot_gap=options.snapshot_gap,
            log_dir=outputs.log_dir,
            x_axis=options.x_axis,
            resume_from=self._resume_from,
        )
        try:
            result = self._function(context, **self._parameters)
        except BaseException as error:
            if isinstance(error, SystemExit) and error.code in {None, 0}:
                outputs.close("finished", "")
                raise
            outputs.close("failed", f"{type(error).__name__}: {error}")
            raise
        outputs.close("finished", "")
        if compression is not None:
            compression.wait(ARCHIVE_WAIT_S)
        return result

    def _run_in(self, plan: DatabasePlan, call: int) -> Any:  # noqa: ANN401
        shown = self._options.named_parameters(self._passed, self._parameters)
        outputs, folders = open_item(plan, self._options.x_axis, self._parameters, tuple(shown))
        compression = self._keep_launch(folders, call, plan.config)
        return self._call(outputs, folders.snapshots, compression)
