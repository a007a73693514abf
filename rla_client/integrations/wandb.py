"""A module of wandb's shape: `import rla_client.integrations.wandb as wandb`.

A script that logs to wandb logs here with this line changed: `wandb.log` makes rows, `config`
hyper-parameters, `Image` and `Video` files in the run's results, `Artifact` and `save` copies of files,
`alert` a message by the agent's channels. The project is the table; the run's name is tracked in its index.
Nothing leaves the machine but by replication. Names that are not known here warn once and do nothing.

Where it differs: a step that is behind becomes a row of its own, instead of nothing; changing a value of
`config` is allowed; `define_metric(…, step_metric="global_step")` makes that the time-step of the rows.
"""

from __future__ import annotations

import atexit
import datetime as dt
import enum
import fnmatch
import glob
import importlib
import io
import json
import math
import os
import secrets
import shutil
import time
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.contract.errors import RlaError
from rla_client.contract.extras import extra
from rla_client.contract.files import write_atomic
from rla_client.contract.layout import CHECKPOINT, LOG, OTHER_RESULTS, component_problem
from rla_client.contract.version import __version__  # noqa: F401 - wandb.__version__
from rla_client.manager import exp_manager
from rla_client.media.summaries import summary_scalars
from rla_client.run.current import warn
from rla_client.run.item import Item
from rla_client.run.run import MODE_VARIABLE
from rla_client.run.tensorboard import scalar_rows, tbx_writer
from rla_client.shortcuts import default_data_root, ensure_run, opened_here, script_name, to_parameters
from rla_client.stream.clock import time_step_holder
from rla_client.stream.values import plain_hyper_param, to_plain

with extra("tensorboard", "rla_client.integrations.wandb"):
    import numpy as np

if TYPE_CHECKING:
    from rla_client.resume.find import FoundRun

MAX_LISTED = 32  # elements of an array that stays a list; of a larger one a histogram is kept, as in wandb
RESERVED = frozenset({"time-step", "timestamp"})  # columns that each row has
ALERT_WAIT_S = 60.0  # between two alerts of one title
MAX_FRAME_FILE = 1 << 20  # larger files are written here, smaller ones by the agent
_RESUME = {"allow": "allow", "auto": "allow", True: "allow", "must": "must", "never": "never"}
_WITHOUT_MEANING = frozenset({
    "dir", "magic", "config_exclude_keys", "config_include_keys", "anonymous", "allow_val_change",
    "resume_from", "fork_from", "save_code", "settings", "force", "tensorboard",
})  # fmt: skip
_PLAIN_TYPES = frozenset({float, int, bool, str})
_warned: set[str] = set()


class Error(RlaError):
    """What wandb calls its errors."""


class UsageError(Error):
    """A call that cannot be meant."""


CommError = Error


class _Errors:
    """wandb.errors: those that are not known here are `Error`."""

    Error, UsageError, CommError = Error, UsageError, Error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Error


errors = _Errors()


class AlertLevel(enum.Enum):
    """How bad it is; all are told alike."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


# -- what can be logged beside numbers -------------------------------------------------------------


class Image:
    """An array, PIL image, matplotlib figure or file; a batch of images is shown side by side.

    Boxes, masks and classes are not drawn. Floats that are negative, and tensors beyond 1, are scaled to the
    range from their least to their greatest value, as wandb does.
    """

    def __init__(
        self,
        data_or_path: Any,
        mode: str | None = None,
        caption: str | None = None,
        *_further: Any,
        **further: Any,
    ) -> None:
        del mode, further
        self.data: Any = data_or_path.data if isinstance(data_or_path, Image) else data_or_path
        self.caption = caption


class Video:
    """An array of frames, shape (T, C, H, W), or a file."""

    def __init__(
        self,
        data_or_path: Any,
        caption: str | None = None,
        fps: float | None = None,
        format: str | None = None,  # noqa: A002 - wandb's name
    ) -> None:
        self.data, self.caption, self.fps, self.format = data_or_path, caption, fps or 4, format or "mp4"


class Audio:
    """Samples, float in -1…1, or a file."""

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        self.data, self.sample_rate, self.caption = data_or_path, sample_rate or 44100, caption


class Histogram:
    """Values, or counts with the edges of their bins."""

    def __init__(
        self, sequence: Any = None, np_histogram: tuple[Any, Any] | None = None, num_bins: int = 64
    ) -> None:
        self.sequence, self.np_histogram, self.num_bins = sequence, np_histogram, num_bins


class Html:
    """Text of a page, a file's path, or something that is read."""

    def __init__(self, data: Any, **further: Any) -> None:
        del further
        if hasattr(data, "read"):
            self.html = str(data.read())
        elif str(data).endswith(".html") and os.path.isfile(data):
            self.html = Path(data).read_text(encoding="utf-8")
        else:
            self.html = str(data)


