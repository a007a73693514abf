"""Drop-in replacement of torch's or tensorboardX's `SummaryWriter`.

    from rla_client.integrations.tensorboard import SummaryWriter  # was: torch.utils.tensorboard

    writer = SummaryWriter(f"runs/{run_name}")
    writer.add_scalar("charts/return", episode_return, global_step)

Everything reaches TensorBoard through the agent. Consecutive scalars of one step also make a row of
progress.csv; pictures, films and sounds also become files of the results. The writer writes into the open run
(`rla_client.init`, `exp_manager.log_files_gen`), or else opens one. `logger.get_tbx_writer()` is the same
writer for an open run, without these files.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.adapter import command_line, join_or_open, opened_here, script_name, telling_parameters
from rla_client.contract.safe_names import component_problem
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.manager import exp_manager
from rla_client.run.close import end_run
from rla_client.run.parameters.config_objects import to_parameters
from rla_client.run.parameters.hyper_params import parameters_of_table
from rla_client.run.parameters.telling_names import overrides
from rla_client.run.record.event_media import keep_event_media
from rla_client.run.record.run_logger import Logger
from rla_client.run.record.summary_writer import AgentSummaryWriter, writer_arguments
from rla_client.run.resume.resume_in_place import go_on
from rla_client.run.run import Run
from rla_client.run.run_mode import WRITER_VARIABLE
from rla_client.stream import run_scope as scopes
from rla_client.stream.clock import time_step_holder

if TYPE_CHECKING:
    from rla_client.run.run_data import RunData

__all__ = ["SummaryWriter"]

GENERAL_NAMES = frozenset(
    {"", ".", "..", "/", "runs", "run", "logs", "log", "tb", "tensorboard", "summaries"}
)
_DATE_AND_HOST = re.compile(
    r"[A-Z][a-z]{2}[0-9]{1,2}_[0-9]{2}-[0-9]{2}-[0-9]{2}_.+"
)  # names of torch and of the Trainer
_JSON_TAGS = {"args": "", "model_config": "model"}  # tag of a text of the Trainer → group of the parameters
_NUMBERS_AT_END = re.compile(r"([_\-. ]+(seed|run)?[_\-. ]*\d[\d\-:_.T]*)+$|^\d[\d\-:_.T]*$", re.IGNORECASE)


class SummaryWriter(AgentSummaryWriter):
    """A `SummaryWriter` with the interface of torch's and tensorboardX's, which writes into a run.

    Without an open run, the writer opens one. Its table is named after `log_dir` (without numbers at its
    end), or else after `comment` or the script. The run ends with the process, or when the next writer is
    created after `close`. A further writer with another `log_dir` writes into the same run and prefixes its
    tags with the name of that folder (`eval/loss`). A writer with the same `log_dir` continues the run, even
    if the first writer is closed, the run has ended, or another run is open.

    Args:
        log_dir: names the run. The folder is created for the script's own files; the writer leaves it empty.
        comment: see torch.
        purge_step: without effect: the agent truncates a resumed run.
        max_queue: without effect: events are sent at once.
        flush_secs: without effect.
        filename_suffix: without effect.
        write_to_disk: False drops everything, as in tensorboardX.
        logdir: tensorboardX's name of `log_dir`.
        config: hyper-parameters, e.g. `vars(args)`. A Markdown table of parameters, which CleanRL's scripts
            pass to `add_text`, is also used. The run's index tracks the seed, the learning rate and overrides
            on the command line; without a config, the options of the command line.
        **further: other arguments of tensorboardX, without effect.
    """

    clean_tag = staticmethod(str)

    def __init__(  # noqa: PLR0913, PLR0917 - torch's signature
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
        write_to_disk: bool = True,
        *,
        logdir: str | os.PathLike[str] | None = None,
        config: object = None,
        **further: Any,
    ) -> None:
        del further
        self.purge_step, self.max_queue = purge_step, max_queue
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        folder = os.fspath(log_dir or logdir or "")
        parameters = to_parameters(config)
        self._run: _OwnRun | None = None
        self.log_dir = folder
        self._hides: Callable[[str], str] = str
        if not write_to_disk:
            super().__init__(lambda *_: None, folder, time_step_holder.get_time)
            return
        if folder:  # scripts write their own files there; if it cannot be created, no run is opened
            os.makedirs(folder, exist_ok=True)
        current, prefix = _join(folder, comment, parameters)
        self._hides = current.shown
        super().__init__(
            **writer_arguments(current),
            prefix=prefix,
            seen=lambda event: keep_event_media(current, event),
        )
        self._run = _own.get(current)
        if self._run is not None:
            self._run.writers.add(self)
        self.log_dir = folder or self.logdir  # of the run's event files
        os.makedirs(self.log_dir, exist_ok=True)

    def get_logdir(self) -> str:
        """The `log_dir` of the writer, or else the folder of the run's event files."""
        return self.log_dir

    def add_text(self, tag: str, text_string: str, *args: Any, **kwargs: Any) -> None:
        """See torch. A Markdown table `|param|value|` also becomes hyper-parameters.

        So do the JSON texts of Hugging Face's Trainer under `args` and `model_config` (as `model`).
        """
        found = _parameters_of_text(tag, text_string) if isinstance(text_string, str) else {}
        if found and self._parameters is not None:
            self._parameters(found)  # before the text, so that its secrets are known
        super().add_text(tag, self._hides(str(text_string)), *args, **kwargs)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None
    ) -> None:
        """See torch."""
        from torch.utils.tensorboard.summary import tensor_proto  # noqa: PLC0415 - torch's own

        self.file_writer.add_summary(tensor_proto(tag, tensor), global_step, walltime)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: Any = None, walltime: Any = None,
        *args: Any, **kwargs: Any,
    ) -> None:  # fmt: skip
        """See torch; `rescale`, the first of torch's further arguments, is ignored."""
        further = args[1:] if args and isinstance(args[0], int | float) else args
        kwargs.pop("rescale", None)
        super().add_image_with_boxes(tag, img_tensor, box_tensor, global_step, walltime, *further, **kwargs)

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """See torch."""
        if use_strict_trace:
            super().add_graph(model, input_to_model, verbose)
            return
        from torch.utils.tensorboard._pytorch_graph import graph  # noqa: PLC0415 - torch's own

        self.file_writer.add_graph(graph(model, input_to_model, verbose, use_strict_trace))

    def close(self) -> None:
        """Write pending values. The run continues until the process ends or another writer opens one."""
        self.flush()
        if self._run is not None:
            self._run.writers.discard(self)


