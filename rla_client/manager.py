"""exp_manager: one experiment from its configuration to its end (RLA's `tester`).

    exp_manager.configure("demo_task", rla_config="rla_config.yaml", data_root="data")
    exp_manager.set_hyper_param(**kwargs)
    exp_manager.add_record_param(["env_id", "optimizer.lr"])
    exp_manager.log_files_gen()

`log_files_gen` makes the item's folders, opens its stream and returns; nothing waits for the
agent. Names, arguments and files are those of polixir/RLAssistant.

The manager is the front door: what the next run is to be lives in `RunSetup`, the open run with its
data in `RunData`; `open_run`, `resume_in_place` and `fork` open, resume and fork runs.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, SupportsIndex, TypeVar

from rla_client import logger
from rla_client.contract.errors import ArgumentError, NotConfiguredError
from rla_client.contract.layout import ARCHIVE_TESTER
from rla_client.run.close import end_given_up, end_run, give_way
from rla_client.run.configure import RunSetup
from rla_client.run.item import Item
from rla_client.run.open_run import open_run
from rla_client.run.open_stream import tell_folders
from rla_client.run.record import time_tracker
from rla_client.run.record.large_variables import tell_large_memory_variables
from rla_client.run.resume.fork import fork
from rla_client.run.resume.resume_in_place import reopen, resume
from rla_client.run.run_data import CHECKPOINT_NAME, RunData
from rla_client.run.state.custom_data import register_custom_type
from rla_client.stream import scope
from rla_client.stream.clock import TimeStep, TimeStepHolder, time_step_holder

if TYPE_CHECKING:
    from datetime import datetime

    import tensorboardX
    from typing_extensions import Self

    from rla_client.config.schema import Config
    from rla_client.run.record.row import Row
    from rla_client.run.resume.find_run import FoundRun
    from rla_client.run.run import Run

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
SECONDS_PER_HOUR = 3600.0
_CHANGED = {"_setup": "_next_setup"}  # the part that is changed, where it is not the one that is read
FRAMEWORKS = ("torch", "tensorflow")  # of checkpoints; the first where nothing tells


class _Held(Generic[T]):
    """An attribute of a part, as one of the manager's own."""

    def __init__(self, part: str, *, writable: bool = True) -> None:
        self._part, self._writable = part, writable

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, manager: ExpManager, owner: type | None = None) -> T:
        held: T = self if manager is None else getattr(getattr(manager, self._part), self._name)
        return held

    def __set__(self, manager: ExpManager, value: T) -> None:
        if not self._writable:
            raise AttributeError(f"exp_manager.{self._name} cannot be set")
        setattr(getattr(manager, _CHANGED.get(self._part, self._part)), self._name, value)