class Table:
    """Rows under names; kept as CSV."""

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        data: Iterable[Sequence[Any]] | None = None,
        rows: Iterable[Sequence[Any]] | None = None,
        dataframe: Any = None,
        **further: Any,
    ) -> None:
        del further
        frame: Any = dataframe if dataframe is not None else data
        if hasattr(frame, "columns") and hasattr(frame, "to_numpy"):
            columns, data = list(frame.columns), frame.to_numpy().tolist()
        self.columns = list(columns or ("Input", "Output", "Expected"))
        self.data = [list(row) for row in (data if data is not None else rows or ())]

    def add_data(self, *row: Any) -> None:
        """Append a row.

        Raises:
            ValueError: it has another number of cells.
        """
        if len(row) != len(self.columns):
            raise ValueError(f"this table has {len(self.columns)} columns, got {len(row)} cells")
        self.data.append(list(row))

    def add_column(self, name: str, data: Sequence[Any]) -> None:
        """Append a column."""
        self.data = self.data or [[] for _ in data]
        self.columns.append(name)
        for row, cell in zip(self.data, data, strict=True):
            row.append(cell)

    add_row = add_data

    def get_column(self, name: str, convert_to: str | None = None) -> Any:
        """A column's cells; an array with `convert_to="numpy"`."""
        place = self.columns.index(name)
        cells = [row[place] for row in self.data]
        return np.asarray(cells) if convert_to == "numpy" else cells

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Number and cells of each row."""
        return enumerate(self.data)

    def get_dataframe(self) -> Any:
        """As a pandas DataFrame."""
        import pandas as pd  # noqa: PLC0415 - slow to import

        return pd.DataFrame(self.data, columns=self.columns)

    def __getattr__(self, name: str) -> Any:
        return _further(f"Table.{name}")


class Artifact:
    """Files under a name; `log_artifact` copies them to the run: models to its checkpoints."""

    def __init__(
        self,
        name: str,
        type: str,  # noqa: A002 - wandb's name
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **further: Any,
    ) -> None:
        del further
        self.name, self.type, self.description, self.metadata = name, type, description, dict(metadata or {})
        self.version, self.aliases = "v0", ["latest"]
        self.entries: dict[str, Path | bytes] = {}
        self._folder: Path | None = None

    def add_file(self, local_path: str | os.PathLike[str], name: str | None = None, **further: Any) -> None:
        """Add a file.

        Raises:
            ValueError: there is none.
        """
        del further
        path = Path(local_path)
        if not path.is_file():
            raise ValueError(f"path is not a file: {path}")
        self.entries[name or path.name] = path.absolute()

    def add_dir(self, local_path: str | os.PathLike[str], name: str | None = None, **further: Any) -> None:
        """Add all files below a folder.

        Raises:
            ValueError: there is none.
        """
        del further
        if not Path(local_path).is_dir():
            raise ValueError(f"path is not a directory: {local_path}")
        for path in sorted(Path(local_path).rglob("*")):
            if path.is_file():
                self.entries[(PurePath(name or "") / path.relative_to(local_path)).as_posix()] = (
                    path.absolute()
                )

    def add(self, obj: Any, name: str, **further: Any) -> None:
        """Add a table, as CSV; other objects are left out."""
        del further
        if isinstance(obj, Table):
            self.entries[f"{name}.csv"] = _csv(obj)
        else:
            _unknown(f"Artifact.add of {type(obj).__name__}")

    @contextmanager
    def new_file(self, name: str, mode: str = "w", **further: Any) -> Iterator[Any]:
        """Write a file of the artifact."""
        del further
        file: Any = io.BytesIO() if "b" in mode else io.StringIO()
        yield file
        content = file.getvalue()
        self.entries[name] = content if isinstance(content, bytes) else content.encode()

    def wait(self, *_: Any, **__: Any) -> Artifact:
        """Nothing to wait for."""
        return self

    def download(self, root: str | None = None, **further: Any) -> str:
        """The folder with its files; copied to `root` if that is given.

        Raises:
            ValueError: it was not logged.
        """
        del further
        if self._folder is None:
            raise ValueError(f"artifact {self.name} was not logged")
        if root is not None:
            shutil.copytree(self._folder, root, dirs_exist_ok=True)
        return str(root or self._folder)

    def __getattr__(self, name: str) -> Any:
        return _further(f"Artifact.{name}")

    def store(self, run: Run) -> None:
        """Copy the files into the run, in the folder of the next version."""
        kind = CHECKPOINT if self.type in {"model", "checkpoint"} else OTHER_RESULTS
        parent = Path(exp_manager.folder_of(kind)) / "artifacts" / _safe(self.name)
        count = len(list(parent.glob("v*"))) if parent.is_dir() else 0
        self.version, self._folder = f"v{count}", parent / f"v{count}"
        for name, entry in self.entries.items():
            target = self._folder / _safe(name)
            if isinstance(entry, bytes):
                target.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(target, entry, durable=False)
            else:
                _copy(entry, target)
        about: dict[str, Any] = {"name": self.name, "type": self.type, "description": self.description}
        about |= {"metadata": plain_hyper_param(self.metadata), "run": run.id, "files": sorted(self.entries)}
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(about, indent=1, default=str)
        write_atomic(self._folder / "artifact.json", text.encode(), durable=False)


# -- config and summary ---------------------------------------------------------------------------


class Config(Mapping[str, Any]):
    """The run's hyper-parameters, as items and as attributes; what is set is written at once."""

    def __init__(self) -> None:
        object.__setattr__(self, "_items", {})

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, key: str) -> Any:
        try:
            return object.__getattribute__(self, "_items")[key]
        except KeyError:
            raise AttributeError(f"config has no {key!r}") from None

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    __setattr__ = __setitem__

    def update(self, d: Any = None, allow_val_change: bool | None = None, **further: Any) -> None:
        """Set several: a mapping, a Namespace, a dataclass."""
        del allow_val_change
        values = {**_parameters(d), **further}
        self._items.update(values)
        if values and run is not None:
            exp_manager.add_hyper_param(values)

    def setdefaults(self, d: Any) -> None:
        """Set those that are not there."""
        self.update({key: value for key, value in _parameters(d).items() if key not in self._items})

    update_locked = merge_locked = update

    def persist(self) -> None:
        """Nothing: what is set is written at once."""

    def as_dict(self) -> dict[str, Any]:
        """A copy."""
        return dict(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


class Summary(dict[str, Any]):
    """The last value of each metric, or what `define_metric` says, and what the script sets.

    Kept in `summary.json` beside the rows: when the script sets something, and when the run ends.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.save()

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several."""
        super().update(*args, **kwargs)
        self.save()

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None

    __setattr__ = __setitem__

    def save(self) -> None:
        """Write the file."""
        if exp_manager.run is not None:
            text = json.dumps(plain_hyper_param(dict(self)), indent=1, default=str)
            exp_manager.run.file(LOG, "summary.json", text.encode("utf-8", "backslashreplace"))


class _Metric:
    """What `define_metric` says of the names that fit a glob."""

    def __init__(self, name: str, step_metric: str | None, summary: str, goal: str | None) -> None:
        self.name, self.step_metric, self.goal = name, step_metric, goal
        self.summaries = {word.strip() for word in summary.split(",") if word.strip()}
        self._seen: dict[str, tuple[int, float]] = {}  # count and sum

    def summarise(self, key: str, value: Any, summary: dict[str, Any]) -> None:
        """Take a value."""
        if not isinstance(value, int | float) or "none" in self.summaries:
            return
        count, total = self._seen.get(key, (0, 0.0))
        self._seen[key] = count + 1, total + value
        best = {"best"} & self.summaries and ("max" if self.goal == "maximize" else "min")
        for word in self.summaries - {"best"} | ({best} if best else set()):
            name = f"{key}.{word}"
            before = summary.get(name, value)
            now = {
                "min": min(before, value) if value == value else before,  # noqa: PLR0124 - NaN
                "max": max(before, value) if value == value else before,  # noqa: PLR0124
                "mean": (total + value) / (count + 1),
                "first": before,
                "last": value,
            }.get(str(word), value)
            dict.__setitem__(summary, name, now)


# -- the run --------------------------------------------------------------------------------------


class Run:
    """The open run; see wandb."""

    def __init__(self, name: str | None, project: str, options: Mapping[str, Any]) -> None:
        self.config, self.summary = Config(), Summary()
        self.project, self.entity = project, str(options.get("entity") or "")
        self.group, self.job_type = options.get("group") or "", options.get("job_type") or ""
        self._tags, self._notes = tuple(options.get("tags") or ()), options.get("notes")
        self.start_time, self.sweep_id = time.time(), None
        self.offline, self.disabled = True, exp_manager.run is None or exp_manager.run.outbox is None
        opening = None if exp_manager.run is None else exp_manager.run.opening
        self.id = exp_manager.run_id or (opening.run if opening is not None else secrets.token_hex(4))
        self._name = name or self.id
        self.resumed = bool(options.get("resumed"))
        self.step = int(time_step_holder.get_time()) + 1 if self.resumed else 0
        self.pid = os.getpid()
        self._metrics: list[_Metric] = []
        self._last: dict[str, Any] = {}
        self._alerted: dict[str, float] = {}
        self._saved: dict[tuple[Path, Path], float] = {}  # source and copy → when it was changed
        self._hooks: list[Any] = []
        self._finished = False

    @property
    def name(self) -> str:
        """What the run is called; a name that is set late is a hyper-parameter and not part of the index."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = str(name)
        exp_manager.add_hyper_param({"run_name" if "name" in self.config else "name": self._name})

    @property
    def tags(self) -> tuple[str, ...]:
        """For `rla ls --tag`."""
        return self._tags

    @tags.setter
    def tags(self, tags: Iterable[str]) -> None:
        self._tags = tuple(tags)
        self.note()

    @property
    def notes(self) -> str | None:
        """The run's note."""
        return self._notes

    @notes.setter
    def notes(self, notes: str | None) -> None:
        self._notes = notes
        self.note()

    def note(self) -> None:
        """Write tags and note, as `rla tag` and `rla note` do."""
        if self.disabled or exp_manager.log_dir is None or not (self._tags or self._notes):
            return
        from rla_client.database.notes import change_note  # noqa: PLC0415 - the reading side is slow to import

        root = Path(str(exp_manager.data_root))
        plain = ["-".join(str(tag).replace(",", " ").split())[:80] for tag in self._tags]
        path = os.path.relpath(exp_manager.log_dir, root / LOG)
        change_note(root, path, add=[tag for tag in plain if tag], note=self._notes)

    @property
    def dir(self) -> str:
        """A folder of the run for the script's own files."""
        folder = Path(exp_manager.folder_of(OTHER_RESULTS)) / "files"
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    @property
    def url(self) -> str:
        """Where the run lies."""
        return Path(exp_manager.log_dir or ".").absolute().as_uri()

    @property
    def path(self) -> str:
        """Table and index."""
        return os.path.relpath(exp_manager.log_dir or ".", os.path.join(str(exp_manager.data_root), LOG))

    def get_url(self) -> str:
        """Where the run lies."""
        return self.url

    # -- rows ---------------------------------------------------------------------------------

    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **further: Any
    ) -> None:
        """Add values to the row of a step.

        Args:
            data: name to number, text, array (a histogram), media, or a list of media; nested dicts become
                `group.name`.
            step: without one, the next. A row with a given step is written when another step comes, and
                after a second at the latest.
            commit: write the row now; by default where no step is given.
            **further: without effect.

        Raises:
            TypeError: `data` is no mapping from text.
        """
        del further
        if not isinstance(data, Mapping):
            raise TypeError("wandb.log must be passed a dictionary")
        if any(not isinstance(key, str) for key in data):
            raise TypeError("Key values passed to `wandb.log` must be strings.")
        if self._finished:
            raise UsageError("the run is finished: call wandb.init() again")
        at = self.step if step is None else int(step)
        commit = step is None if commit is None else commit
        flat = dict(_flat(data, ""))
        values = {key: plain for key, value in flat.items() if (plain := _row_value(value)) is not None}
        self._last.update(values)
        x = self._time_step(values, at)
        self._write(values, x, commit=commit)
        for key, value in flat.items():
            if key not in values and value is not None:
                try:
                    _show(self, key, value, x)
                except Exception as error:  # noqa: BLE001 - encoders fail in many ways; training goes on
                    warn(f"wandb.log: {key} was not kept: {type(error).__name__}: {error}")
        self.step = max(self.step, at) + commit

    def _write(self, values: Mapping[str, Any], x: float, *, commit: bool) -> None:
        if x > time_step_holder.get_time():
            time_step_holder.set_time(x)
        if self._metrics:
            for key, value in values.items():
                self._summarise(key, value)
        else:
            dict.update(self.summary, values)
        rows = scalar_rows(logger.get_current())
        if rows is not None:
            if values:
                rows.add_all(values, x, time.time(), ())
            if commit:
                rows.write()

    def _time_step(self, values: Mapping[str, Any], at: int) -> float:
        """The step metric's value, where all metrics have the same one and it is known."""
        if not self._metrics:
            return at
        steps = {metric.step_metric for metric in self._metrics}
        wanted = {self._metric(key).step_metric for key in values if key not in steps}
        found = self._last.get(wanted.pop() or "") if len(wanted) == 1 else None
        return found if isinstance(found, int | float) and math.isfinite(found) else at

    def _metric(self, key: str) -> _Metric:
        return next((one for one in reversed(self._metrics) if fnmatch.fnmatchcase(key, one.name)), _PLAIN)

    def _summarise(self, key: str, value: Any) -> None:
        metric = self._metric(key)
        metric.summarise(key, value, self.summary)
        if not metric.summaries or metric.summaries & {"last"}:
            dict.__setitem__(self.summary, key, value)

    def define_metric(
        self,
        name: str,
        step_metric: str | None = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | None = None,
        goal: str | None = None,
        **further: Any,
    ) -> _Metric:
        """Say what a metric is drawn over, and what of it the summary keeps (min, max, mean, best, …).

        Args:
            name: of a metric, or a glob.
            step_metric: the metric whose value becomes the time-step of its rows.
            step_sync: without effect.
            hidden: without effect.
            summary: words, separated by commas; each becomes `<name>.<word>` in the summary.
            goal: minimize or maximize, for `best`.
            **further: without effect.
        """
        del step_sync, hidden, further
        named = getattr(step_metric, "name", step_metric)
        metric = _Metric(name, named, summary or "", goal)
        self._metrics.append(metric)
        return metric

    def watch(
        self,
        models: Any,
        criterion: Any = None,
        log: str | None = "gradients",
        log_freq: int = 1000,
        idx: int | None = None,
        log_graph: bool = False,
    ) -> None:
        """Histograms of a torch module's gradients, parameters, or `all`, each `log_freq` backward passes.

        Args:
            models: a module, or several.
            criterion: without effect.
            log: gradients, parameters, all, or None.
            log_freq: backward passes between two.
            idx: without effect.
            log_graph: without effect.
        """
        del criterion, idx, log_graph
        modules = list(models) if isinstance(models, list | tuple) else [models]
        for number, module in enumerate(modules):
            place = f"_{number}" if len(modules) > 1 else ""
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    hook = _watcher(f"{place}/{name}", parameter, log, max(1, log_freq))
                    self._hooks.append(parameter.register_hook(hook))

    def unwatch(self, models: Any = None) -> None:
        """Watch none any more."""
        del models
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # -- files --------------------------------------------------------------------------------

    def save(
        self,
        glob_str: str | os.PathLike[str] | None = None,
        base_path: str | os.PathLike[str] | None = None,
        policy: str = "live",
    ) -> list[str]:
        """Copy files to the run now and, where they have changed, once more at its end.

        Returns:
            The copies' paths.
        """
        del policy
        if glob_str is None or self.disabled:
            return []
        pattern = os.fspath(glob_str)
        above = os.path.dirname(os.path.dirname(pattern)) if os.path.isabs(pattern) else os.curdir
        base = Path(os.path.abspath(base_path or above))
        copies = []
        for found in sorted(glob.glob(pattern, recursive=True)):
            path = Path(os.path.abspath(found))
            if path.is_file():
                below = path.relative_to(base) if path.is_relative_to(base) else PurePath(path.name)
                target = Path(self.dir) / below
                self._save(path, target)
                copies.append(str(target))
        return copies

    def _save(self, path: Path, target: Path) -> None:
        changed = path.stat().st_mtime
        if path != target and self._saved.get((path, target)) != changed:
            _copy(path, target)
            self._saved[path, target] = changed

    def log_artifact(
        self,
        artifact_or_path: Any,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 - wandb's name
        **further: Any,
    ) -> Artifact:
        """Copy an artifact's files, a file or a folder to the run."""
        del further
        artifact = artifact_or_path
        if not isinstance(artifact, Artifact):
            path = Path(artifact_or_path)
            artifact = Artifact(name or f"run-{self.id}-{path.name}", type or "unspecified")
            (artifact.add_dir if path.is_dir() else artifact.add_file)(path)
        if not self.disabled:
            artifact.store(self)
        return artifact

    def log_model(self, path: str | os.PathLike[str], name: str | None = None, **further: Any) -> Artifact:
        """Copy a model's file or folder to the run's checkpoints."""
        del further
        return self.log_artifact(path, name or PurePath(path).name, "model")

    def log_code(self, *_: Any, **__: Any) -> None:
        """Nothing: each run keeps its code."""

    # -- words and end ------------------------------------------------------------------------

    def alert(self, title: str, text: str = "", level: Any = None, wait_duration: Any = ALERT_WAIT_S) -> None:
        """Tell somebody, by the agent's channels; not again within `wait_duration` seconds."""
        del level
        wait = wait_duration.total_seconds() if hasattr(wait_duration, "total_seconds") else wait_duration
        now = time.monotonic()
        if now - self._alerted.get(title, -math.inf) >= (ALERT_WAIT_S if wait is None else float(wait)):
            self._alerted[title] = now
            exp_manager.alert(title, text)

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run; `failed` with an exit code other than 0."""
        del quiet
        self._end("failed" if exit_code else "finished", f"exit code {exit_code}" if exit_code else "")

    def _end(self, state: str, reason: str) -> None:
        global run, _disabled_here  # noqa: PLW0603 - wandb.run
        if self._finished:
            return
        self.leave()
        if opened_here() or self.disabled:
            exp_manager.close(state, reason)
        run = None if run is self else run
        if _disabled_here:
            _disabled_here = False
            os.environ.pop(MODE_VARIABLE, None)

    def leave(self) -> None:
        """Write what is written at the end."""
        if self._finished:
            return
        self._finished = True
        self.unwatch()
        for path, target in list(self._saved):
            try:
                self._save(path, target)
            except OSError as error:
                warn(f"{path} was not copied once more: {error}")
        logger.get_current().write_scalars()
        if self.summary:
            self.summary.save()

    def __enter__(self) -> Run:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        del kind, trace
        if error is None or (isinstance(error, SystemExit) and error.code in {None, 0}):
            self._end("finished", "")
        elif isinstance(error, KeyboardInterrupt):
            self._end("interrupted", "KeyboardInterrupt")
        elif isinstance(error, SystemExit):
            self._end("failed", f"exit code {error.code}")
        else:
            self._end("failed", f"{type(error).__name__}: {error}")

    def __getattr__(self, name: str) -> Any:
        return _further(f"run.{name}")


_PLAIN = _Metric("", None, "", None)
run: Run | None = None
_disabled_here = False  # `RLA_MODE` was set by `init`


def init(  # noqa: PLR0913, PLR0917 - wandb's signature
    entity: str | None = None,
    project: str | None = None,
    dir: Any = None,  # noqa: A002 - wandb's name, as id
    id: str | None = None,  # noqa: A002
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | str | None = None,
    config: Any = None,
    *,
    resume: Any = None,
    mode: str | None = None,
    group: str | None = None,
    job_type: str | None = None,
    sync_tensorboard: bool = False,
    monitor_gym: bool = False,
    reinit: Any = None,
    **further: Any,
) -> Run:
    """Open a run in the table `project`, or take part in the one that is open.

    Args:
        entity: without effect.
        dir: without effect.
        project: the table; default `$WANDB_PROJECT`, else the script's name.
        config: hyper-parameters: a mapping, a Namespace, a dataclass, or the path of a YAML file.
        name: tracked in the run's index; default `$WANDB_NAME`.
        id: by which a later process may go on; default `$WANDB_RUN_ID`.
        resume: allow, must, never, auto, True; default `$WANDB_RESUME`. The run that goes on is an item of
            its own: with the earlier one's configuration, its steps after the earlier one's last.
        mode: `disabled` stores nothing; online and offline mean the same here. Default `$WANDB_MODE`.
        tags: of the run, for `rla ls --tag`.
        notes: of the run.
        group: kept among the hyper-parameters.
        job_type: the same.
        sync_tensorboard: what torch's and tensorboardX's SummaryWriters write is part of the run.
        monitor_gym: films of gymnasium's RecordVideo are part of the run.
        reinit: finish the run that is open, and begin another.
        **further: what else wandb takes.

    Raises:
        UsageError: the data root cannot be written, `resume="must"` finds no run of that id, or the like.
    """
    global run  # noqa: PLW0603 - wandb.run
    del dir
    if run is not None and run.pid == os.getpid() and exp_manager.run is not None:
        if reinit in {None, False, "return_previous", "default"}:
            run.config.update(config)
            return run
        run.finish()
    for unknown in further.keys() - _WITHOUT_MEANING:
        _unknown(f"init({unknown}=…)")
    environment = os.environ.get
    parameters = _parameters(config)
    name = name or environment("WANDB_NAME")
    about = {"name": name, "group": group or environment("WANDB_RUN_GROUP"), "job_type": job_type}
    told = {key if key not in parameters else f"run_{key}": value for key, value in about.items() if value}
    _set_mode(mode)
    table = _safe(project or environment("WANDB_PROJECT") or script_name())
    known = id or environment("WANDB_RUN_ID") or None
    resumes = _RESUME.get(environment("WANDB_RESUME") if resume is None else resume)
    earlier = _earlier(table, known, must=resumes == "must") if resumes in {"allow", "must"} else None
    if earlier is not None:
        parameters = {**_config_of(earlier.hyper_param), **parameters}
        told["resumed_from"] = earlier.item.index.path
    try:
        tracked = [key for key in ("name", "run_name") if name and key in told]
        ensure_run(table, {**parameters, **told}, tracked, joins=False, run_id=known, resume="never")
    except (RlaError, OSError) as error:
        raise UsageError(str(error)) from error
    if earlier is not None and isinstance(step := earlier.run_file.get("time_step"), int | float):
        time_step_holder.set_time(step)
    tags = [tags] if isinstance(tags, str) else tags
    tags = tags or [tag for tag in (environment("WANDB_TAGS") or "").split(",") if tag]
    options = {**about, "entity": entity, "tags": tags, "notes": notes or environment("WANDB_NOTES")}
    run = Run(name, project or table, {**options, "resumed": earlier is not None})
    run.config._items.update(parameters)  # noqa: SLF001 - our own
    run.note()
    atexit.register(run.leave)
    if sync_tensorboard:
        _forward_tensorboard()
    if monitor_gym:
        _forward_films()
    return run


def _set_mode(mode: str | None) -> None:
    global _disabled_here
    mode = mode or os.environ.get("WANDB_MODE")
    if os.environ.get("WANDB_DISABLED", "").lower() in {"true", "1"}:
        mode = "disabled"
    if mode == "disabled" and not os.environ.get(MODE_VARIABLE):
        os.environ[MODE_VARIABLE], _disabled_here = "disabled", True


def _earlier(table: str, run_id: str | None, *, must: bool) -> FoundRun | None:
    """The newest run of an id.

    Raises:
        UsageError: there is none, and there must be.
    """
    from rla_client.resume import find  # noqa: PLC0415 - rarely needed

    root = default_data_root()
    for index in find.newest_first(root / LOG / table, run_id) if run_id is not None else ():
        item = Item(os.path.abspath(root), table, index, index.opened)
        if find.read_run_file(item).get("run_key") == run_id:
            return find.read_run(item)
    if must:
        raise UsageError(f"resume='must', but table {table!r} of {root} has no run {run_id!r}")
    return None


def _config_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What `init` was given as config, of all that an earlier run keeps."""
    ours = {key if f"run_{key}" not in parameters else f"run_{key}" for key in ("name", "group", "job_type")}
    return {key: value for key, value in parameters.items() if key not in ours | {"resumed_from"}}


