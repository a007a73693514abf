"""The part of exp_manager that goes back to earlier runs: load, fork, resume.

* `load_tester` gives a manager of an earlier run, ours or the original's, wherever its database
  lies now.
* `log_file_copy` (fork) puts the data of an earlier run under the current one; CSV and TensorBoard
  go on in it.
* `resume` goes on in the earlier run itself, exactly where a checkpoint was taken.
"""

from __future__ import annotations

import copy
import os
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.contract.errors import ArgumentError, NotConfiguredError
from rla_client.contract.layout import HYPARAMETER, LOG
from rla_client.run.archive import load_arrays, unpack_arrays
from rla_client.run.custom_values import join_arrays, split_arrays
from rla_client.run.data import CHECKPOINT_NAME, TIME_STEP_DATA, ItemData
from rla_client.run.item import Item
from rla_client.run.run import disabled, rank
from rla_client.run.setup import ExperimentSetup
from rla_client.stream.clock import time_step_holder

if TYPE_CHECKING:
    from rla_client.resume.find import FoundRun
    from rla_client.resume.resume import ResumePoint

FRAMEWORKS = ("torch", "tensorflow")  # of checkpoints; the first where nothing tells


class ItemHistory(ExperimentSetup, ItemData, ABC):
    """Loading, forking and resuming; `ExpManager` is one."""

    def __init__(self) -> None:
        super().__init__()
        self.resumed_from: int | None = None
        self._resume_state: dict[str, Any] = {}
        self.loaded_record: list[str] = []
        self._run_file: dict[str, Any] = {}

    # -- loading ------------------------------------------------------------------------------

    @classmethod
    def load_tester(cls, record_date: str, task_table_name: str, log_root: str | os.PathLike[str]) -> Any:  # noqa: ANN401
        """A manager of an earlier run: hyper-parameters, custom data, folders, checkpoints.

        Nothing named in a file is imported or called, also for pickles of the original.

        Args:
            record_date: `YYYY/MM/DD/HH-MM-SS-ffffff`, or the whole index.
            task_table_name: table.
            log_root: data root, wherever it lies now.

        Raises:
            RunNotFoundError: no run answers to the date.
        """
        from rla_client.resume.find import find_item, read_run  # noqa: PLC0415 - not at import of the package

        return cls.of_run(read_run(find_item(log_root, task_table_name, record_date)))

    @classmethod
    def of_run(cls, found: FoundRun) -> Any:  # noqa: ANN401 - a manager of this class
        """A manager of a run that was found; further plain data of its archive become attributes."""
        loaded = cls()
        loaded._item = found.item
        loaded._run_file = found.run_file
        loaded.loaded_record = found.tracked
        loaded.hyper_param = found.hyper_param
        loaded.custom_data = found.custom_data
        loaded._address = found.item.index.ip
        framework = found.archive.get("dl_framework")
        loaded.dl_framework = framework if framework in FRAMEWORKS else FRAMEWORKS[0]
        loaded.log_name_format_version = found.item.index.version
        loaded.task_table_name = found.item.table
        loaded.data_root = found.item.root
        loaded.record_date = found.item.opened
        loaded.info = found.item.index.info
        config = found.archive.get("private_config")
        loaded.private_config = config if isinstance(config, dict) else None
        for name, value in found.archive.items():
            if not name.startswith("_") and not hasattr(loaded, name):
                setattr(loaded, name, value)
        return loaded

    @property
    def last_time_step(self) -> int | float | None:
        """Of a loaded run: the time-step of its last row, where its run.json tells it."""
        step = self._run_file.get("time_step")
        return step if isinstance(step, (int, float)) else None

    def update_log_files_location(self, root: str | os.PathLike[str]) -> None:
        """Say that the run's database now lies at `root`."""
        if self._item is None and self._nowhere is not None:
            return
        if self._item is None:
            message = "no run is loaded or open"
            raise NotConfiguredError(message)
        item = self._item
        self._item = Item(os.path.abspath(root), item.table, item.index, item.opened)
        self.data_root = os.fspath(root)

    @staticmethod
    def log_file_finder(
        record_date: str,
        task_table_name: str = "train",
        file_root: str = "../checkpoint/",
        log_type: str = "dir",
    ) -> tuple[str, str]:
        """See `found_run.log_file_finder`."""
        from rla_client.resume.find import log_file_finder  # noqa: PLC0415

        return log_file_finder(record_date, task_table_name, file_root, log_type)

    # -- forking ------------------------------------------------------------------------------

    def log_file_copy(self, source_tester: ItemHistory) -> None:
        """Put checkpoints, results, temporary data, logs and custom data of a loaded run under this one.

        Rows and events recorded from now on follow those of the source. What this run has recorded so far
        is kept in `before-fork/`, where a file of the source takes its place. The hyper-parameters of this
        run stay, and so does custom data that it has recorded itself. Checkpoints and results are there on
        return; rows and texts once the agent has written what this run recorded before, which is waited
        for briefly.

        Whatever goes wrong with disk or agent is a warning.

        Raises:
            NotConfiguredError: no run is open, or none is loaded.
            StillWritingError: a living process writes the source.
        """
        source, item, run = source_tester._item, self._item, self._run
        if source is not None and self._nowhere is not None:
            self._take_custom_data(source_tester)
            return  # rank 0 does the rest; or nothing is stored
        if source is None or item is None or run is None:
            message = "log_file_copy needs an open run and a loaded one"
            raise NotConfiguredError(message)
        from rla_client.contract.paths import find_places  # noqa: PLC0415
        from rla_client.resume.earlier_streams import await_taken_in, streams_of  # noqa: PLC0415
        from rla_client.resume.fork import put_under  # noqa: PLC0415

        places, autostart = find_places(), self._configured()[1].agent.autostart
        late = await_taken_in(
            places, streams_of(places, source, source_tester._run_file), autostart=autostart
        )
        if late:
            logger.warn(f"the fork of {source.index.path} lacks what that run recorded last: {late}")
        problem = put_under(source, item, run)
        if problem:
            logger.warn(f"not all data of {source.index.path} were put under this run: {problem}")
        self._bind_recorders(item)
        parent = {"run": source.index.path, "table": source.table, "time_step": time_step_holder.get_time()}
        run.mark("parent", parent)
        self._take_custom_data(source_tester)
        self.save_archive()

    def _take_custom_data(self, source: ItemHistory) -> None:
        """Copies of the custom data of `source` under keys that this run has not."""
        for key, value in source.custom_data.items():
            if key in self.custom_data:
                continue
            try:
                split_arrays(value, {}, key)
            except ArgumentError as error:
                logger.warn(f"not taken over: {error}")
                continue
            self.custom_data[key] = copy.deepcopy(value)

    @abstractmethod
    def _bind_recorders(self, item: Item) -> None:
        """Have recorders of figures and media write through the present stream."""

    # -- resuming -----------------------------------------------------------------------------

    @property
    def resumed(self) -> bool:
        """Whether the open run goes on where an earlier process left it."""
        return self.resumed_from is not None

    def resume(
        self,
        run: str,
        at: int | None = None,
        checkpoint_name: str = CHECKPOINT_NAME,
        *,
        trust: bool = False,
    ) -> tuple[int, Any]:
        """Go on in an earlier run of the configured table, exactly where a checkpoint was taken.

        Rows, events, figures and checkpoints after it move to `abandoned-N/`; the clock, random
        generators, moving averages and custom data are those of the checkpoint.

        With RLA_MODE=disabled and on ranks above 0 the checkpoint is loaded, and the run left as it is.

        Args:
            run: record date or index.
            at: time-step of the checkpoint; None takes the newest.
            checkpoint_name: its series.
            trust: the user's word for a file that this run did not write here (a fork's, another run's, one
                from the master). Without it such a file may hold tensors, arrays and plain data only:
                anything else runs code that the file names.

        Returns:
            (time-step, content) of the checkpoint; (0, None) when the run has none and begins
            again.

        Raises:
            NotConfiguredError: `configure` was not called.
            RunNotFoundError: there is no such run.
            StillWritingError: a living process writes it.
            NoCheckpointError: `at` names none.
            UntrustedCheckpointError: it holds objects, is not this run's own, and `trust` is False.
            RlaError: no agent has taken in what it recorded.
        """
        from rla_client.resume.resume import prepare  # noqa: PLC0415

        if disabled() or rank() > 0:
            return self._look_on(run, at, checkpoint_name, trust=trust)
        table, config, root = self._configured()
        point = prepare(root, table, run, at, checkpoint_name, autostart=config.agent.autostart)
        self._go_on(point)
        if point.time_step is None:
            return 0, None
        content = self.load_checkpoint(point.time_step, point.name, trust=trust)[1]
        self._restore_random_state()
        return point.time_step, content

    @abstractmethod
    def _look_on(self, which: str, at: int | None, name: str, *, trust: bool) -> tuple[int, Any]:
        """`resume` in a process that stores nothing."""

    @abstractmethod
    def _open_continuing(self, point: ResumePoint) -> None:
        """End the open run and open the one of `point` in its place."""

    def _end_run(self, status: str, reason: str) -> None:
        """Close the run and let go of everything that was its own."""
        run, self._run = self._run, None
        self.resumed_from, self._resume_state = None, {}
        if run is None:
            return
        self.custom_data = {}
        if self._saver is not None:
            self._saver.close()
            self._saver = None
        if "rla_client.media.jobs" in sys.modules:
            sys.modules["rla_client.media.jobs"].bind(None)
        if logger.get_current() is run.logger:
            logger.set_current(None)
        run.close(status, reason)

    def _go_on(self, point: ResumePoint) -> None:
        """Open the run of `point` where it was left; its checkpoint is loaded by who wants it."""
        from rla_client.resume.find import read_run  # noqa: PLC0415
        from rla_client.resume.resume import abandon_later  # noqa: PLC0415

        if not self.hyper_param:
            self._take_parameters(read_run(point.item).hyper_param)
        changed = self._changes_since(point.item)
        abandon_later(point)
        self._open_continuing(point)
        step = point.time_step
        self._tell_changes(changed, step)
        self._restore_state(point.state, step, point.item)
        at = "the beginning" if step is None else f"{point.name}_{step}.pt"
        logger.get_current().log(f"[RESUME] {time_step_holder.get_time()} : from {at}", echo=False)
        logger.backup(f"resumed from {at}")
        self._restore_random_state()

    def _take_parameters(self, stored: dict[str, Any]) -> None:
        """Take the hyper-parameters of an earlier run, but for secrets, which it does not keep."""
        from rla_client.code.secret_values import taken_over  # noqa: PLC0415

        self.hyper_param, lacking = taken_over(stored, {})
        if lacking:
            logger.warn(f"hyper-parameters of the earlier run are {lacking}")

    def _changes_since(self, item: Item) -> dict[str, tuple[Any, Any]]:
        from rla_client.resume.parameters import changed_parameters  # noqa: PLC0415

        return changed_parameters(item, self.hyper_param, self._secrets())

    def _tell_changes(self, changed: dict[str, tuple[Any, Any]], step: int | None) -> None:
        """Warn of hyper-parameters that are not those of the run that goes on, and keep them in the item."""
        item, run = self._item, self._run
        if not changed or item is None or run is None:
            return
        from rla_client.resume.parameters import keep_changes, tell_changes  # noqa: PLC0415

        logger.warn(tell_changes(changed))
        try:
            name, content = keep_changes(item, self._secrets().parameters(self.hyper_param), changed, step)
        except OSError as error:
            logger.warn(f"the changed hyper-parameters were not kept: {error.strerror or error}")
            return
        for kind in (LOG, HYPARAMETER):
            run.file(kind, name, content)

    def _restore_state(self, state: dict[str, Any], step: int | None, item: Item) -> None:
        """Clock, moving averages and custom data as they were at a checkpoint of `item`."""
        self.resumed_from = 0 if step is None else step
        self._resume_state = state
        time_step_holder.set_time(state.get("time_step", step or 0))
        if "logger" in state:
            logger.get_current().restore_memory(state["logger"])
        arrays = unpack_arrays(state["arrays"]) if state.get("arrays") else load_arrays(item.archive_file)
        self.custom_data = join_arrays(state.get("custom_data", {}), arrays)
        if step is not None:
            self.custom_data.setdefault(TIME_STEP_DATA, step)

    def _restore_random_state(self) -> None:
        if "random" in self._resume_state:
            from rla_client.run.state import restore_random_state  # noqa: PLC0415

            restore_random_state(self._resume_state["random"])
