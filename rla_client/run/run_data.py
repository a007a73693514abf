"""State of the open or loaded run.

Its parts have modules of their own: `run_checkpoints`, `custom_values`, `run_parameters`, `run_archive`.
"""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import NotConfiguredError
from rla_client.contract.layout import CHECKPOINT, CODE, HYPARAMETER, LOG, OTHER_RESULTS, TMP_DATA
from rla_client.run.run import Run
from rla_client.run.run_checkpoints import RunCheckpoints
from rla_client.run.state.custom_values import CustomValues
from rla_client.stream import run_scope as scopes
from rla_client.stream.clock import TimeStepHolder, clock
from rla_client.stream.run_scope import Scope

if TYPE_CHECKING:
    import tensorboardX

    from rla_client.run.configure import RunSetup
    from rla_client.run.item import ItemFolders
    from rla_client.run.record.run_logger import Logger
    from rla_client.run.temporary_item import TemporaryItem


def _copied(setup: RunSetup) -> RunSetup:
    found = copy.copy(setup)
    found.hyper_param = dict(setup.hyper_param)
    return found


class RunData:
    """The open (or loaded) run.

    Args:
        setup: the setup that the run was opened with.
        own: a scope of its own; without one, it takes the free scope where it is opened.
    """

    def __init__(self, setup: RunSetup, own: Scope | None = None) -> None:
        self.setup = setup
        self.next_setup: RunSetup | None = None  # setup of the next run, where it is not this one's
        self._own = self._scope = own
        self.is_held = False  # a handle of the run exists, which may write to it
        self.of_adapter = False  # an adapter alone opened the run
        self.gave_way = 0  # when another run replaced it; it ends when its handle is dropped
        self.item: ItemFolders | None = None
        self.run: Run | None = None
        self.ended: tuple[Logger, int] | None = None  # logger and process of the last open run
        self.disabled: TemporaryItem | None = None  # where files go while a run stores nothing
        self.run_file: dict[str, Any] = {}  # run.json of a loaded run
        self.custom = CustomValues()
        self.checkpoints = RunCheckpoints(self)
        self.resumed = False  # the open run continues where an earlier process left it,
        self.resumed_from: int | None = None  # at the checkpoint of this time-step; None: it has none
        self.last_record_fph_time: float | None = None

    @property
    def scope(self) -> Scope:
        """Of the open run; before that, the current one."""
        return self._scope or scopes.current()

    @property
    def clock(self) -> TimeStepHolder:
        """The run's."""
        return clock.of(self.scope)

    def enter(self) -> None:
        """Make this run the current one of this thread."""
        if self._own is None:
            self._scope = scopes.room()
        scopes.take(self.scope)

    def setup_of_next(self) -> RunSetup:
        """Setup of the next run: this one, or a copy of it where the open run has a handle."""
        if self.next_setup is None and self.is_held and self.run is not None:
            self.next_setup = _copied(self.setup)
        return self.next_setup or self.setup

    def successor(self) -> RunData:
        """Data of a run beside this one or in its place, with a scope of its own.

        It gets the settings for the next run and, while no run is open here, the clock and other present
        state.
        """
        following = RunData(_copied(self.next_setup or self.setup), Scope())
        following.checkpoints.take_rules(self.checkpoints)
        if self.run is None:
            following.custom.values = dict(self.custom.values)
            following.clock.take_over(self.clock)
        return following

    def let_go(self) -> Run | None:
        """Detach the open run; returns it, still to be closed."""
        run, self.run = self.run, None
        self.resumed, self.resumed_from = False, None
        self.checkpoints.forget()
        if run is not None:
            self.ended = run.logger, run.pid
            self.custom.leave_to(run)
            self.checkpoints.close()
        return run

    @property
    def last_time_step(self) -> int | float | None:
        """Of a loaded run: the time-step of its last row, where its run.json tells it."""
        step = self.run_file.get("time_step")
        return step if isinstance(step, (int, float)) else None

    @property
    def writer(self) -> tensorboardX.SummaryWriter | None:
        """See `logger.get_tbx_writer`; None where no run is open or it has no TensorBoard."""
        if self.run is None or "tensorboard" not in self.run.logger.sinks:
            return None
        from rla_client.run.record.summary_writer import tbx_writer  # noqa: PLC0415 - tensorboardX is slow to import

        return tbx_writer(self.run.logger)

    @property
    def log_dir(self) -> str | None:
        """Rows and text; ends with a slash, None before `log_files_gen`."""
        return self.folder(LOG)

    @property
    def results_dir(self) -> str | None:
        """Figures and other results."""
        return self.folder(OTHER_RESULTS)

    @property
    def code_dir(self) -> str | None:
        """The code of the run."""
        return self.folder(CODE)

    @property
    def checkpoint_dir(self) -> str | None:
        """Checkpoints."""
        return self.folder(CHECKPOINT)

    @property
    def hyperparameter_dir(self) -> str | None:
        """Hyper-parameters."""
        return self.folder(HYPARAMETER)

    hyparameter_dir = hyperparameter_dir  # the historic spelling

    @property
    def tmp_data_dir(self) -> str | None:
        """Data that may be thrown away."""
        return self.folder(TMP_DATA)

    @property
    def pkl_file(self) -> str | None:
        """Archive of this manager's data (JSON; the name is RLA's); of a run of RLA's, its pickle."""
        place = self.place()
        if place is None:
            return None
        older = os.path.splitext(place.archive_file)[0] + ".pkl"
        return (
            older if not os.path.exists(place.archive_file) and os.path.exists(older) else place.archive_file
        )

    @property
    def pkl_dir(self) -> str | None:
        """Folder of `pkl_file`."""
        return None if self.pkl_file is None else os.path.dirname(self.pkl_file)

    def folder_of(self, kind: str) -> str:
        """See `ExpManager.folder_of`."""
        folder = self.folder(kind)
        if folder is None:
            raise NotConfiguredError("open a run first: exp_manager.log_files_gen()")
        return folder

    def place(self) -> ItemFolders | None:
        """The run's item; the temporary one of a run that stores nothing; None before a run is open."""
        return self.disabled.item() if self.disabled is not None else self.item

    def folder(self, kind: str) -> str | None:
        """Folder of the item of a kind; None before a run is open."""
        place = self.place()
        return None if place is None else place.folder(kind)