def _required() -> Run:
    if run is None:
        raise UsageError("You must call wandb.init() before this")
    return run


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **further: Any) -> None:
    """See `Run.log`."""
    _required().log(data, step, commit, **further)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """See `Run.finish`; nothing where no run is open."""
    if run is not None:
        run.finish(exit_code, quiet)


join = finish


def login(*_: Any, **__: Any) -> bool:
    """True: nobody logs in."""
    return True


def require(*_: Any, **__: Any) -> None:
    """Nothing."""


setup = ensure_configured = require


def termlog(text: str = "", *_: Any, **__: Any) -> None:
    """Log a line."""
    logger.info(text)


def termwarn(text: str = "", *_: Any, **__: Any) -> None:
    """Log a warning."""
    warn(text)


termerror = termwarn


def restore(name: str, *_: Any, **__: Any) -> Any:
    """A file of the run, opened for reading; None where there is none."""
    path = Path(_required().dir, name)
    return path.open() if path.is_file() else None


def Settings(**settings: Any) -> types.SimpleNamespace:  # noqa: N802 - wandb's name
    """Kept, and without effect."""
    return types.SimpleNamespace(**settings)


util = types.SimpleNamespace(generate_id=lambda length=8: secrets.token_hex(length)[:length])
data_types = types.SimpleNamespace(
    Artifact=Artifact, Audio=Audio, Histogram=Histogram, Html=Html, Image=Image, Table=Table, Video=Video
)
sdk = types.SimpleNamespace(wandb_run=types.SimpleNamespace(Run=Run), data_types=data_types)
_OF_THE_RUN = frozenset({
    "config", "summary", "define_metric", "watch", "unwatch", "save", "alert", "log_artifact", "log_model",
    "log_code",
})  # fmt: skip


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_required(), name) if name in _OF_THE_RUN else _Unknown(name)


