"""`wrap_experiment`, the decorator of experiments.

    @wrap_experiment(snapshot_mode="gap", snapshot_gap=5, name_parameters="passed")
    def my_experiment(ctxt, seed=1, lr=1e-2): ...

    my_experiment(seed=3)                          # data/local/experiment/my_experiment_seed=3

A call claims a folder, stores the launch record and the code, opens the outputs, and calls the function
with a context. However the function ends, the outputs are closed with its end state, and the former logger
is restored. With RLA_MODE=disabled, and on ranks above 0, nothing is stored: the folder is temporary and
is removed when the process ends.
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

from rla_client.code import launch_archive
from rla_client.code.repository import find_repository
from rla_client.code.restored_secrets import restored
from rla_client.code.run_secrets import Secrets
from rla_client.config.project import LAUNCHER_FOLDER
from rla_client.config.schema import load_config
from rla_client.contract.errors import ArgumentError, ConfigError, LaunchError, RlaError
from rla_client.contract.job.snapshot_footer import read_footer
from rla_client.contract.process.call_signature import signature_of
from rla_client.launcher.context import ExperimentContext, ResumeFrom
from rla_client.launcher.database_run import open_item, reopen_item
from rla_client.launcher.experiment_database import DatabasePlan, find_config_of, find_database
from rla_client.launcher.experiment_folder import Folders, claim_folder, default_log_dir, experiment_name
from rla_client.launcher.item_place import ItemPlace
from rla_client.launcher.launch_parameters import described, differs, recorded_value
from rla_client.launcher.launch_record import describe_launch, launcher_path, write_record
from rla_client.launcher.options import Options
from rla_client.launcher.outputs import Outputs, current_outputs
from rla_client.launcher.run_id import RunName, find_earlier_call, run_name
from rla_client.launcher.snapshot.snapshot_files import find_snapshot
from rla_client.launcher.thread_owner import this_thread
from rla_client.launcher.wanted_call import Relaunch, count_call, taken, top_level_calls, wanted
from rla_client.manager import exp_manager
from rla_client.run.failure import ending
from rla_client.run.temporary_item import TemporaryItem
from rla_client.run.writing_rank import writes_runs

ARCHIVE_WAIT_S = 10.0  # at the end of a run, for the compressor, which can also finish alone
CONTEXT_NAME = "ctxt"
Result = TypeVar("Result")
_log = logging.getLogger("rla_client")


@overload
def wrap_experiment(function: Callable[..., Result], **options: object) -> Callable[..., Result]: ...


@overload
def wrap_experiment(
    function: None = None, **options: object
) -> Callable[[Callable[..., Result]], Callable[..., Result]]: ...


def wrap_experiment(function: Any = None, **options: Any) -> Any:
    """Make an experiment of a function; a decorator with or without arguments.

    Args:
        function: its first parameter is `ctxt`; the others become keyword-only.
        **options: see `options.Options`.

    Returns:
        A function that takes a dict of changed options (or nothing) and the keyword arguments,
        and returns what `function` returns.

    Raises:
        ArgumentError: the first parameter is not `ctxt`, or an option has an invalid value.
    """
    checked = Options().changed(options)
    if function is None:
        return functools.partial(_wrap, checked)
    return _wrap(checked, function)


def _wrap(options: Options, function: Callable[..., Any]) -> Callable[..., Any]:
    signature = signature_of(function)
    shown = _keyword_only(function, signature)
    context = signature.parameters[CONTEXT_NAME]
    called = signature.replace(parameters=[context, *list(shown.parameters.values())])

    @functools.wraps(function)
    def run_experiment(*changes: Mapping[str, Any] | None, **parameters: object) -> object:
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
        raise ArgumentError(f"the first parameter of {function.__name__} must be `{CONTEXT_NAME}`")
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
        self._call = 0
        self._stored = True
        self._secrets = Secrets()

    def run(self) -> object:
        """Run the call, or skip it if a relaunch selects another one."""
        name = self._function.__qualname__
        nested = current_outputs() is not None
        self._call = count_call(name, nested=nested)
        relaunch = wanted()
        if relaunch is not None and not nested:
            if not relaunch.is_for(name, self._call, self._parameters):
                _log.info("passing over call %d of %s: another run is being repeated", self._call, name)
                return None
            self._follow(relaunch)
            with taken(), this_thread(name):
                return self._open_and_run()
        self._find_secrets()
        self._stored = writes_runs()
        with this_thread(name):
            return self._open_and_run()

    def _open_and_run(self) -> object:
        outer = current_outputs()
        outer_dir = None if outer is None else outer.log_dir
        plan = None
        if self._relaunch is None:
            plan = find_database(self._options, self._function.__name__, launcher_path())
        if plan is not None:
            name = RunName() if outer or exp_manager.run is not None else run_name(top_level_calls())
            function = self._function.__qualname__
            earlier = find_earlier_call(name, function, plan) if self._stored else None
            if earlier is None:
                return self._run_item(plan, name, outer_dir)
            self._follow(earlier)
        log_dir = self._claim()
        snapshots = log_dir if self._snapshot_dir is None else self._snapshot_dir
        outputs = self._open_outputs(log_dir, snapshots)
        return self._run_function(outputs, Folders(log_dir, log_dir, snapshots), outer_dir)

    def _open_outputs(self, log_dir: Path, snapshots: Path) -> Outputs:
        x_axis, kept, relaunch = self._options.x_axis, self._rows_to_keep(snapshots), self._relaunch
        if relaunch is not None and (place := ItemPlace.of(log_dir)) is not None:
            return reopen_item(place, log_dir, x_axis, kept or 0, relaunch, self._parameters)
        fresh = not self._options.use_existing_dir or not self._stored
        return Outputs(log_dir, x_axis, kept, fresh=fresh)

    def _follow(self, relaunch: Relaunch) -> None:
        self._relaunch = relaunch
        self._resume_from = relaunch.resume_from
        self._snapshot_dir = Path(relaunch.snapshot_dir)
        self._options = self._options.changed({"log_dir": relaunch.log_dir, "use_existing_dir": True})
        self._find_secrets()
        shown = self._secrets.value
        for key, recorded in self._with_own_secrets(relaunch).items():
            if key not in self._parameters or not differs(self._parameters[key], recorded):
                continue
            own = self._parameters[key]
            value = self._parameters[key] = recorded_value(own, recorded)
            if value is own:
                values = shown(key, own), shown(key, recorded)
                _log.warning("%s=%r of the launcher is used; recorded is only %r", key, *values)
            else:
                _log.warning(
                    "%s=%r, as recorded; the launcher gave %r", key, shown(key, value), shown(key, own)
                )

    def _with_own_secrets(self, relaunch: Relaunch) -> dict[str, Any]:
        """The recorded parameters, with the launcher's secrets, which are not recorded.

        Raises:
            LaunchError: the launcher has no value for a secret.
        """
        missing: list[str] = []
        found: dict[str, Any] = restored(relaunch.parameters, self._parameters, missing)
        if missing:
            raise LaunchError(
                f"secrets are not recorded, and the launcher now gives no {', '.join(missing)}: give "
                "it as at the first start, by an option, the environment or a file"
            )
        return found

    def _find_secrets(self) -> None:
        """Find the secrets in both forms in which parameters may be shown."""
        shown = {"parameters": self._parameters, "described": described(self._parameters)}
        self._secrets = Secrets.of(shown, hides=self._hides_secrets())

    def _hides_secrets(self) -> bool:
        """AGENT.hide_secrets of the run's configuration, else of the launcher's."""
        relaunch, explicit = self._relaunch, self._options.rla_config
        launcher = launcher_path()
        folder = Path.cwd() if launcher is None else launcher.parent
        config = explicit or (None if relaunch is None else relaunch.config) or find_config_of(folder)
        try:
            return True if config is None else load_config(config).agent.hide_secrets
        except ConfigError:
            return True  # the run reports the faults, if it needs the file

    def _claim(self) -> Path:
        if not self._stored:
            return Path(TemporaryItem("plain", "", "noip").log_dir())
        options = self._options
        wanted_dir = options.log_dir
        if wanted_dir is None:
            wanted_dir = default_log_dir(options.prefix, self._name())
        return claim_folder(wanted_dir, existing=options.use_existing_dir)

    def _name(self) -> str:
        shown = self._options.named_parameters(self._passed, self._parameters)
        name = self._options.name or self._function.__name__
        return experiment_name(name, self._secrets.parameters(shown))

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
        self, folders: Folders, outer: str | None, plan: DatabasePlan | None
    ) -> launch_archive.Compression | None:
        if self._resume_from is not None or not self._stored:
            return None  # a resumed run keeps the record of its first start
        script = launcher_path()
        log_dir = folders.log
        data = (Path.cwd().joinpath(*LAUNCHER_FOLDER), *folders.roots)
        config = None if plan is None else plan.config
        try:
            repository = find_repository(script.parent if script else Path.cwd(), data)
            options = asdict(self._options)
            if isinstance(options["rla_config"], Mapping):
                options["rla_config"] = "given as a dict"  # it may hold a password
            launch = replace(
                describe_launch(self._function.__qualname__, self._call, repository, options, self._secrets),
                snapshot_dir=os.path.relpath(folders.snapshots, log_dir),
                code_dir=os.path.relpath(folders.code, log_dir),
                config=os.path.abspath(config) if isinstance(config, Path) else None,
                outer=None if outer is None else os.path.relpath(outer, os.path.realpath(log_dir)),
                log_used=None if plan is None else plan.log_used,
            )
            write_record(log_dir, launch, repository, self._parameters, self._secrets)
            if not self._options.archive_launch_repo:
                return None
            secrets = () if plan is None else load_config(plan.config).secret_files
            return launch_archive.capture(folders.code, repository, script, secrets)
        except (OSError, RlaError) as error:
            _log.warning("the launch of %s could not be kept whole: %s", log_dir, error)
            return None

    def _run_function(
        self, outputs: Outputs, folders: Folders, outer: str | None, plan: DatabasePlan | None = None
    ) -> object:
        options = self._options
        outputs.introduce(self._name(), self._secrets)
        few = not self._stored and options.snapshot_mode != "none"
        context = ExperimentContext(
            snapshot_dir=str(folders.snapshots),
            snapshot_mode="last" if few else options.snapshot_mode,
            snapshot_gap=1 if few else options.snapshot_gap,
            log_dir=outputs.log_dir,
            x_axis=options.x_axis,
            resume_from=self._resume_from,
        )
        try:
            compression = self._keep_launch(folders, outer, plan)
            result = self._function(context, **self._parameters)
        except BaseException as error:
            if isinstance(error, SystemExit) and error.code in {None, 0}:
                outputs.close("finished", "")
                raise
            outputs.close(*ending(error))
            raise
        outputs.close("finished", "")
        if compression is not None:
            compression.wait(ARCHIVE_WAIT_S)
        return result

    def _run_item(self, plan: DatabasePlan, name: RunName, outer: str | None) -> object:
        if self._options.use_existing_dir:
            _log.warning(
                "use_existing_dir has no meaning in a database, where each call is an item of its own; "
                "give log_dir for an existing folder, or continue with `rla resume`"
            )
        shown = self._options.named_parameters(self._passed, self._parameters)
        outputs, folders = open_item(plan, self._options.x_axis, self._parameters, tuple(shown), name)
        return self._run_function(outputs, folders, outer, plan)
