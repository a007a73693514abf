"""`wandb.run`, the object of the open run."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from rla_client import logger
from rla_client.adapter import Joined, in_its_run, opened_here
from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import LOG, OTHER_RESULTS
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.integrations.wandb.artifact import Artifact
from rla_client.integrations.wandb.growing_tables import GrowingTables
from rla_client.integrations.wandb.run_config import Config
from rla_client.integrations.wandb.run_summary import SUMMARY_FILE, Summary
from rla_client.integrations.wandb.sample_tables import SampleTables
from rla_client.integrations.wandb.saved_files import SavedFiles, restored
from rla_client.integrations.wandb.step_metrics import DefinedMetric, LoggedRow, StepMetrics
from rla_client.integrations.wandb.tensor_histograms import watcher
from rla_client.integrations.wandb.unknown_names import Lenient, Unknown
from rla_client.integrations.wandb.values import Table, UsageError, show, sort_values
from rla_client.manager import exp_manager
from rla_client.run.current_logger import get_current, warn
from rla_client.run.failure import EndStatus, ending
from rla_client.run.record.scalar_rows import scalar_rows
from rla_client.run.run_mode import MODE_VARIABLE
from rla_client.run_handle import OpenRun
from rla_client.stream import run_scope as scopes
from rla_client.stream.clock import time_step_holder

FILES = "files"  # folder for the script's own files, below the results
ALERT_WAIT_S = 60.0  # between two alerts of one title
current: scopes.PerScope[Run | None] = scopes.PerScope(lambda: None)  # wandb.run
disables: bool = False  # `RLA_MODE` was set by `init`


class Run(Lenient):
    """The open run, with wandb's interface. New tags and notes are written at once, as by `rla tag`.

    Private methods of wandb, which frameworks call, do nothing. A name that is set later becomes a
    hyper-parameter and is not part of the index.
    """

    name: str
    tags: tuple[str, ...]
    notes: str | None

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name.startswith("__") else Unknown(f"Run.{name}")

    def __init__(
        self, name: str | None, project: str, options: Mapping[str, Any], handle: OpenRun | None = None
    ) -> None:
        joined = Joined()
        joined.join()
        vars(self).update(_joined=joined, _handle=handle)
        opening = None if exp_manager.run is None else exp_manager.run.opening
        identity = (
            options.get("id")
            or exp_manager.run_id
            or (opening.run if opening is not None else secrets.token_hex(4))
        )
        held = {key: options.get(key) or "" for key in ("entity", "group", "job_type")}
        held |= {"id": identity, "name": name or identity, "notes": options.get("notes")}
        vars(self).update(held, tags=tuple(options.get("tags") or ()), sweep_id=None)
        self.config, self.summary, self.project = Config(joined=joined), Summary(joined=joined), project
        self.start_time, self.pid = time.time(), os.getpid()
        self.offline, self.disabled = True, exp_manager.run is None or exp_manager.run.outbox is None
        self._earlier = options.get("earlier")
        self.synced, self.filmed = bool(options.get("synced")), bool(options.get("filmed"))
        self.resumed = self._earlier is not None or exp_manager.resumed_from is not None
        self.step = self.starting_step = int(time_step_holder.get_time()) + 1 if self.resumed else 0
        if self.resumed and not self.disabled:
            former = exp_manager.log_dir if self._earlier is None else self._earlier.folder(LOG)
            with contextlib.suppress(OSError, ValueError, TypeError):  # none, or damaged
                dict.update(self.summary, parse_json(read_small(os.path.join(str(former), SUMMARY_FILE))))
        self.keeps_samples = True  # of tables; False in a mirror, where a hook of the library takes them
        self._metrics = StepMetrics()
        self._tables = GrowingTables()
        self._samples = SampleTables(self.config)
        self._alerted: dict[str, float] = {}
        self._warned_of_repetition = False  # of a key in one step
        self._saved = SavedFiles()
        self._hooks: list[Any] = []
        self._folders = options.get("joined") or (None if self.disabled else self._at())
        if options.get("joined"):
            self.summary.end()  # its file is the main process's
        self._finished = False

    @in_its_run
    def __setattr__(self, key: str, value: Any) -> None:
        super().__setattr__(key, tuple(value) if key == "tags" else value)
        if vars(self).get("_finished"):
            return
        if key == "name":
            exp_manager.add_hyper_param({"run_name" if "name" in self.config else "name": str(value)})
        elif key in {"tags", "notes"}:
            self.note()

    @in_its_run
    def note(self) -> None:
        """Write tags and notes."""
        if self.disabled or exp_manager.log_dir is None or not (self.tags or self.notes):
            return
        from rla_client.database.records.notes import change_note, plain_tag  # noqa: PLC0415 - the reading side is slow to import

        hidden = get_current().secrets
        shown = str if hidden is None else hidden.text
        plain = [plain_tag(shown(str(tag))) for tag in self.tags]
        note = None if self.notes is None else shown(str(self.notes))
        root = Path(str(exp_manager.data_root))
        change_note(root, self.path, add=[tag for tag in plain if tag], note=note)

    @property
    def dir(self) -> str:
        """A folder of the run for the script's own files."""
        folder = Path(self._at()[1]) / FILES
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    @property
    def url(self) -> str:
        """The file URL of the run's log folder."""
        return Path(self._at()[0]).absolute().as_uri()

    @property
    def path(self) -> str:
        """Table and index."""
        return os.path.relpath(self._at()[0], os.path.join(str(exp_manager.data_root), LOG))

    @in_its_run
    def _at(self) -> tuple[str, str]:
        """The folders of the run's log and results, even while another run is open."""
        there = vars(self).get("_folders")
        return there or (str(exp_manager.log_dir or "."), str(exp_manager.folder_of(OTHER_RESULTS)))

    def get_url(self) -> str:
        """See `url`."""
        return self.url

    @in_its_run
    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **_: Any
    ) -> None:
        """Add values to the row of a step.

        Rows without a step that come before the first value of their step metric wait for it in memory, at
        most ten minutes and 1,000 rows.

        Args:
            data: name → number, text, array (a histogram), media, or a list of media; nested dicts become
                `group.name`.
            step: by default the next one. A row with a given step is written when another step comes, or
                after a second.
            commit: write the row now; by default if no step is given.

        Raises:
            TypeError: `data` is not a mapping.
            UsageError: the run is finished.
        """
        if not isinstance(data, Mapping):
            raise TypeError("wandb.log must be passed a dictionary")
        values: dict[str, Any] = {}  # for the row
        others: dict[str, Any] = {}
        sort_values(data, "", values, others)
        if self._finished:
            raise UsageError("the run is finished: call wandb.init() again")
        following = max(self.step, int(time_step_holder.get_time())) if self.synced else self.step
        at = following if step is None else int(step)
        commit = step is None if commit is None else commit
        own_time = "_timestamp" in data and "timestamp" not in data
        when = values.pop("_timestamp", None) if own_time else None
        when = float(when) if isinstance(when, int | float) and math.isfinite(when) else None
        self._metrics.take(values, step)
        if self._metrics:
            self._metrics.summarise(values, self.summary)
        else:
            dict.update(self.summary, values)
        row = LoggedRow(values, at, time.time() if when is None else when, commit)
        if values or not others:
            for due, x in self._metrics.due(row, waits=step is None):
                self._write(due, x)
        elif commit and (rows := scalar_rows(logger.get_current())) is not None:
            rows.write()
        if others:
            self._keep(others, at, is_given=step is not None)
        self.step = max(self.step, at) + commit

    def _keep(self, others: Mapping[str, Any], at: float, *, is_given: bool) -> None:
        """Keep values that are not part of a row."""
        for key, value in others.items():
            x = self._metrics.step_of(key, at, is_given=is_given)
            time_step_holder.follow(x, "")
            try:
                kept = self._tables.new_rows(key, value, x) if isinstance(value, Table) else value
                if kept is not None:
                    show(key, kept, x)
                if isinstance(kept, Table) and self.keeps_samples:
                    self._samples.log(key, kept, x, value)
            except Exception as error:  # noqa: BLE001 - encoders fail in many ways; training continues
                warn(f"wandb.log: {key} was not kept: {type(error).__name__}: {error}")

    def _write(self, row: LoggedRow, x: float) -> None:
        time_step_holder.follow(x, next(iter(row.values), ""))
        rows = scalar_rows(logger.get_current())
        if rows is None:
            return
        if row.values:
            repeated = rows.add_all(row.values, x, row.wall_time, (), complete=row.commit)
            if repeated and not self._warned_of_repetition:
                self._warned_of_repetition = True
                names = ", ".join(sorted(repeated))
                warn(
                    f"wandb.log: {names} came twice in step {x}; as with wandb, the last value counts "
                    "(shown once)"
                )
        elif row.commit:
            rows.write()

    def define_metric(self, name: str, step_metric: Any = None, *_: Any, **further: Any) -> DefinedMetric:
        """Define the step metric and the summary of a metric, or of those that match a glob.

        Later calls for a name add to earlier ones.

        Args:
            name: of a metric, or a glob.
            step_metric: the metric whose value becomes the time-step of its rows.
            **further: `summary`: min, max, mean, best, first, last, separated by commas, each of which makes
                an entry `<name>.<word>`; `goal`: minimize or maximize, for `best`; `overwrite`: replace
                earlier calls.
        """
        named = getattr(step_metric, "name", step_metric)
        metric = DefinedMetric(name, named, further.get("summary") or "", further.get("goal"))
        self._metrics.define(metric, overwrite=bool(further.get("overwrite")))
        return metric

    @in_its_run
    def watch(
        self,
        models: Any,
        criterion: Any = None,
        log: str | None = "gradients",
        log_freq: int = 1000,
        **_: Any,
    ) -> None:
        """Send histograms of modules' gradients, parameters or `all`, every `log_freq` backward passes.

        Raises:
            ArgumentError: a model is not a torch.nn.Module.
        """
        del criterion
        if self._finished:
            return
        modules = list(models) if isinstance(models, list | tuple) else [models]
        for module in modules:  # a ValueError, as in wandb
            if not hasattr(module, "named_parameters"):
                what = type(module).__name__
                raise ArgumentError(f"wandb.watch takes a torch.nn.Module, or a list of them, got {what}")
        for number, module in enumerate(modules):
            place = f"_{number}" if len(modules) > 1 else ""
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    hook = watcher(f"{place}/{name}", parameter, log, max(1, log_freq), self._joined)
                    self._hooks.append(parameter.register_hook(hook))

    def unwatch(self, models: Any = None) -> None:
        """Stop watching all models."""
        del models
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @in_its_run
    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live") -> list[str]:
        """Copy files to the run, and changed ones again at its end; returns the paths of the copies."""
        del policy
        if glob_str is None or self.disabled or self._finished:
            return []
        return self._saved.save(os.fspath(glob_str), Path(self.dir), base_path)

    def restore(self, name: str, *_: Any, **__: Any) -> Any:
        """A file that this run or the continued one has saved, open for reading; None without one."""
        if self._finished:
            return None
        before = None if self._earlier is None else Path(self._earlier.folder(OTHER_RESULTS), FILES, name)
        return restored(Path(self.dir, name), before)

    @in_its_run
    def log_artifact(
        self, artifact_or_path: Any, name: str = "", type: str = "", aliases: Any = (), **_: Any,  # noqa: A002
    ) -> Artifact:  # fmt: skip
        """Copy the files of an artifact, a file or a folder to the run."""
        artifact = artifact_or_path
        if not isinstance(artifact, Artifact):
            path = Path(artifact_or_path)
            artifact = Artifact(name or f"run-{self.id}-{path.name}", type or "unspecified")
            (artifact.add_dir if path.is_dir() else artifact.add_file)(path)
        aliases = [aliases] if isinstance(aliases, str) else aliases or ()
        artifact.aliases = list(dict.fromkeys([*artifact.aliases, *aliases]))
        if not (self.disabled or self._finished):
            try:
                artifact.store(self.id)
            except OSError as error:
                warn(f"artifact {artifact.name} was not copied: {error}")
        return artifact

    def log_model(self, path: Any, name: str | None = None, aliases: Any = (), **_: Any) -> Artifact:
        """Copy the file or folder of a model to the run's checkpoints."""
        return self.log_artifact(path, name or PurePath(path).name, "model", aliases)

    def log_code(self, *_: Any, **__: Any) -> None:
        """Do nothing, as each run keeps its code."""

    @in_its_run
    def alert(self, title: str, text: str = "", level: Any = None, wait_duration: Any = ALERT_WAIT_S) -> None:
        """Send an alert through the agent's channels, at most once in `wait_duration` seconds for a title."""
        del level
        if self._finished:
            return
        wait = wait_duration.total_seconds() if hasattr(wait_duration, "total_seconds") else wait_duration
        now = time.monotonic()
        if now - self._alerted.get(title, -math.inf) >= (ALERT_WAIT_S if wait is None else float(wait)):
            self._alerted[title] = now
            exp_manager.alert(title, text)

    def finish(self, exit_code: Any = None, quiet: bool | None = None) -> None:
        """End the run, as `failed` if the exit code is not 0."""
        del quiet
        self._end("failed" if exit_code else "finished", f"exit code {exit_code}" if exit_code else "")

    @in_its_run
    def _end(self, state: EndStatus, reason: str) -> None:
        global disables  # noqa: PLW0603 - see `init`
        if self._finished:
            return
        place = self._joined.scope
        self.leave()
        atexit.unregister(self.leave)
        if opened_here() or self.disabled:
            exp_manager.close(state, reason)
        vars(self)["_handle"] = None
        if current.of(place) is self:
            current.put(None, place)
        if disables:
            disables = False
            os.environ.pop(MODE_VARIABLE, None)

    @in_its_run
    def leave(self) -> None:
        """Write pending rows, changed files and the summary, at the end of the run."""
        if self._finished:
            return
        self._finished = True
        self.unwatch()
        for row, x in self._metrics.rest():
            self._write(row, x)
        self._saved.save_again()
        logger.get_current().write_scalars()
        if self.summary:
            self.summary.changed({})
        self.config.end()
        self.summary.end()

    def __enter__(self) -> Run:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, SystemExit):
            self.finish(getattr(error, "code", None))
        else:
            self._end(*ending(error))
