"""exp_manager: one experiment from its configuration to its end (RLA's `tester`).

    exp_manager.configure("demo_task", rla_config="rla_config.yaml", data_root="data")
    exp_manager.set_hyper_param(**kwargs)
    exp_manager.add_record_param(["env_id", "optimizer.lr"])
    exp_manager.log_files_gen()

`log_files_gen` makes the item's folders, opens its stream and returns; nothing waits for the
agent. Names, arguments and files are those of polixir/RLAssistant.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client import logger
from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    CHECKPOINT,
    CODE,
    FOLDER_KINDS,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    TMP_DATA,
    make_info,
)
from rla_client.contract.paths import find_places
from rla_client.resume.disabled import NowhereRuns
from rla_client.run.data import CHECKPOINT_NAME
from rla_client.run.item import Item, create_item, parameter_file, write_parameters
from rla_client.run.profiling import Measuring
from rla_client.run.ranks import publish
from rla_client.run.run import MODE_VARIABLE, Run, disabled, make_opening, open_run, rank
from rla_client.run.trackers import clear_time
from rla_client.stream.clock import time_step_holder
from rla_client.stream.values import plain_hyper_param

if TYPE_CHECKING:
    import tensorboardX

    from rla_client.config.schema import Config
    from rla_client.resume.remote import Chained
    from rla_client.resume.resume import ResumePoint
    from rla_client.run.recording import Logger


class ExpManager(Measuring, NowhereRuns):
    """The experiment of this process. `rla_client.exp_manager` is the one that everybody uses."""

    # -- the run ------------------------------------------------------------------------------

    def log_files_gen(self, *, all_ranks: bool = False) -> None:
        """Open the run: folders, parameter files, stream. Returns without waiting for the agent.

        With RANK, SLURM_PROCID or an MPI rank above 0 no item is made and records are dropped,
        unless `all_ranks` lets this rank join the run of rank 0.

        Raises:
            NotConfiguredError: `configure` was not called.
            ArgumentError: the data root cannot be written.
        """
        table, config, root = self._configured()
        self._end_run("finished", "")
        if self.record_date is not None:
            time_step_holder.clear()
        clear_time()
        secrets = self._secrets()
        self.info = make_info((name, secrets.value(name, value)) for name, value in self._tracked)
        if disabled() or rank() > 0:
            self._open_nowhere(config, all_ranks=all_ranks)
            return
        here = self._unfinished_here(root, table, config)
        chained = self._find_elsewhere(root, table, config, here)
        if here is not None and chained is None:
            point, chained = self._resume_point(root, table, config, here)
            if point is not None:
                self._go_on(point)
                return
        item = create_item(root, table, self.info, self.ipaddr)
        shown = secrets.parameters(self.hyper_param)
        name, content = parameter_file(shown)
        write_parameters(item, name, content)
        chained = self._with_checkpoint(chained, item)
        self._run = self._open(item, config, **({} if chained is None else {"parent": chained.link}))
        for kind in (CODE, LOG, HYPARAMETER):
            self._run.file(kind, name, content)
        self._run.mark("hyper_param", plain_hyper_param(shown))
        self.save_archive()
        self._bind_recorders(item)
        self._capture_code(item, config)
        resumed = None if chained is None else (CHECKPOINT_NAME, chained.time_step)
        publish(item.root, table, self._run.opening, config.log_used, resumed)
        self._say_where(item)
        if chained is not None:
            self._take_up(chained)

    def _unfinished_here(self, root: str, table: str, config: Config) -> Item | None:
        """The unfinished run of this run_id, if going on is asked for and there is one.

        Raises:
            RlaError: `resume='must'`, and one waits in the spool for want of an agent.
            StillWritingError: a living process writes it.
        """
        if self.resume_mode == "never" or self.run_id is None:
            return None
        from rla_client.resume.resume import find_here  # noqa: PLC0415

        found, late = find_here(root, table, self.run_id, autostart=config.agent.autostart)
        if late:
            message = f"the run {self.run_id!r} waits in the spool and cannot be gone on with: {late}"
            self._give_way(RlaError(message), "A new run begins")
        return found

    def _give_way(self, error: Exception, then: str) -> None:
        """What agent or disk do not allow is a warning with `resume='allow'`, an error with `must`."""
        if self.resume_mode == "must":
            raise error
        logger.warn(f"{error}. {then}; resume='must' would have ended here instead")

    def _resume_point(
        self, root: str, table: str, config: Config, item: Item
    ) -> tuple[ResumePoint | None, Chained | None]:
        """Where to go on: in the run itself, or with `allow` in a new item, from what is on the disk.

        Raises:
            StillWritingError: a living process writes it.
            RlaError: `resume='must'`, and the run cannot be gone on with in place.
        """
        from rla_client.resume.earlier_streams import StillWritingError  # noqa: PLC0415
        from rla_client.resume.remote import chain_here  # noqa: PLC0415
        from rla_client.resume.resume import prepare  # noqa: PLC0415

        try:
            point = prepare(root, table, item, None, CHECKPOINT_NAME, autostart=config.agent.autostart)
        except StillWritingError:
            raise
        except (RlaError, OSError) as error:
            chained = chain_here(item)
            step = "" if chained is None else f", from {CHECKPOINT_NAME}_{chained.time_step}.pt"
            self._give_way(error, f"A new run begins{step}")
            return None, chained
        return point, None

    def _find_elsewhere(self, root: str, table: str, config: Config, here: Item | None) -> Chained | None:
        """The unfinished run of this run_id that another machine began, its checkpoint brought here.

        Raises:
            ArgumentError: `resume='must'`, and there is none here or on the master.
            FetchError: see `elsewhere.find_elsewhere`.
        """
        if self.resume_mode == "never" or self.run_id is None:
            return None
        from rla_client.resume.remote import find_elsewhere  # noqa: PLC0415 - rarely needed

        must = self.resume_mode == "must" and here is None
        found = None
        if not self.is_master_node and os.environ.get(MODE_VARIABLE, "").lower() != "offline":
            found = find_elsewhere(root, table, self.run_id, config, must=must, known=here)
        if found is None and must:
            where = " or on the master" if config.send_log_file else ""
            message = (
                f"resume='must', but table {table!r} of {root}{where} has no unfinished run {self.run_id!r}"
            )
            raise ArgumentError(message)
        return found

    def _with_checkpoint(self, chained: Chained | None, item: Item) -> Chained | None:
        """Put the checkpoint of an earlier run into the new item; None, after a warning, where that fails.

        Raises:
            OSError: `resume='must'`, and the disk is full, or the like.
        """
        if chained is None:
            return None
        from rla_client.resume.remote import take_checkpoint  # noqa: PLC0415

        try:
            take_checkpoint(chained, item)
        except OSError as error:
            self._give_way(error, "A new run begins")
            return None
        return chained

    def _take_up(self, chained: Chained) -> None:
        self._tell_changes(self._changes_since(chained.parent), chained.time_step)
        self._restore_state(chained.state, chained.time_step, chained.parent)
        at = f"checkpoint_{chained.time_step}.pt of {chained.parent.index.path}"
        logger.get_current().log(f"[RESUME] {time_step_holder.get_time()} : from {at}", echo=False)
        logger.backup(f"resumed from {at}, begun on {chained.link.get('host')}")
        self._restore_random_state()

    def _open_continuing(self, point: ResumePoint) -> None:
        table, config, _root = self._configured()
        self._end_run("finished", "")
        clear_time()
        self._run = self._open(
            point.item, config, run=point.run, epoch=point.epoch, continues=point.continues
        )
        resumed = point.name, point.time_step
        publish(point.item.root, table, self._run.opening, config.log_used, resumed)
        self._run.mark("hyper_param", plain_hyper_param(self._secrets().parameters(self.hyper_param)))
        self._bind_recorders(point.item)
        self._say_where(point.item)

    def _open(self, item: Item, config: Config, **continuing: Any) -> Run:  # noqa: ANN401
        self._item, self._nowhere = item, None
        self.record_date = item.opened
        opening = make_opening(
            root=item.root,
            folders={
                **{kind: item.relative(kind) for kind in FOLDER_KINDS},
                ARCHIVE_TESTER: os.path.dirname(item.relative(ARCHIVE_TESTER)),
            },
            sinks=config.log_used,
            names={},
            item={
                "table": item.table,
                "index": item.index.path,
                "master": self.is_master_node,
                "run_key": self.run_id or "",
                "replicate": config.send_log_file and not self.is_master_node,
                **continuing,
            },
            config_path=config.path,
        )
        run = open_run(opening, config.log_used, config.agent, callback=self.log_callback_fn)
        run.logger.secrets = self._secrets()
        logger.set_current(run.logger)
        return run

    def _say_where(self, item: Item) -> None:
        run = self._run
        if run is None:
            return
        run.logger.print_text(f"rla: this run lies in {item.folder(LOG)}\n")
        self._tell_folders(run.logger)

    def _tell_folders(self, to: Logger, *, echo: bool = False) -> None:
        for name in ("log_dir", "pkl_file", "checkpoint_dir", "results_dir", "tmp_data_dir"):
            to.log(f"{name.replace('log_dir', 'log dir')}: {getattr(self, name)}", echo=echo)

    def flush(self, timeout: float | None = 10.0, *, media: bool = True) -> bool:
        """See `logger.flush`."""
        outbox = None if self._run is None else self._run.outbox
        if self._run is not None:
            self._run.logger.write_scalars()
        return True if outbox is None else outbox.flush(timeout, media=media)

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
        from rla_client.run.replication import replicate_now  # noqa: PLC0415 - not at import of the package

        del skip_error
        sends = self.config is not None and self.config.send_log_file
        return sends and replicate_now(self._run, wait=wait, timeout=timeout)

    def close(self, status: str = "finished", reason: str = "") -> None:
        """End the run now instead of at interpreter exit.

        Args:
            status: `finished`, `interrupted` (somebody stopped it on purpose) or `failed`.
            reason: why.

        Raises:
            ArgumentError: another status.
        """
        if status not in {"finished", "interrupted", "failed"}:
            message = f"close() takes status 'finished', 'interrupted' or 'failed', got {status!r}"
            raise ArgumentError(message)
        self._end_run(status, reason)

    def _bind_recorders(self, item: Item) -> None:
        from rla_client.media.jobs import RecordingTarget, bind  # noqa: PLC0415 - not at import of the package

        run = self._run
        outbox = None if run is None else run.outbox
        bind(RecordingTarget(Path(item.folder(OTHER_RESULTS)), outbox, logger.warn))

    def _capture_code(self, item: Item, config: Config) -> None:
        """Capture code and environment; whatever goes wrong is a warning."""
        from rla_client.code.backup import back_up_code  # noqa: PLC0415 - not at import of the package
        from rla_client.code.environment import EnvironmentCapture  # noqa: PLC0415
        from rla_client.code.select import BackupPlan  # noqa: PLC0415

        run = self._run
        if run is None or self.project_root is None:
            return
        root = Path(self.project_root)
        capture = EnvironmentCapture(root, secrets=self._secrets())
        backup = config.backup_config
        found = self._found_code
        if found is not None:
            logger.warn(found.told())
        plan = BackupPlan(
            code_root=root,
            lib_mode=config.project_type.backup_code_by == "lib",
            code_dirs=backup.backup_code_dir if found is None else found.code_dirs(),
            lib_dir=backup.lib_dir,
            run_files=tuple(self.run_file),
            ignore_file=None if self.ignore_file_path is None else Path(self.ignore_file_path),
            ignore_rules=backup.ignore_code_paths,
            data_roots=(Path(item.root), find_places().state),  # reading a spool lock would drop it
            secrets=config.secret_files,
            sources_only=found is not None,
        )
        report = back_up_code(plan, run.outbox, Path(item.folder(CODE)), logger.warn)
        capture.write(lambda content: run.file(LOG, "environment.json", content), report)

    def print_log_dir(self) -> None:
        """Log where the run's data lie."""
        self._tell_folders(logger.get_current(), echo=True)

    def add_summary_to_logger(
        self,
        summary: Any,  # noqa: ANN401 - a tensorflow object, or bytes
        name: str = "",
        simple_val: bool = False,
        freq: int = 20,
    ) -> None:
        """RLA's older name of `logger.log_from_tf_summary`; only `summary` has an effect."""
        del name, simple_val, freq
        logger.log_from_tf_summary(summary)

    @staticmethod
    def dict_to_table_text_summary(input_dict: Mapping[Any, Any], name: str) -> bytes:
        """A Summary, serialised, that shows a dict as a table of text `name`; see `add_summary_to_logger`."""
        from rla_client.media.summary_writer import table_summary  # noqa: PLC0415 - tensorboardX is slow to import

        return table_summary(input_dict, name)

    @staticmethod
    def add_graph(sess: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - a tensorflow or torch object
        """Put a graph into TensorBoard: that of a tensorflow session, or as tensorboardX's `add_graph`.

        Raises:
            ArgumentError: `tensorboard` is not among the outputs.
        """
        from rla_client.run.tensorboard import send_graph  # noqa: PLC0415 - tensorboardX is slow to import

        send_graph(logger.get_current(), sess, *args, **kwargs)

    # -- clock --------------------------------------------------------------------------------

    def get_timestep(self) -> int | float:
        """The run's time-step."""
        return time_step_holder.get_time()

    get_timstep = get_timestep  # as RLA spells it

    def set_timestep(self, t: float) -> None:
        """Set the run's time-step."""
        time_step_holder.set_time(t)

    # -- where --------------------------------------------------------------------------------

    @property
    def run(self) -> Run | None:
        """The open run."""
        return self._run

    @property
    def writer(self) -> tensorboardX.SummaryWriter | None:
        """See `logger.get_tbx_writer`; None where no run is open or it has no TensorBoard."""
        if self._run is None or "tensorboard" not in self._run.logger.sinks:
            return None
        from rla_client.run.tensorboard import tbx_writer  # noqa: PLC0415 - tensorboardX is slow to import

        return tbx_writer(self._run.logger)

    @property
    def log_dir(self) -> str | None:
        """Rows and text; ends with a slash, None before `log_files_gen`."""
        return self._folder(LOG)

    @property
    def results_dir(self) -> str | None:
        """Figures and other results."""
        return self._folder(OTHER_RESULTS)

    @property
    def code_dir(self) -> str | None:
        """The code of the run."""
        return self._folder(CODE)

    @property
    def checkpoint_dir(self) -> str | None:
        """Checkpoints."""
        return self._folder(CHECKPOINT)

    @property
    def hyperparameter_dir(self) -> str | None:
        """Hyper-parameters."""
        return self._folder(HYPARAMETER)

    hyparameter_dir = hyperparameter_dir  # the historic spelling

    @property
    def tmp_data_dir(self) -> str | None:
        """Data that may be thrown away."""
        return self._folder(TMP_DATA)

    @property
    def pkl_file(self) -> str | None:
        """Archive of this manager's data (JSON; the name is RLA's); of a run of RLA's, its pickle."""
        place = self._place_of_files()
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

    @property
    def archive_kind(self) -> str:
        """Kind of the archive in the database."""
        return ARCHIVE_TESTER


exp_manager = ExpManager()
tester = exp_manager
Tester = ExpManager
