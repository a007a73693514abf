"""Run of a captured process.

A program that opens a run with `rla_client` itself is not captured. A worker process joins the run of the
process that it works for. Nothing is printed, and no call waits.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.adapter import open_for_adapter
from rla_client.capture import captured_file, captured_parameters
from rla_client.capture.captured_rows import CapturedRows, captured_rows
from rla_client.capture.model_runs import ModelRuns
from rla_client.capture.table_name import table_name
from rla_client.capture.wandb_mirror import WandbMirror
from rla_client.config.project import DATA_FOLDER, DATA_ROOT_VARIABLE, find_config
from rla_client.contract.capture.notes import REFUSED, RUN, add_note
from rla_client.contract.capture.parts import TABLE_VARIABLE, TRACK_VARIABLE
from rla_client.contract.errors import FrameTooLargeError
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.layout import CHECKPOINT, LOG, PRINTED
from rla_client.log_row import flat
from rla_client.manager import exp_manager
from rla_client.run import current_logger
from rla_client.run.current_logger import get_current
from rla_client.run.record.event_media import keep_event_media
from rla_client.run.record.run_logger import WARN, Logger
from rla_client.run.record.shown_event import shown_event
from rla_client.run_handle import OpenRun
from rla_client.stream.values import to_plain

if TYPE_CHECKING:
    from types import ModuleType

    from rla_client.capture.hooks.state import CapturePart
    from rla_client.integrations.wandb.run_object import Run

_PLAIN = frozenset({float, int})
MAX_LATE = 100_000  # values of other threads while the run is opened
MAX_SAVED = 100  # file names in captured.json


class CaptureSession:
    """Records into one run after another.

    Args:
        state: the module `hooks.state`, with the parts.
        gathered: the module `hooks.seen_parameters`, with the hyper-parameters.
        held: events from before the run was open.
        names: names for the table, by kind: project, environment.
        metrics: calls of wandb's define_metric.
        worker: this process works for another one.
    """

    def __init__(
        self,
        state: ModuleType,
        gathered: ModuleType,
        held: list[tuple[CapturePart, Any]],
        names: dict[str, str],
        metrics: list[tuple[Any, tuple[Any, ...], dict[str, Any]]],
        *,
        worker: bool,
    ) -> None:
        self._state, self._gathered, self._worker = state, gathered, worker
        self.names = names
        self._handle: OpenRun | None = None
        self._logger: Logger | None = None
        self._rows: CapturedRows | None = None
        self._open_rows: CapturedRows | None = None  # `_rows` while this run is the current one
        self._known: dict[str, Any] = {}  # hyper-parameters that were sent to the run
        self._held = held
        self.wandb_metrics = metrics
        self.wandb = WandbMirror(self)
        self._mirrored: Run | None = None
        self._reported: set[str] = set()  # parts that were reported as off
        self._refused = False
        self._opening = threading.Lock()  # held by the thread that opens the run; no thread waits for it
        self._late: deque[tuple[CapturePart, str, Any, Any, float]] = deque(
            maxlen=MAX_LATE
        )  # values that came while the run was opened
        self._counted = 0  # rows of libraries without a step
        self._saved: dict[str, float] = {}  # path → time-step
        self.models = ModelRuns(self)
        self._beside: list[OpenRun] = []
        current_logger.copies.append(self._follow_current)

    def scalar(self, part: CapturePart, tag: str, value: Any, step: Any, walltime: float | None) -> None:  # noqa: ANN401 - of any kind
        """Add a number to the row of a step; without a step, to that of the clock's step."""
        rows = self._open_rows or self.rows()
        if rows is None:
            if (
                self._opening.locked() or self._rows is not None
            ):  # another thread is opening the run, or just did
                self._late.append((part, tag, value, step, time.time() if walltime is None else walltime))
                if not self._opening.locked():
                    self._send_late()
            return
        if type(value) not in _PLAIN:
            value = to_plain(value)
        if type(step) is not int:
            step = self._clock_step() if step is None else _number(step)
        rows.add_from(part.name, tag, value, step, time.time() if walltime is None else walltime)
        counts = part.counts
        known = counts.get("values", 0)
        counts["values"] = known + 1
        if not known:  # captured.json then names the source, even if the process is killed
            self.write_file()

    def row(self, part: CapturePart, values: Any, step: Any) -> None:  # noqa: ANN401 - a mapping
        """Add the numbers of a mapping, nested ones as `group/name`; count other values as skipped."""
        if self.rows() is None:
            return
        if step is None:
            step = self._counted
        self._counted = int(step) + 1
        for name, value in flat(values):
            try:
                plain = to_plain(value)
            except FrameTooLargeError:  # a large array; the other values are recorded
                part.skip(type(value).__name__, 0)
                continue
            if isinstance(plain, int | float):
                self.scalar(part, name, plain, step, None)
            elif not isinstance(plain, str):
                part.skip(type(value).__name__, 0)

    def saved(self, part: CapturePart, path: str, *, copied: bool) -> None:
        """Note a file that the program saved; if `copied`, copy it to the run's checkpoints."""
        if not self._is_ours():
            return
        part.count("files")
        self._saved[path] = self._clock_step()
        while len(self._saved) > MAX_SAVED:
            del self._saved[next(iter(self._saved))]
        if copied and exp_manager.run is not None:
            with replacing(
                Path(exp_manager.folder_of(CHECKPOINT)) / Path(path).name, durable=False
            ) as partial:
                shutil.copyfile(path, partial)

    def trainer_callback(self) -> Any:  # noqa: ANN401 - transformers' types are not ours to check
        """A callback of Hugging Face's Trainer for the run, opened now; None: nothing is recorded."""
        if self.rows() is None:
            return None
        from rla_client.integrations.transformers import RLACallback  # noqa: PLC0415 - only where the program uses it

        return RLACallback()

    def event(self, part: CapturePart, event: Any) -> None:  # noqa: ANN401 - a message of some protobuf
        """Record an event of TensorBoard that is not a scalar; it opens no run."""
        del part
        logger = self._logger
        if logger is not None and self._rows is not None and (self._worker or self._is_ours()):
            logger.event(shown_event(event, logger), event.wall_time, event.step)
            keep_event_media(logger, event)

    def flush(self) -> None:
        """Write the pending row."""
        if self._rows is not None:
            self._rows.write()

    def rows(self) -> CapturedRows | None:
        """Rows of the open run, opened now if there is none; None: nothing is recorded."""
        if self._rows is not None and (self._worker or self._is_ours()):
            return self._rows
        if not self._opening.acquire(blocking=False):
            return None
        try:
            found = self._open_or_join()
        finally:
            self._opening.release()
        self._send_late()
        return found

    def _send_late(self) -> None:
        """Record the values that other threads logged while the run was opened, if it was opened."""
        for _ in range(len(self._late)):  # without later values, so that the loop ends
            try:
                late = self._late.popleft()
            except IndexError:  # another thread sends them too
                return
            if self._rows is not None:
                self.scalar(*late)

    def _is_ours(self) -> bool:
        return self._logger is not None and get_current() is self._logger

    def _clock_step(self) -> float:
        return 0 if self._logger is None else self._logger.clock.get_time()

    def _open_or_join(self) -> CapturedRows | None:
        self._rows = self._open_rows = None
        if self._refused:
            return None
        current, run = get_current(), exp_manager.run
        beside = run is not None and any(handle.run is run for handle in self._beside)
        if run is not None and run.pid == os.getpid() and not beside:
            return None  # the program's own
        if current.folder is not None and not beside:
            self._logger = current
            self._take_rows(current)
            return self._rows
        if self._worker:
            return None
        try:
            self._open()
        except Exception as error:
            self._refused = True
            add_note(REFUSED, f"no run could be opened: {error}")
            raise
        return self._rows

    def adopt(self, part: CapturePart) -> None:
        """Use the run that the replaced wandb module opened as the program's run."""
        if self._worker or exp_manager.run is None:
            return
        self._handle, self._known, self._logger = None, {}, get_current()
        self._logger.silent = True
        part.count("runs")
        mirror = self._wandb_run()
        if mirror is None or not mirror.synced:  # otherwise it records TensorBoard's values itself
            self._take_rows(self._logger)
        self._begin()

    @staticmethod
    def _wandb_run() -> Run | None:
        module = sys.modules.get("rla_client.integrations.wandb.run_object")
        return None if module is None else module.current()

    def _begin(self) -> None:
        """Write what a run starts with: held events, parameters, captured.json."""
        atexit.unregister(self.end)
        atexit.register(self.end)  # runs before the handler that closes the run, which was registered earlier
        self._send_held()
        self.read_parameters()
        self.write_file()

    def _take_rows(self, current: Logger) -> None:
        self._rows = captured_rows(current)
        self._follow_current(current_logger.get_current_of_all())

    def _follow_current(self, current: Logger | None) -> None:
        """Open the rows while the run is the current one of every thread; a worker's rows are always open."""
        ours = self._worker or (current is not None and current is self._logger)
        self._open_rows = self._rows if ours else None

    def _open(self) -> None:
        found = captured_parameters.merged(self._gathered.sources)
        seed = None if "seed" in found else captured_parameters.seed_of_torch()
        if seed is not None:
            found["seed"] = seed
        given = [name for one in self._gathered.sources for name in one.given]
        wanted = [name for name in os.environ.get(TRACK_VARIABLE, "").split(",") if name]
        table = table_name(
            os.environ.get(TABLE_VARIABLE, ""),
            self.names.get("project", ""),
            self.names.get("environment", ""),
        )
        with _silently():
            names = captured_parameters.tracked(found, given, wanted)
            handle = open_for_adapter(table, found, names, **_place(self._state.loaded_cwd))
        self._handle, self._known = handle, found
        self._logger = get_current()
        self._logger.silent = True
        self._logger.sinks -= PRINTED
        self._take_rows(self._logger)
        add_note(RUN, self._logger.folder or "")
        self._begin()

    def _send_held(self) -> None:
        for part, event in self._held:
            self.event(part, event)
        self._held.clear()

    def mirror(self, run: Any) -> Run:  # noqa: ANN401 - wandb's
        """Create a mirror of wandb's run in the open run."""
        from rla_client.integrations import wandb  # noqa: PLC0415 - only where the program uses it

        with _silently():
            self._mirrored = wandb.init(
                project=run.project, name=run.name, notes=run.notes, tags=run.tags, group=run.group or None,
                job_type=run.job_type or None, resume="never",
            )  # fmt: skip
        self._mirrored.keeps_samples = False
        return self._mirrored

    def is_mirrored(self, mirror: Run) -> bool:
        """Whether a mirror belongs to the open run."""
        return self._is_ours() and self._mirrored is mirror

    def read_parameters(self) -> None:
        """Send changed hyper-parameters to the run."""
        if self._worker or not self._is_ours():
            return
        found = captured_parameters.merged(self._gathered.sources)
        changed = {name: value for name, value in found.items() if not _same(self._known.get(name), value)}
        changed |= {name: value for name, value in found.items() if name not in self._known}
        if changed and self._logger is not None and self._logger.take_parameters is not None:
            self._known |= changed
            self._logger.take_parameters(changed)

    def write_file(self) -> None:
        """Write captured.json, and report parts that are off in warn.txt."""
        run = exp_manager.run
        if self._worker or run is None or self._logger is None or not self._is_ours():
            return
        counts = captured_parameters.counted(self._gathered.sources)
        found = captured_file.content(self._state.parts.values(), counts, self._saved)
        for name, why in found["off"].items():
            if name not in self._reported:
                self._reported.add(name)
                self._logger.log(
                    f"[WARN] capture: {name} is off after internal errors, the last: {why}",
                    level=WARN,
                    echo=False,
                )
        run.file(LOG, captured_file.CAPTURED_NAME, captured_file.as_bytes(found))

    def replace_parameters(self, origin: str, values: dict[str, Any]) -> None:
        """Replace the hyper-parameters of a library."""
        sources = self._gathered.sources
        sources[:] = [one for one in sources if one.origin != origin]
        self._gathered.add(self._gathered.FILES, origin, values)
        self.read_parameters()

    def begin_beside(self) -> None:
        """Leave the open run to its writers; the next metric opens another run beside it."""
        self._write_end()
        if self._handle is not None:
            self._beside.append(self._handle)  # it ends with the process
        self._forget()

    def _forget(self) -> None:
        self._handle, self._rows, self._logger, self._mirrored = None, None, None, None
        self._open_rows = None
        self._saved.clear()
        self._counted = 0
        for part in self._state.parts.values():
            part.counts.clear()
            part.skipped.clear()

    def end_run(self) -> None:
        """End the run, as another begins; the observed hyper-parameters are already those of the next run."""
        self._write_end()
        handle = self._handle
        self._forget()
        if handle is not None:
            with _silently():
                handle.close()

    def end(self) -> None:
        """Write parameters and captured.json at the end of the process, before the run is closed."""
        self._write_end(self.read_parameters)

    def _write_end(self, read: Callable[[], object] = lambda: None) -> None:
        if self._worker or not self._is_ours():
            return
        former, self._state.thread.inside = self._state.thread.inside, True
        try:
            self.flush()
            read()
            self.write_file()
        except Exception as error:  # noqa: BLE001 - the run must end nevertheless
            add_note("error", str(error))
        finally:
            self._state.thread.inside = former