def _of(part: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[ExpManager, P], R]:
    """A method of a part, as one of the manager's own."""

    @functools.wraps(method)
    def call(manager: ExpManager, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with manager.active():
            return method(getattr(manager, part), *args, **kwargs)

    return call


M = TypeVar("M", bound="ExpManager")


def _inside(method: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
    """A method that logs: whatever is current, it is into the manager's own run."""

    @functools.wraps(method)
    def call(manager: M, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with manager.active():
            return method(manager, *args, **kwargs)

    return call


class ExpManager:
    """An experiment. `rla_client.exp_manager` is the one that everybody uses."""

    def __init__(self, data: RunData | None = None) -> None:
        self.time_step_holder: TimeStepHolder = time_step_holder
        self._data = data or RunData(RunSetup())
        self._setup = self._data.setup

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # a function that is sent to another process finds that one's own there
        if self is exp_manager:
            return "exp_manager"
        return (_the_manager, ()) if self._data.is_held else super().__reduce_ex__(protocol)

    @property
    def _next_setup(self) -> RunSetup:
        return self._setup

    @property
    def _next_data(self) -> RunData:
        return self._data

    def active(self) -> AbstractContextManager[None]:
        """For the length of a `with` block, what this thread logs is part of this run."""
        return scope.inside(self._data.scope)

    # -- what the next run is to be -------------------------------------------------------------

    task_table_name: _Held[str | None] = _Held("_setup")
    data_root: _Held[str | None] = _Held("_setup")
    config: _Held[Config | None] = _Held("_setup")
    private_config: _Held[dict[str, Any] | None] = _Held("_setup")
    project_root: _Held[str | None] = _Held("_setup")
    run_file: _Held[list[str]] = _Held("_setup")
    ignore_file_path: _Held[str | None] = _Held("_setup")
    is_master_node: _Held[bool] = _Held("_setup")
    dl_framework: _Held[str | None] = _Held("_setup")
    log_callback_fn: _Held[Callable[[Row], object] | None] = _Held("_setup")
    log_name_format_version: _Held[str | None] = _Held("_setup")
    run_id: _Held[str | None] = _Held("_setup")
    resume_mode: _Held[str] = _Held("_setup")
    record_date: _Held[datetime | None] = _Held("_setup")
    info: _Held[str | None] = _Held("_setup")
    hyper_param: _Held[dict[str, Any]] = _Held("_setup")
    loaded_record: _Held[list[str]] = _Held("_setup")
    hyper_param_record: _Held[list[str]] = _Held("_setup")
    task_name: _Held[str | None] = _Held("_setup", writable=False)
    root: _Held[str | None] = _Held("_setup", writable=False)
    ipaddr: _Held[str] = _Held("_setup", writable=False)

    configure = _of("_next_setup", RunSetup.configure)
    get_task_table_name = _of("_setup", RunSetup.get_task_table_name)
    set_hyper_param = _of("_next_setup", RunSetup.set_hyper_param)
    update_hyper_param = _of("_next_setup", RunSetup.update_hyper_param)
    add_record_param = _of("_next_setup", RunSetup.add_record_param)
    clear_record_param = _of("_next_setup", RunSetup.clear_record_param)
    auto_parse_info = _of("_setup", RunSetup.auto_parse_info)
    print_args = _of("_setup", RunSetup.print_args)
    get_version_num = _of("_setup", RunSetup.get_version_num)
    log_name_formatter = _of("_setup", RunSetup.log_name_formatter)
    get_ignore_files = _of("_setup", RunSetup.get_ignore_files)
    record_date_to_str = staticmethod(RunSetup.record_date_to_str)
    task_gen = staticmethod(RunSetup.task_gen)

    # -- the open run, its data, its folders ------------------------------------------------------

    run: _Held[Run | None] = _Held("_data", writable=False)
    custom_data: _Held[dict[str, Any]] = _Held("_data")
    max_to_keep: _Held[int | None] = _Held("_data")
    resumed_from: _Held[int | None] = _Held("_data")
    last_record_fph_time: _Held[float | None] = _Held("_data")
    resumed: _Held[bool] = _Held("_data", writable=False)
    last_time_step: _Held[int | float | None] = _Held("_data", writable=False)
    writer: _Held[tensorboardX.SummaryWriter | None] = _Held("_data", writable=False)
    log_dir: _Held[str | None] = _Held("_data", writable=False)
    results_dir: _Held[str | None] = _Held("_data", writable=False)
    code_dir: _Held[str | None] = _Held("_data", writable=False)
    checkpoint_dir: _Held[str | None] = _Held("_data", writable=False)
    hyperparameter_dir: _Held[str | None] = _Held("_data", writable=False)
    hyparameter_dir: _Held[str | None] = _Held("_data", writable=False)  # the historic spelling
    tmp_data_dir: _Held[str | None] = _Held("_data", writable=False)
    pkl_file: _Held[str | None] = _Held("_data", writable=False)
    pkl_dir: _Held[str | None] = _Held("_data", writable=False)

    add_hyper_param = _of("_data", RunData.add_hyper_param)
    alert = _of("_data", RunData.alert)
    add_custom_data = _of("_data", RunData.add_custom_data)
    get_custom_data = _of("_data", RunData.get_custom_data)
    print_custom_data = _of("_data", RunData.print_custom_data)
    clear_custom_data = _of("_data", RunData.clear_custom_data)
    register_custom_type = staticmethod(register_custom_type)
    new_saver = _of("_data", RunData.new_saver)
    keep_best = _of("_data", RunData.keep_best)
    keep_every = _of("_data", RunData.keep_every)
    save_checkpoint = _of("_data", RunData.save_checkpoint)
    load_checkpoint = _of("_data", RunData.load_checkpoint)
    folder_of = _of("_data", RunData.folder_of)
    archive_content = _of("_data", RunData.archive_content)
    save_archive = _of("_data", RunData.save_archive)
    serialize_object_and_save = save_archive

    @property
    def archive_kind(self) -> str:
        """Kind of the archive in the database."""
        return ARCHIVE_TESTER

    @_inside
    def print_log_dir(self) -> None:
        """Log where the run's data lie."""
        tell_folders(self._data, logger.get_current(), echo=True)

    # -- from its beginning to its end ------------------------------------------------------------

    def log_files_gen(self, *, all_ranks: bool = False) -> None:
        """Open the run: folders, parameter files, stream. Returns without waiting for the agent.

        With RANK, SLURM_PROCID or an MPI rank above 0 no item is made and records are dropped,
        unless `all_ranks` lets this rank join the run of rank 0.

        Raises:
            NotConfiguredError: `configure` was not called.
            ArgumentError: the data root cannot be written.
        """
        open_run(self._data, all_ranks=all_ranks)

    def _reopen(self, item: Item) -> Run:
        return reopen(self._data, item)

    def flush(self, timeout: float | None = 10.0) -> bool:
        """As `logger.flush`: True once all that was sent before is on disk, within `timeout` seconds."""
        end_given_up()
        return self.run is None or self.run.logger.flush(timeout, media=True)

    def flush_rows(self, timeout: float | None = 10.0) -> bool:
        """As `logger.flush_rows`: `flush` without figures, images and videos; `timeout` in seconds."""
        return self.run is None or self.run.logger.flush(timeout, media=False)

    def sync_log_file(self, skip_error: bool = False, wait: bool = False, timeout: float = 60.0) -> bool:
        """Replicate this run now instead of at the agent's next look; not needed otherwise.

        Args:
            skip_error: without effect; nothing here raises because of the master.
            wait: return when everything of the run is on the master.
            timeout: seconds to wait at most.

        Returns:
            Whether it was asked for, or with `wait` whether all of the run is there. False where
            runs are not replicated: `is_master_node=True`, no `SEND_LOG_FILE`, or `RLA_MODE=offline`.
        """
        del skip_error
        sends = self.config is not None and self.config.send_log_file
        return sends and self.run is not None and self.run.replicate_now(wait=wait, timeout=timeout)

    def close(self, status: str = "finished", reason: str = "") -> None:
        """End the run now instead of at interpreter exit.

        Args:
            status: `finished`, `interrupted` (somebody stopped it on purpose) or `failed`.
            reason: why.

        Raises:
            ArgumentError: another status.
        """
        if status not in {"finished", "interrupted", "failed"}:
            raise ArgumentError(f"close() takes status 'finished', 'interrupted' or 'failed', got {status!r}")
        end_given_up()
        end_run(self._data, status, reason)

    # -- earlier runs -----------------------------------------------------------------------------

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
        from rla_client.run.resume.find_run import find_item, read_run  # noqa: PLC0415 - not at import of the package

        return cls.of_run(read_run(find_item(log_root, task_table_name, record_date)))

    @classmethod
    def of_run(cls, found: FoundRun) -> Self:
        """A manager of a run that was found; further plain data of its archive become attributes."""
        loaded = cls()
        data, setup, item = loaded._data, loaded._setup, found.item
        data.item, data.run_file = item, found.run_file
        data.take_custom_data(found.custom_data)
        setup.loaded_record = found.tracked
        setup.hyper_param = found.hyper_param
        setup.address = item.index.ip
        framework = found.archive.get("dl_framework")
        setup.dl_framework = framework if framework in FRAMEWORKS else FRAMEWORKS[0]
        setup.log_name_format_version = item.index.version
        setup.task_table_name, setup.data_root = item.table, item.root
        setup.record_date, setup.info = item.opened, item.index.info
        config = found.archive.get("private_config")
        setup.private_config = config if isinstance(config, dict) else None
        for name, value in found.archive.items():
            if not name.startswith("_") and not hasattr(loaded, name):
                setattr(loaded, name, value)
        return loaded

    def update_log_files_location(self, root: str | os.PathLike[str]) -> None:
        """Say that the run's database now lies at `root`.

        Raises:
            NotConfiguredError: no run is loaded or open.
        """
        data, item = self._data, self._data.item
        if item is None and data.disabled is not None:
            return
        if item is None:
            raise NotConfiguredError("no run is loaded or open")
        data.item = Item(os.path.abspath(root), item.table, item.index, item.opened)
        self._setup.data_root = os.fspath(root)

    @staticmethod
    def log_file_finder(
        record_date: str,
        task_table_name: str = "train",
        file_root: str = "../checkpoint/",
        log_type: str = "dir",
    ) -> tuple[str, str]:
        """See `find.log_file_finder`."""
        from rla_client.run.resume.find_run import log_file_finder  # noqa: PLC0415

        return log_file_finder(record_date, task_table_name, file_root, log_type)

    @_inside
    def log_file_copy(self, source_tester: ExpManager) -> None:
        """Put checkpoints, results, temporary data, logs and custom data of a loaded run under this one.

        Rows and events recorded from now on follow those of the source. What this run has recorded so far
        is kept in `before-fork/`, where a file of the source takes its place. The hyper-parameters of this
        run stay, and so does custom data that it has recorded itself. Checkpoints and results are there on
        return; rows and texts once the agent has written what this run recorded before, which is waited
        for briefly.

        Whatever goes wrong with disk or agent is a warning.

        Args:
            source_tester: what `load_tester` gave.

        Raises:
            NotConfiguredError: no run is open, or none is loaded.
            StillWritingError: a living process writes the source.
        """
        fork(self._data, source_tester._data)

    @_inside
    def resume(
        self, run: str, at: int | None = None, checkpoint_name: str = CHECKPOINT_NAME, *, trust: bool = False
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
        name, step = resume(self._next_data, run, at, checkpoint_name)
        if step is None:
            return 0, None
        content = self.load_checkpoint(step, name, trust=trust)[1]
        self._data.restore_random_state()
        return step, content

    # -- measures ---------------------------------------------------------------------------------

    time_record = staticmethod(time_tracker.time_record)
    time_record_end = staticmethod(time_tracker.time_record_end)

    @_inside
    def update_fph(self, cum_epochs: float) -> None:
        """Record epochs per hour since the first call as `fph` and write the row.

        Args:
            cum_epochs: epochs done so far.
        """
        now = time.monotonic()
        if self.last_record_fph_time is None:
            self.last_record_fph_time = now
            return
        hours = (now - self.last_record_fph_time) / SECONDS_PER_HOUR
        logger.get_current().record("fph", cum_epochs / hours if hours > 0 else float("inf"))
        logger.get_current().dump()

    def print_large_memory_variable(self) -> dict[str, str]:
        """Log the caller's largest variables (over 1 MiB, with what they hold): name → size.

        They also become the text `large_memory` in TensorBoard, where that is an output.
        """
        return tell_large_memory_variables(depth=3)

    @_inside
    def add_summary_to_logger(
        self, summary: object, name: str = "", simple_val: bool = False, freq: int = 20
    ) -> None:
        """RLA's older name of `logger.log_from_tf_summary`; only `summary` has an effect."""
        del name, simple_val, freq
        logger.log_from_tf_summary(summary)

    @staticmethod
    def dict_to_table_text_summary(input_dict: Mapping[Any, Any], name: str) -> bytes:
        """A serialised Summary that shows a dict as a table in TensorBoard, for `add_summary_to_logger`.

        Args:
            input_dict: name to value; each is a line of the table.
            name: tag of the text.
        """
        from rla_client.run.record.tf_summary import table_summary  # noqa: PLC0415 - tensorboardX is slow to import

        return table_summary(input_dict, name)

    @_inside
    def add_graph(self, /, sess: object, *args: object, **kwargs: object) -> None:
        """Put a graph into TensorBoard: that of a tensorflow session, or as tensorboardX's `add_graph`.

        Raises:
            ArgumentError: `tensorboard` is not among the outputs.
        """
        from rla_client.run.record.summary_writer import send_graph  # noqa: PLC0415 - tensorboardX is slow to import

        send_graph(logger.get_current(), sess, *args, **kwargs)

    # -- clock --------------------------------------------------------------------------------

    def get_timestep(self) -> int | float:
        """The run's time-step."""
        return self._data.clock.get_time()

    get_timstep = get_timestep  # as RLA spells it

    def set_timestep(self, t: TimeStep) -> None:
        """Set the run's time-step."""
        self._data.clock.set_time(t)


class _Current(ExpManager):
    """`exp_manager`: the manager of the run that the calling thread writes to.

    A thread that configures or opens a run while another one has its own open gets one beside that. A run
    that `rla_client.init` opened, and whose handle somebody has, stays open beside the next.
    """

    @property
    def _data(self) -> RunData:  # type: ignore[override]
        return current_data()

    @property
    def _setup(self) -> RunSetup:  # type: ignore[override]
        data = current_data()
        return data.next_setup or data.setup

    @property
    def _next_setup(self) -> RunSetup:
        return current_data().setup_of_next()

    @property
    def _next_data(self) -> RunData:
        data = current_data()
        if data.next_setup is None:
            return data
        following = data.successor()
        current_data.put(following, following.scope)
        return following

    def __init__(self) -> None:
        self.time_step_holder = time_step_holder

    def active(self) -> AbstractContextManager[None]:
        """Nothing changes."""
        return nullcontext()

    @scope.opening()
    def configure(self, /, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - `RunSetup`'s
        """See `ExpManager.configure`."""
        if not scope.current().is_free():
            following = current_data().successor()
            current_data.put(following, following.scope)
            following.enter()
        super().configure(*args, **kwargs)
        if current_data().next_setup is None:  # else it is the script's as soon as it is opened
            current_data().of_adapter = False

    def log_files_gen(self, *, all_ranks: bool = False) -> None:
        """See `ExpManager.log_files_gen`."""
        data = current_data()
        if data.is_held or data.next_setup is not None or not scope.current().is_free():
            open_beside(data, data.successor(), all_ranks=all_ranks)
        else:
            open_run(data, all_ranks=all_ranks)

    def resume(
        self, run: str, at: int | None = None, checkpoint_name: str = CHECKPOINT_NAME, *, trust: bool = False
    ) -> tuple[int, Any]:
        """See `ExpManager.resume`."""
        former = current_data()
        found = super().resume(run, at, checkpoint_name, trust=trust)
        if former.next_setup is not None:
            former.next_setup = None
            give_way(former)
        return found


current_data: scope.Part[RunData] = scope.Part(lambda: RunData(RunSetup()))  # of `exp_manager`


def open_beside(former: RunData, following: RunData, *, all_ranks: bool = False) -> None:
    """Open the run of `following` as that of `exp_manager`; this thread's former one gives way to it."""
    current_data.put(following, following.scope)
    if former.run is not None and former.scope.is_free():
        setup, then = following.setup, former.setup
        continues = setup.resume_mode != "never" and setup.run_id == then.run_id is not None
        if continues and setup.task_table_name == then.task_table_name:
            end_run(former, "finished", "")  # the same run goes on
        give_way(former)
    open_run(following, all_ranks=all_ranks)
    former.next_setup = None


exp_manager: ExpManager = _Current()


def _the_manager() -> ExpManager:
    """What the handle of a run is in another process."""
    return exp_manager


tester = exp_manager
Tester = ExpManager