class _Unknown:
    """A name of wandb's that has no meaning here: it warns once when it is called, and does nothing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _unknown(self._name)
        decorates = len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType)
        return args[0] if decorates else _Unknown(f"{self._name}()")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unknown(f"{self._name}.{name}")

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> _Unknown:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def __repr__(self) -> str:
        return f"<wandb.{self._name}: no meaning here>"


def _further(name: str) -> _Unknown:
    """An attribute that an object of wandb's may have, and ours has not."""
    if name.rpartition(".")[2].startswith("_"):
        raise AttributeError(name)
    return _Unknown(name)


def _unknown(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warn(f"wandb.{name} has no meaning here and does nothing")


# -- values and files -----------------------------------------------------------------------------


def _parameters(config: Any) -> dict[str, Any]:
    if isinstance(config, str | os.PathLike):
        import yaml  # noqa: PLC0415 - rarely needed

        found = yaml.safe_load(Path(config).read_text(encoding="utf-8")) or {}
        return {
            key: entry["value"] if isinstance(entry, dict) and "value" in entry else entry
            for key, entry in found.items()
        }
    if isinstance(config, Config):
        return config.as_dict()
    if hasattr(config, "flag_values_dict"):  # absl
        config = config.flag_values_dict()
    return to_parameters(config)


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        else:
            yield f"_{name}" if name in RESERVED else name, value


def _row_value(value: Any) -> Any:
    """A value as a row takes it, small arrays as lists; None for what does not go into a row."""
    if type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, bool | int | float | str | bytes | dt.date | dt.timedelta):
        return to_plain(value)
    if isinstance(value, list | tuple):
        plain = [_row_value(one) for one in value]
        kept = [one is not None or other is None for one, other in zip(plain, value, strict=True)]
        return plain if value and all(kept) else None
    if (
        isinstance(value, _Unknown | Table | Artifact)
        or not hasattr(value, "shape")
        or hasattr(value, "columns")
    ):
        return None
    cells = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if cells.size > MAX_LISTED and cells.dtype.kind in "biuf":
        return None  # a histogram
    return to_plain(cells.reshape(-1)[0] if cells.size == 1 else cells.tolist())


