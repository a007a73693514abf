"""`exp_manager`, the manager of one experiment (RLA's `tester`).

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

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, get_args

from rla_client import logger
from rla_client.contract.errors import ArgumentError, NotConfiguredError
from rla_client.contract.layout import ARCHIVE_TESTER
from rla_client.run.alert import alert
from rla_client.run.attributes import RunAttributes
from rla_client.run.checkpoint_note import note_checkpoint
from rla_client.run.close import end_given_up, end_run, give_way
from rla_client.run.configure import ResumeMode, RunSetup, first_named
from rla_client.run.failure import EndStatus
from rla_client.run.item import ItemFolders
from rla_client.run.open_run import open_by_address, open_run
from rla_client.run.open_stream import tell_folders
from rla_client.run.parameters.run_parameters import add_hyper_param
from rla_client.run.record import time_tracker
from rla_client.run.record.large_variables import tell_large_memory_variables
from rla_client.run.resume.fork import fork
from rla_client.run.resume.resume_in_place import reopen, resume
from rla_client.run.run_checkpoints import CHECKPOINT_NAME
from rla_client.run.run_data import RunData
from rla_client.run.state.custom_data import register_custom_type
from rla_client.run.state.custom_values import CustomDataMode
from rla_client.run.state.run_archive import archive_content, save_archive
from rla_client.stream import run_scope
from rla_client.stream.clock import TimeStep, TimeStepHolder, time_step_holder

if TYPE_CHECKING:
    from datetime import datetime

    from typing_extensions import Self

    from rla_client.checkpoint.sharded_save import ShardedSave
    from rla_client.contract.checkpoint.checkpoint_retention import Mode
    from rla_client.contract.sharded_checkpoint.status import ShardedStatus
    from rla_client.run.record.excluded_sinks import Row
    from rla_client.run.resume.find_run import FoundRun
    from rla_client.run.run import Run

SECONDS_PER_HOUR = 3600.0
FRAMEWORKS = ("torch", "tensorflow")  # of checkpoints; the first where nothing tells


class ExpManager(RunAttributes):
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
    def _next_data(self) -> RunData:
        return self._data

    def active(self) -> AbstractContextManager[None]:
        """For the length of a `with` block, what this thread logs is part of this run."""
        return run_scope.inside(self._data.scope)

    def _configuring(self) -> AbstractContextManager[None]:
        """Around `configure`."""
        return self.active()

    def _resuming(self) -> AbstractContextManager[None]:
        """Around `resume`."""
        return self.active()

    def configure(  # noqa: PLR0913, PLR0917 - RLA's signature
        self,
        /,
        task_table_name: str | None = None,
        rla_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        data_root: str | os.PathLike[str] | None = None,
        ignore_file_path: str | os.PathLike[str] | None = None,
        run_file: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
        is_master_node: bool = False,
        code_root: str | os.PathLike[str] | None = None,
        log_callback_fn: Callable[[Row], object] | None = None,
        run_id: str | None = None,
        resume: ResumeMode | None = None,
        console: bool | None = None,
        *,
        task_name: str | None = None,
        private_config_path: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        log_root: str | os.PathLike[str] | None = None,
    ) -> None:
        """Set the table, configuration and database of the next run.

        Args:
            task_table_name: table that collects the runs of one task.
            rla_config: path of rla_config.yaml, or a dict of the same shape.
            data_root: folder of the database.
            ignore_file_path: gitignore rules of what the code backup leaves out. Relative paths start
                from the working directory, as in RLA, or else from the root of the code.
            run_file: file or files to back up beside the code; relative ones as above.
            is_master_node: this machine is the master, so the run is not replicated.
            code_root: root of the code to back up; by default the folder of the file, and with a dict
                what `rla_client.code.find_code` finds.
            log_callback_fn: called with each dumped row.
            run_id: names this run for a later process (default: `RLA_RUN_ID`).
            resume: `never`; `allow` continues the newest run of this `run_id` at the checkpoint that it
                saved last, or opens a new run; `must` raises if there is none (default: `RLA_RESUME`,
                else never).
            console: keep what the run prints in `console.txt` (default: `AGENT.console`).
            task_name: older name of `task_table_name`.
            private_config_path: older name of `rla_config`.
            log_root: older name of `data_root`.

        Raises:
            ArgumentError: an argument is missing or wrong.
            ConfigError: the configuration has faults; all are listed.
        """
        with self._configuring():
            self._next_setup.configure(
                first_named("task_table_name", task_table_name, "task_name", task_name),
                first_named("rla_config", rla_config, "private_config_path", private_config_path),
                first_named("data_root", data_root, "log_root", log_root),
                ignore_file_path,
                run_file,
                is_master_node,
                code_root,
                log_callback_fn,
                run_id,
                resume,
                console,
            )

    def get_task_table_name(self) -> str:
        """The table of the next run; of a loaded one, its own.

        Raises:
            NotConfiguredError: `configure` was not called.
        """
        return self._setup.get_task_table_name()

    def set_hyper_param(self, /, **argkw: object) -> None:
        """Set all hyper-parameters of the next run, of any type."""
        self._next_setup.set_hyper_param(**argkw)

    def update_hyper_param(self, k: str, v: object) -> None:
        """Set one hyper-parameter."""
        self._next_setup.update_hyper_param(k, v)

    def add_record_param(self, keys: Iterable[str]) -> None:
        """Track hyper-parameters: they become part of the run's index.

        Adding one twice repeats it; what an earlier run of this process tracked is replaced.

        Args:
            keys: names; a dotted one reaches into nested dicts.

        Raises:
            UnknownParameterError: a name without dot that is not set (also a KeyError). An unknown
                dotted one is reported and skipped, as in RLA.
            ArgumentError: one text instead of a list of names.
        """
        with self.active():
            self._next_setup.add_record_param(keys)

    def clear_record_param(self) -> None:
        """Track nothing."""
        self._next_setup.clear_record_param()

    def auto_parse_info(self) -> str:
        """The tracked hyper-parameters, `key=value&key=value`."""
        return self._setup.auto_parse_info()

    def print_args(self) -> None:
        """Write all hyper-parameters to backup.txt and log.txt, sorted by name, and print them as a table."""
        with self.active():
            self._setup.print_args()

    def get_version_num(self) -> str | None:
        """Version of the index's spelling: `v1`, or None for that with spaces."""
        return self._setup.get_version_num()

    def log_name_formatter(self, prefix: str, record_date: datetime) -> str:
        """Path below `prefix` of a run with this one's address and info that began at `record_date`.

        Raises:
            RuntimeError: the version of the index's spelling is unknown.
        """
        return self._setup.log_name_formatter(prefix, record_date)

    def get_ignore_files(self, src: str | os.PathLike[str], names: Iterable[str]) -> list[str]:
        """Which of the `names` in the folder `src` the ignore file leaves out of the code backup.

        None where there is no ignore file. Fits `shutil.copytree(ignore=…)`.
        """
        return self._setup.get_ignore_files(src, names)

    @staticmethod
    def record_date_to_str(record_date: datetime) -> str:
        """The time of day in an index, `HH-MM-SS-ffffff`."""
        return record_date.strftime("%H-%M-%S-%f")

    @staticmethod
    def task_gen(task_pattern_list: Iterable[str]) -> str:
        """Join the parts of a table's name by `-`."""
        return "-".join(task_pattern_list)

    def add_hyper_param(self, values: Mapping[str, Any]) -> None:
        """Add hyper-parameters that become known during the run; those of the same name are replaced.

        An open run's parameter files and archive are rewritten. Its index stays as it is, because the
        tracked names were chosen before `log_files_gen`.

        Args:
            values: name to value, of any type.
        """
        with self.active():
            add_hyper_param(self._data, values)

    def alert(self, title: str, text: str = "") -> None:
        """Send a message through the channels of the rules `when: message` (docs/how-to/alerts.md).

        Without such a rule, it is written only to log.txt and warn.txt.

        Args:
            title: one line; cut to 200 characters.
            text: the rest of the message; cut to 2000 characters.
        """
        with self.active():
            alert(self._data, title, text)

    def add_custom_data(
        self, key: str, data: object, dtype: type = list, max_len: int = -1, mode: CustomDataMode = "append"
    ) -> None:
        """Keep a value with the experiment; `load_tester` and the loader give it back.

        Args:
            key: its name.
            data: plain data, arrays or tensors, containers of them, objects of registered types; any other
                object is pickled. What cannot be pickled is kept in this process alone, with a warning.
            dtype: with mode append: `list` grows, `deque` keeps the last `max_len`, any other type
                replaces.
            max_len: of a deque.
            mode: `append` or `replace`.

        Raises:
            ArgumentError: another mode, or a deque without `max_len`.
        """
        with self.active():
            self._data.custom.add(key, data, dtype, max_len, mode)

    def get_custom_data(self, key: str, *, trust: bool = False) -> Any:  # noqa: ANN401
        """The value kept under `key`, None without one.

        Args:
            key: its name.
            trust: load objects that this run did not keep here; see `load_checkpoint`.

        Raises:
            UntrustedCheckpointError: it holds such objects, and `trust` is False.
        """
        with self.active():
            return self._data.custom.get(key, trust=trust)

    def print_custom_data(self, key: str, prefix: str = "") -> None:
        """Record the mean of the values kept under `key` as `prefix + key`.

        Raises:
            ArgumentError: nothing is kept there.
        """
        with self.active():
            self._data.custom.print(key, prefix)

    def clear_custom_data(self, key: str) -> None:
        """Forget what is kept under `key`."""
        with self.active():
            self._data.custom.clear(key)

    register_custom_type = staticmethod(register_custom_type)

    def new_saver(
        self, max_to_keep: int | None = None, var_prefix: str | None = None, verbose: bool = True
    ) -> None:
        """Choose how many checkpoints of each name are kept (None: all), and prepare for the first.

        Args:
            max_to_keep: newest ones of each name.
            var_prefix: TensorFlow: save variables whose name begins so.
            verbose: taken for RLA's sake.

        Raises:
            ArgumentError: `max_to_keep` is not a positive whole number.
            MissingExtraError: PyTorch is not installed, and DL_FRAMEWORK is not TensorFlow.
        """
        with self.active():
            self._data.checkpoints.new_saver(max_to_keep, var_prefix, verbose)

    def keep_best(self, metric: str, mode: Mode = "min", k: int = 1) -> None:
        """Also keep the `k` checkpoints with the best `metric` in the last row before their save."""
        self._data.checkpoints.keep_best(metric, mode, k)

    def keep_every(self, n: int) -> None:
        """Also keep checkpoints whose time-step is a multiple of `n`."""
        self._data.checkpoints.keep_every(n)

    def save_checkpoint(
        self,
        model_dict: object = None,
        related_variable: Mapping[str, Any] | None = None,
        checkpoint_name: str = CHECKPOINT_NAME,
    ) -> None:
        """Save a checkpoint of the current time-step; on return it survives SIGKILL.

        With RLA_MODE=disabled and on ranks above 0 only the newest of each name is kept, of up to
        512 MiB, in a temporary file that goes with the process.

        Args:
            model_dict: tensors, state dicts, containers of them, or whatever pickles; with
                TensorFlow a dict of trackable objects.
            related_variable: kept as custom data (mode replace; see `add_custom_data`).
            checkpoint_name: each name has its own series and retention.

        Raises:
            NotConfiguredError: no run is open.
            MissingExtraError: PyTorch, in whose format checkpoints are, is not installed.
            ArgumentError: the name cannot be a file name, or something cannot be kept.
        """
        with self.active():
            self._data.checkpoints.save(model_dict, related_variable, checkpoint_name)

    def load_checkpoint(
        self,
        ckp_index: int | str | None = None,
        checkpoint_name: str = CHECKPOINT_NAME,
        model_dict: Mapping[str, Any] | None = None,
        *,
        trust: bool = False,
    ) -> tuple[int, Any]:
        """The checkpoint of time-step `ckp_index`, or the one that was saved last: (time-step, content).

        Args:
            ckp_index: a time-step; None takes the one that was saved last.
            checkpoint_name: the series.
            model_dict: TensorFlow: the objects that were saved; they are restored in place, and are
                the content. Without it that is {variable path: array}.
            trust: allow whole objects in a file that this run did not write here (a fork's, another run's,
                one from the master). Otherwise such a file may hold only tensors, arrays and plain data:
                loading anything else runs code that the file names.

        Raises:
            ArgumentError: `ckp_index` is no number.
            NoCheckpointError: there is none.
            UntrustedCheckpointError: it holds objects, is not this run's own, and `trust` is False.
        """
        with self.active():
            return self._data.checkpoints.load(ckp_index, checkpoint_name, model_dict, trust=trust)

    def save_sharded(
        self,
        state: Mapping[str, Any],
        name: str = CHECKPOINT_NAME,
        per_rank: object = None,
        metrics: Mapping[str, float] | None = None,
    ) -> ShardedSave:
        """Save a checkpoint of tensors that lie on several ranks; all ranks call it at the same time-steps.

        The call waits for one copy of what this rank holds; a thread writes it. The checkpoint is there once
        the parts of all ranks are durable, and not before: see docs/how-to/distributed.md.

        Args:
            state: tensors (DTensor, ShardedTensor or plain), state dicts, lists of them, objects; a value
                with `state_dict()` and `load_state_dict()` stands for its state.
            name: each name has its own series and retention.
            per_rank: what is this rank's alone, such as its random generators or the place in its data; it
                comes back where as many ranks load.
            metrics: what `keep_best` compares; by default the numbers of the last row. Rank 0's count.

        Returns:
            A handle: `wait("local")` is True once this rank's part is durable, `wait("whole")` once the
            checkpoint can be loaded; `problem` says why not.

        Raises:
            NotConfiguredError: no run is open.
            MissingExtraError: PyTorch is not installed.
            ArgumentError: the name cannot be a file name, something cannot be kept, or torch.distributed is
                not initialised in a job of several ranks.
        """
        with self.active():
            return self._data.checkpoints.save_sharded(state, name, per_rank, metrics)

    def load_sharded(
        self,
        into: dict[str, Any],
        step: int | None = None,
        name: str = CHECKPOINT_NAME,
        *,
        trust: bool = False,
    ) -> tuple[int, Any]:
        """Load a whole sharded checkpoint in place, at any number of ranks; all ranks call it.

        Args:
            into: the state as it is to be, of the run's tensors on the devices and meshes of now.
            step: a time-step; None takes the whole checkpoint that was saved last.
            name: the series.
            trust: allow whole objects in one that this run did not write here; see `load_checkpoint`.

        Returns:
            (time-step, `per_rank` of this rank); None for that where another number of ranks saved.

        Raises:
            NoCheckpointError: none is whole; the message says what is missing of the others.
            FetchError: the master has it, and a machine could not get it from there.
            UntrustedCheckpointError: it holds objects, is not this run's own, and `trust` is False; or its
                `.metadata` is not what torch writes.
            ArgumentError: `into` does not fit.
        """
        with self.active():
            return self._data.checkpoints.load_sharded(into, step, name, trust=trust)

    def checkpoint_status(self, name: str | None = None) -> list[ShardedStatus]:
        """The sharded checkpoints of the run, whole or not, of one series or of all.

        `print` of one says what is missing: `checkpoint_200: 6 of 8 shards; missing: rank 3, 7 (node-b)`.
        On ranks above 0 it is empty before the first `save_sharded` or `load_sharded`.
        """
        return self._data.checkpoints.sharded_status(name)

    def folder_of(self, kind: str) -> str:
        """Folder of the item of a kind.

        Raises:
            NotConfiguredError: no run is open.
        """
        return self._data.folder_of(kind)

    def archive_content(self) -> dict[str, Any]:
        """What the archive says beside the custom data."""
        return archive_content(self._data)

    def note_checkpoint(
        self,
        path: str | os.PathLike[str],
        step: float | None = None,
        metrics: Mapping[str, object] | None = None,
        *,
        marker: str = "",
    ) -> None:
        """Note a checkpoint that something else writes: `rla show` and the page list it, with its size.

        It stays where it is: it is never copied, loaded or deleted by the run.

        Args:
            path: folder or file; it may appear later.
            step: time-step; default: the run's.
            metrics: numbers by name, of an evaluation for instance.
            marker: file in the folder that its writer makes last, such as `.metadata`: the checkpoint is
                complete once that is there; default: once the path is there.

        Raises:
            ArgumentError: an argument is none of these.
        """
        with self.active():
            note_checkpoint(self._data, path, step, metrics, marker)

    def save_archive(self) -> None:
        """Write the archive: `pkl_file` and, with arrays among the custom data, the `.pt` beside it."""
        with self.active():
            save_archive(self._data)

    serialize_object_and_save = save_archive

    @property
    def archive_kind(self) -> str:
        """Kind of the archive in the database."""
        return ARCHIVE_TESTER

    def print_log_dir(self) -> None:
        """Log where the run's data lie."""
        with self.active():
            tell_folders(self._data, logger.get_current(), echo=True)

    def log_files_gen(self, *, all_ranks: bool = False, join: str = "", role: str = "") -> None:
        """Open the run: folders, parameter files, stream. Returns without waiting for the agent.

        With RANK, SLURM_PROCID or an MPI rank above 0 no item is made and records are dropped,
        unless `all_ranks` lets this rank join the run of rank 0.

        Args:
            all_ranks: see above.
            join: the address of a run that another process opened, on this machine or another one, to take
                part in that one; see `rla_client.join`.
            role: of this process, with `join`.

        Raises:
            NotConfiguredError: `configure` was not called.
            ArgumentError: the data root cannot be written; with `all_ranks`, nothing tells which job this
                rank belongs to; `join` is no address, or `role` no role.
            NoSuchRunError: the run of `join` cannot be joined.
        """
        opens = None if not join else partial(open_by_address, address=join, role=role)
        self._open(all_ranks=all_ranks, opens=opens)

    def _open(self, *, all_ranks: bool, opens: Callable[[RunData], None] | None = None) -> None:
        if opens is None:
            open_run(self._data, all_ranks=all_ranks)
        else:
            opens(self._data)

    def _reopen(self, item: ItemFolders) -> Run:
        return reopen(self._data, item)

    def flush(self, timeout: float | None = 10.0) -> bool:
        """As `logger.flush`, for this run, also after its end; `timeout` in seconds."""
        end_given_up()
        return self._flush(timeout, media=True)

    def flush_rows(self, timeout: float | None = 10.0) -> bool:
        """As `logger.flush_rows`: `flush` without figures, images and videos; `timeout` in seconds."""
        return self._flush(timeout, media=False)

    def _flush(self, timeout: float | None, *, media: bool) -> bool:
        if self.run is not None:
            return self.run.logger.flush(timeout, media=media)
        ended = self._data.ended  # of a fork's parent: that flushes it
        return ended is None or ended[1] != os.getpid() or ended[0].flush(timeout, media=media)

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

    def close(self, status: EndStatus = "finished", reason: str = "") -> None:
        """End the run now instead of at interpreter exit.

        Args:
            status: `finished`, `interrupted` (somebody stopped it on purpose) or `failed`.
            reason: why.

        Raises:
            ArgumentError: another status.
        """
        if status not in get_args(EndStatus):
            raise ArgumentError(f"close() takes status 'finished', 'interrupted' or 'failed', got {status!r}")
        end_given_up()
        end_run(self._data, status, reason)

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
        data.custom.take(found.custom_data)
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
        data.item = ItemFolders(os.path.abspath(root), item.table, item.index, item.opened)
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
        with self.active():
            fork(self._data, source_tester._data)

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
        with self._resuming():
            name, step = resume(self._next_data, run, at, checkpoint_name)
            if step is None:
                return 0, None
            content = self.load_checkpoint(step, name, trust=trust)[1]
            self._data.checkpoints.restore_random_state()
            return step, content

    time_record = staticmethod(time_tracker.time_record)
    time_record_end = staticmethod(time_tracker.time_record_end)

    def update_fph(self, cum_epochs: float) -> None:
        """Record epochs per hour since the first call as `fph` and write the row.

        Args:
            cum_epochs: epochs done so far.
        """
        with self.active():
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

    def add_summary_to_logger(
        self, summary: object, name: str = "", simple_val: bool = False, freq: int = 20
    ) -> None:
        """RLA's older name of `logger.log_from_tf_summary`; only `summary` has an effect."""
        with self.active():
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

    def add_graph(self, /, sess: object, *args: object, **kwargs: object) -> None:
        """Put a graph into TensorBoard: that of a tensorflow session, or as tensorboardX's `add_graph`.

        Raises:
            ArgumentError: `tensorboard` is not among the outputs.
        """
        with self.active():
            from rla_client.run.record.summary_writer import send_graph  # noqa: PLC0415 - tensorboardX is slow to import

            send_graph(logger.get_current(), sess, *args, **kwargs)

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

    @contextmanager
    def _configuring(self) -> Iterator[None]:
        with run_scope.opening():
            if not run_scope.current().is_free():
                following = current_data().successor()
                current_data.put(following, following.scope)
                following.enter()
            yield
            if current_data().next_setup is None:  # else it is the script's as soon as it is opened
                current_data().of_adapter = False

    def _open(self, *, all_ranks: bool, opens: Callable[[RunData], None] | None = None) -> None:
        data = current_data()
        if data.is_held or data.next_setup is not None or not run_scope.current().is_free():
            open_beside(data, data.successor(), all_ranks=all_ranks, opens=opens)
        elif opens is None:
            open_run(data, all_ranks=all_ranks)
        else:
            opens(data)

    @contextmanager
    def _resuming(self) -> Iterator[None]:
        former = current_data()
        yield
        if former.next_setup is not None:
            former.next_setup = None
            give_way(former)


current_data: run_scope.PerScope[RunData] = run_scope.PerScope(
    lambda: RunData(RunSetup())
)  # of `exp_manager`


def open_beside(
    former: RunData,
    following: RunData,
    *,
    all_ranks: bool = False,
    opens: Callable[[RunData], None] | None = None,
) -> None:
    """Open the run of `following` as that of `exp_manager`; this thread's former one gives way to it.

    `opens` does so in the place of `open_run`.
    """
    current_data.put(following, following.scope)
    if former.run is not None and former.scope.is_free():
        setup, then = following.setup, former.setup
        continues = setup.resume_mode != "never" and setup.run_id == then.run_id is not None
        if continues and setup.task_table_name == then.task_table_name:
            end_run(former, "finished", "")  # the same run goes on
        give_way(former)
    if opens is None:
        open_run(following, all_ranks=all_ranks)
    else:
        opens(following)
    former.next_setup = None


exp_manager: ExpManager = _Current()


def _the_manager() -> ExpManager:
    """What the handle of a run is in another process."""
    return exp_manager


tester = exp_manager
Tester = ExpManager