class _OwnRun:
    """A run that a writer opened, with its open writers."""

    def __init__(self, data: RunData, run: Run | None, folder: str) -> None:
        self.data = data  # not a handle, which would end the run when it is deleted
        self.run = run
        self.folder = folder
        self.writers: weakref.WeakSet[SummaryWriter] = weakref.WeakSet()

    def logger(self) -> Logger | None:
        """The logger of the run, reopened if needed; None if this process or thread cannot use it."""
        run = self.data.run
        if run is not None:
            usable = run is self.run and run.pid == os.getpid() and not self.data.scope.is_anothers()
            return run.logger if usable else None
        if self.run is None or not go_on(self.data, self.run):
            return None
        self.run = self.data.run
        return logger.get_current()


KEPT_FOLDERS = 1000  # with runs that a later writer may continue
_own: weakref.WeakKeyDictionary[Logger, _OwnRun] = weakref.WeakKeyDictionary()
_of_folders: dict[str, _OwnRun] = {}  # by real path, the newest last
_FOLDERS: weakref.WeakKeyDictionary[Logger, str] = weakref.WeakKeyDictionary()  # of each run's first writer


@scopes.opening()
def _join(folder: str, comment: str, parameters: dict[str, Any]) -> tuple[Logger, str]:
    """The logger of a writer's run, and the prefix of its tags."""
    real = folder and os.path.realpath(folder)
    before, known = _own.get(logger.get_current()), _of_folders.get(real)
    if before is not None and not before.writers and before is not known:
        end_run(before.data, "finished", "")  # its writers are closed, and the new one has another folder
    found = None if known is None else known.logger()
    if known is not None and found is not None:
        current = found
        _own[current] = known
        if parameters and current.take_parameters is not None:
            current.take_parameters(parameters)
    else:
        current = _join_or_open(folder, real, comment, parameters, before)
    if exp_manager.run is None or exp_manager.run.logger is not current or not opened_here():
        first = _FOLDERS.setdefault(current, os.environ.get(WRITER_VARIABLE, ""))
    else:
        first = _FOLDERS.setdefault(current, real)
        if scopes.current() is scopes.process():
            os.environ[WRITER_VARIABLE] = first
    ours = {os.path.realpath(one) for one in (first, writer_arguments(current)["logdir"]) if one}
    return current, "" if not folder or real in ours else _difference(folder, first)


def _join_or_open(
    folder: str, real: str, comment: str, parameters: dict[str, Any], before: _OwnRun | None
) -> Logger:
    name = {"log_dir": PurePath(folder).name} if PurePath(folder).name else {}
    opens = logger.get_current().folder is None or (before is not None and scopes.current().is_anothers())
    given = {**(parameters or overrides(command_line())), **name} if opens else parameters
    opened = join_or_open(table_name(folder, comment), given, [*telling_parameters(given), *name])
    current = logger.get_current()
    if opened is not None:
        _own[current] = _OwnRun(opened._data, opened.run, real)  # noqa: SLF001 - see `_OwnRun`
        _keep(_own[current])
    return current


def _keep(own: _OwnRun) -> None:
    """Register the folder of a run for later writers, unless it belongs to an open run."""
    held = _of_folders.get(own.folder)
    if own.folder and (held is None or held.data.run is None):
        _of_folders.pop(own.folder, None)
        _of_folders[own.folder] = own
    while len(_of_folders) > KEPT_FOLDERS:
        del _of_folders[next(iter(_of_folders))]


def _difference(folder: str, first: str) -> str:
    """The prefix that distinguishes a writer from the run's first: `eval/` for `runs/a/eval` and `runs/a`."""
    relative = os.path.relpath(folder, first) if first else ""
    parts = [part for part in PurePath(relative).parts if part not in {"..", "/"}]
    return "/".join(parts or [os.path.basename(os.path.realpath(folder))]) + "/"


def _parameters_of_text(tag: str, text: str) -> Mapping[str, Any]:
    if tag not in _JSON_TAGS:
        return parameters_of_table(text)
    try:
        found = parse_json(text.encode("utf-8", "replace"))
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    group = _JSON_TAGS[tag]
    return {group: found} if group else found


def table_name(folder: str, comment: str = "") -> str:
    """The table for a writer's run.

    Args:
        folder: log_dir of the writer; empty without one.
        comment: comment of the writer.
    """
    for part in reversed(PurePath(folder).parts[-3:]):
        name = "" if _DATE_AND_HOST.fullmatch(part) else _NUMBERS_AT_END.sub("", part).strip(" _-.")
        if name.lower() not in GENERAL_NAMES and not component_problem(name):
            return name
    name = _NUMBERS_AT_END.sub("", comment).strip(" _-.")
    return name if name and not component_problem(name) else script_name()