def _show(owner: Run, key: str, value: Any, step: float) -> None:
    """Keep what is no number: a file of the results, or a part of TensorBoard's events."""
    from rla_client.media.recorders import ImgRecorder, MatplotlibRecorder  # noqa: PLC0415 - imports numpy

    if isinstance(value, _Unknown):
        return
    ours = isinstance(value, Image | Video | Audio | Histogram | Table | Html)
    name, data = _safe(key), getattr(value, "data", None)
    if isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            _show(owner, f"{key}_{number}", entry, step)
    elif isinstance(value, Image | Video | Audio) and isinstance(data, str | os.PathLike):
        if not owner.disabled:
            target = f"{step}-{name}{PurePath(data).suffix}"
            _copy(Path(data), Path(exp_manager.folder_of(OTHER_RESULTS), target))
    elif hasattr(figure := data if ours else value, "savefig"):
        MatplotlibRecorder.save(name, None if hasattr(figure, "gcf") else figure)  # pyplot itself
    elif isinstance(value, Image):
        ImgRecorder.save(name, _pixels(data))
    elif isinstance(value, Video) and not hasattr(data, "read"):
        _save_video(name, value)
    elif (content := _file_content(value)) is not None:
        _put(f"{step}-{name}{content[0]}", content[1])
    else:
        _to_tensorboard(key, value, int(step))