def make_session(
    state: ModuleType,
    gathered: ModuleType,
    held: list[tuple[CapturePart, Any]],
    names: dict[str, str],
    metrics: list[tuple[Any, tuple[Any, ...], dict[str, Any]]],
    *,
    worker: bool,
) -> CaptureSession:
    """The session of this process; the logging of `rla_client` is silenced."""
    logging.getLogger("rla_client").addHandler(logging.NullHandler())
    logging.getLogger("rla_client").propagate = False
    return CaptureSession(state, gathered, held, names, metrics, worker=worker)


@contextmanager
def _silently() -> Iterator[None]:
    """Print nothing during a block, and let no warning become an error."""
    Logger.silent = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        Logger.silent = False


def _place(folder: str) -> dict[str, Any]:
    """Arguments for the data root, relative to the folder in which the program was started."""
    if os.environ.get(DATA_ROOT_VARIABLE) or folder == os.getcwd():
        return {}
    config = find_config(Path(folder))
    root = (Path(folder) if config is None else config.parent) / DATA_FOLDER
    return {"data_root": root} if config is None else {"data_root": root, "rla_config": config}


def _number(step: Any) -> float:  # noqa: ANN401 - of numpy, torch
    plain = to_plain(step)
    return plain if isinstance(plain, int | float) else int(step)


def _same(first: Any, second: Any) -> bool:  # noqa: ANN401 - of any kind
    try:
        return first is second or bool(first == second)
    except Exception:  # noqa: BLE001 - arrays, and classes of the program
        return repr(first) == repr(second)