def _file_content(value: Any) -> tuple[str, bytes] | None:
    """Ending and content of what becomes a file as it is."""
    if isinstance(value, Table):
        return ".csv", _csv(value)
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):  # a DataFrame
        return ".csv", _csv(Table(dataframe=value))
    if isinstance(value, Video):
        return f".{value.format}", value.data.read()
    if isinstance(value, Html):
        return ".html", value.html.encode()
    if type(value).__module__.startswith("plotly"):
        return ".html", str(value.to_html(include_plotlyjs="cdn")).encode()
    return None


def _to_tensorboard(key: str, value: Any, step: int) -> None:
    current = logger.get_current()
    if "tensorboard" not in current.sinks:
        return
    writer = tbx_writer(current)
    if isinstance(value, Audio):
        sound = np.asarray(value.data)
        sound = sound / np.iinfo(sound.dtype).max if sound.dtype.kind == "i" else sound
        writer.add_audio(key, sound, step, sample_rate=value.sample_rate)
    elif isinstance(value, Histogram) and value.np_histogram is not None:
        _add_counts(writer, key, *value.np_histogram, step)
    elif isinstance(value, Histogram) or hasattr(value, "shape"):
        bins = {"bins": value.num_bins} if isinstance(value, Histogram) else {}
        finite = _finite(value.sequence if isinstance(value, Histogram) else value)
        if finite.size:
            writer.add_histogram(key, finite, step, **bins)
    else:
        _unknown(f"log of {type(value).__name__}")


def _finite(values: Any) -> Any:
    """Those that a histogram can count."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().float()
    flat = np.asarray(values, dtype=float).reshape(-1)
    return flat[np.isfinite(flat)]


def _pixels(data: Any) -> Any:
    """An image as the recorder takes it: a batch side by side, floats within 0…1."""
    if not hasattr(data, "shape"):
        return data
    tensor = hasattr(data, "detach")
    pixels = np.asarray(data.detach().cpu() if tensor else data)
    if pixels.ndim == 4:  # noqa: PLR2004 - (batch, C, H, W) of tensors, (batch, H, W, C) of arrays
        pixels = np.concatenate(list(pixels), axis=2 if tensor else 1)
    if pixels.dtype.kind == "f" and pixels.size:
        least, greatest = float(np.nanmin(pixels)), float(np.nanmax(pixels))
        if least < 0 or (tensor and greatest > 1):
            pixels = (pixels - least) / ((greatest - least) or 1.0)
    return pixels


def _safe(name: str) -> str:
    """A relative path without parts that cannot be a file's name."""
    parts = [part for part in str(name).replace("\\", "/").split("/") if part and not component_problem(part)]
    return "/".join(parts) or "unnamed"


def _copy(source: Path, target: Path) -> None:
    """Copy a file; it appears whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{secrets.token_hex(4)}.tmp")
    try:
        shutil.copy2(source, partial)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _put(name: str, content: bytes) -> None:
    """Keep a file among the run's results."""
    if exp_manager.run is None or exp_manager.run.outbox is None:
        return
    if len(content) <= MAX_FRAME_FILE:
        exp_manager.run.file(OTHER_RESULTS, name, content)
        return
    path = Path(exp_manager.folder_of(OTHER_RESULTS), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content, durable=False)


def _csv(table: Table) -> bytes:
    import csv  # noqa: PLC0415 - for tables only

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([[_cell(cell) for cell in row] for row in table.data])
    return text.getvalue().replace("\0", "\\x00").encode("utf-8", "backslashreplace")


def _cell(cell: Any) -> Any:
    """A table's cell; an image becomes a file of the results, and the cell its name."""
    if not isinstance(cell, Image):
        return to_plain(cell)
    from rla_client.media.recorders import ImgRecorder  # noqa: PLC0415

    if isinstance(cell.data, str | os.PathLike):
        return os.fspath(cell.data)
    return os.path.basename(ImgRecorder.save(f"table-{secrets.token_hex(4)}", _pixels(cell.data)))


def _save_video(name: str, video: Video) -> None:
    from rla_client.media.recorders import VideoRecorder  # noqa: PLC0415 - imports numpy

    frames = np.asarray(video.data.detach().cpu() if hasattr(video.data, "detach") else video.data)
    batches = frames if getattr(frames, "ndim", 4) == 5 else [frames]  # noqa: PLR2004 - (batch, T, C, H, W)
    for number, frames_of_one in enumerate(batches):
        which = f"{name}_{number}" if len(batches) > 1 else name
        ending = "gif" if video.format == "gif" else "mp4"
        shown = frames_of_one.transpose(0, 2, 3, 1)  # wandb's frames are always (T, C, H, W)
        VideoRecorder.save(f"{which}.{ending}", shown, fps=video.fps, cover=True)


def _add_counts(writer: Any, key: str, counts: Any, edges: Any, step: int) -> None:
    """A histogram that is there as counts and edges; values count as in the middle of their bin."""
    pairs = list(zip(counts, edges[:-1], edges[1:], strict=True))
    middles = [(float(count), (low + high) / 2) for count, low, high in pairs]
    total = sum(count for count, _ in middles)
    sums = sum(count * at for count, at in middles), sum(count * at * at for count, at in middles)
    limits, sizes = [float(high) for _, _, high in pairs], [float(count) for count, _ in middles]
    writer.add_histogram_raw(key, float(edges[0]), float(edges[-1]), total, *sums, limits, sizes, step)


def _watcher(name: str, parameter: Any, what: str | None, every: int) -> Any:
    calls = 0

    def look(gradient: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % every:
            return
        step = int(time_step_holder.get_time())
        if what in {"gradients", "all"}:
            _to_tensorboard(f"gradients{name}", gradient, step)
        if what in {"parameters", "all"}:
            _to_tensorboard(f"parameters{name}", parameter, step)

    return look


def _forward_tensorboard() -> None:
    """From now on, events of torch's and tensorboardX's file writers are part of the run, too."""
    for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        try:
            file_writer = importlib.import_module(module).FileWriter
        except ImportError:
            continue
        if not hasattr(file_writer, "_rla_forwards"):
            file_writer._rla_forwards = True  # noqa: SLF001
            file_writer.add_event = _forwarding(file_writer.add_event)


def _forwarding(add_event: Any) -> Any:
    def forward(self: Any, event: Any, step: Any = None, walltime: float | None = None) -> None:
        add_event(self, event, step, walltime)
        if run is None:
            return
        current = logger.get_current()
        current.event(_shown(event, current).SerializeToString(), event.wall_time, event.step)
        rows = scalar_rows(current)
        if rows is None or not event.HasField("summary"):
            return
        rows.sets_clock = True
        for tag, value in summary_scalars(event.summary):
            rows.add(tag, value, event.step, event.wall_time)

    return forward


def _shown(event: Any, current: Any) -> Any:
    """The event with the run's secrets hidden in its texts."""
    values = event.summary.value if event.HasField("summary") else ()
    if not any(value.metadata.plugin_data.plugin_name == "text" for value in values):
        return event
    copy = type(event).FromString(event.SerializeToString())
    for value in copy.summary.value:
        for number, text in enumerate(value.tensor.string_val):
            value.tensor.string_val[number] = current.shown(text.decode("utf-8", "replace")).encode()
    return copy


def _forward_films() -> None:
    """From now on, what gymnasium's RecordVideo films is part of the run, too."""
    try:
        recorder = importlib.import_module("gymnasium.wrappers").RecordVideo
    except (ImportError, AttributeError):
        return
    if not hasattr(recorder, "stop_recording") or hasattr(recorder, "_rla_forwards"):
        return
    recorder._rla_forwards = True  # noqa: SLF001
    stop = recorder.stop_recording

    def forward(self: Any) -> None:
        frames = list(self.recorded_frames)
        if run is not None and frames:
            from rla_client.media.recorders import VideoRecorder  # noqa: PLC0415 - imports numpy

            fps = float(getattr(self, "frames_per_sec", None) or 30)
            VideoRecorder.save(f"videos/{_safe(self._video_name)}.mp4", frames, fps=fps, cover=True)
        stop(self)

    recorder.stop_recording = forward
