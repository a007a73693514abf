"""Attributes of `exp_manager`.

Scripts read and set them by the names of RLA's `tester`. Those of the configuration concern the next run,
those of the data the open one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rla_client.run.run_data import RunData

if TYPE_CHECKING:
    from datetime import datetime

    import tensorboardX

    from rla_client.config.schema import Config
    from rla_client.run.configure import ResumeMode, RunSetup
    from rla_client.run.record.excluded_sinks import Row
    from rla_client.run.run import Run


class RunAttributes:
    """The attributes of `ExpManager`."""

    _data: RunData  # of the open run, or of the loaded one
    _setup: RunSetup  # the setup that the run was opened with, or of the next run

    @property
    def _next_setup(self) -> RunSetup:
        return self._setup

    @property
    def task_table_name(self) -> str | None:
        """Table of the run."""
        return self._setup.task_table_name

    @task_table_name.setter
    def task_table_name(self, value: str | None) -> None:
        self._next_setup.task_table_name = value

    @property
    def data_root(self) -> str | None:
        """Folder of the database."""
        return self._setup.data_root

    @data_root.setter
    def data_root(self, value: str | None) -> None:
        self._next_setup.data_root = value

    @property
    def config(self) -> Config | None:
        """The configuration, checked."""
        return self._setup.config

    @config.setter
    def config(self, value: Config | None) -> None:
        self._next_setup.config = value

    @property
    def private_config(self) -> dict[str, Any] | None:
        """The configuration as the user wrote it."""
        return self._setup.private_config

    @private_config.setter
    def private_config(self, value: dict[str, Any] | None) -> None:
        self._next_setup.private_config = value

    @property
    def project_root(self) -> str | None:
        """Folder that the code backup starts from."""
        return self._setup.project_root

    @project_root.setter
    def project_root(self, value: str | None) -> None:
        self._next_setup.project_root = value

    @property
    def run_file(self) -> list[str]:
        """Files that are backed up beside the code."""
        return self._setup.run_file

    @run_file.setter
    def run_file(self, value: list[str]) -> None:
        self._next_setup.run_file = value

    @property
    def ignore_file_path(self) -> str | None:
        """File of gitignore rules for the code backup."""
        return self._setup.ignore_file_path

    @ignore_file_path.setter
    def ignore_file_path(self, value: str | None) -> None:
        self._next_setup.ignore_file_path = value

    @property
    def is_master_node(self) -> bool:
        """Whether this machine is the master, so that the run is not replicated."""
        return self._setup.is_master_node

    @is_master_node.setter
    def is_master_node(self, value: bool) -> None:
        self._next_setup.is_master_node = value

    @property
    def dl_framework(self) -> str | None:
        """Framework of the checkpoints, `torch` or `tensorflow`."""
        return self._setup.dl_framework

    @dl_framework.setter
    def dl_framework(self, value: str | None) -> None:
        self._next_setup.dl_framework = value

    @property
    def log_callback_fn(self) -> Callable[[Row], object] | None:
        """Function that is called with each dumped row."""
        return self._setup.log_callback_fn

    @log_callback_fn.setter
    def log_callback_fn(self, value: Callable[[Row], object] | None) -> None:
        self._next_setup.log_callback_fn = value

    @property
    def log_name_format_version(self) -> str | None:
        """Version of the index's spelling; see `get_version_num`."""
        return self._setup.log_name_format_version

    @log_name_format_version.setter
    def log_name_format_version(self, value: str | None) -> None:
        self._next_setup.log_name_format_version = value

    @property
    def run_id(self) -> str | None:
        """Name of the run for a later process."""
        return self._setup.run_id

    @run_id.setter
    def run_id(self, value: str | None) -> None:
        self._next_setup.run_id = value

    @property
    def resume_mode(self) -> ResumeMode:
        """Whether a run of that name is continued."""
        return self._setup.resume_mode

    @resume_mode.setter
    def resume_mode(self, value: ResumeMode) -> None:
        self._next_setup.resume_mode = value

    @property
    def record_date(self) -> datetime | None:
        """Time in the run's index."""
        return self._setup.record_date

    @record_date.setter
    def record_date(self, value: datetime | None) -> None:
        self._next_setup.record_date = value

    @property
    def info(self) -> str | None:
        """Tracked hyper-parameters in the run's index, `&key=value` each."""
        return self._setup.info

    @info.setter
    def info(self, value: str | None) -> None:
        self._next_setup.info = value

    @property
    def hyper_param(self) -> dict[str, Any]:
        """Hyper-parameters by name."""
        return self._setup.hyper_param

    @hyper_param.setter
    def hyper_param(self, value: dict[str, Any]) -> None:
        self._next_setup.hyper_param = value

    @property
    def loaded_record(self) -> list[str]:
        """What a loaded run tracked, `key=value` each."""
        return self._setup.loaded_record

    @loaded_record.setter
    def loaded_record(self, value: list[str]) -> None:
        self._next_setup.loaded_record = value

    @property
    def hyper_param_record(self) -> list[str]:
        """Tracked hyper-parameters as `key=value`, in the order added."""
        return self._setup.hyper_param_record

    @hyper_param_record.setter
    def hyper_param_record(self, value: list[str]) -> None:
        self._next_setup.hyper_param_record = value

    @property
    def task_name(self) -> str | None:
        """Table of the run, as RLA called it until 2022."""
        return self._setup.task_name

    @property
    def root(self) -> str | None:
        """Folder of the database, as RLA called it until 2022."""
        return self._setup.root

    @property
    def ipaddr(self) -> str:
        """Address in the run's index."""
        return self._setup.ipaddr

    @property
    def run(self) -> Run | None:
        """The open run's stream; None before `log_files_gen` and for a loaded run."""
        return self._data.run

    @property
    def custom_data(self) -> dict[str, Any]:
        """Custom data by key; see `add_custom_data`."""
        return self._data.custom.values

    @custom_data.setter
    def custom_data(self, value: dict[str, Any]) -> None:
        self._data.custom.values = value

    @property
    def max_to_keep(self) -> int | None:
        """How many checkpoints of each name are kept; None: all."""
        return self._data.checkpoints.max_to_keep

    @max_to_keep.setter
    def max_to_keep(self, value: int | None) -> None:
        self._data.checkpoints.max_to_keep = value

    @property
    def resumed_from(self) -> int | None:
        """Time-step of the checkpoint that the run was resumed from; None without one."""
        return self._data.resumed_from

    @resumed_from.setter
    def resumed_from(self, value: int | None) -> None:
        self._data.resumed_from = value

    @property
    def resumed(self) -> bool:
        """Whether the open run continues where an earlier process left it."""
        return self._data.resumed

    @property
    def last_record_fph_time(self) -> float | None:
        """Monotonic time in seconds of the first `update_fph`."""
        return self._data.last_record_fph_time

    @last_record_fph_time.setter
    def last_record_fph_time(self, value: float | None) -> None:
        self._data.last_record_fph_time = value

    @property
    def last_time_step(self) -> int | float | None:
        """Of a loaded run: the time-step of its last row, where its run.json tells it."""
        return self._data.last_time_step

    @property
    def writer(self) -> tensorboardX.SummaryWriter | None:
        """See `logger.get_tbx_writer`; None where no run is open or it has no TensorBoard."""
        return self._data.writer

    @property
    def log_dir(self) -> str | None:
        """Folder of rows and text; ends with a slash, None before `log_files_gen`."""
        return self._data.log_dir

    @property
    def results_dir(self) -> str | None:
        """Folder of figures and other results."""
        return self._data.results_dir

    @property
    def code_dir(self) -> str | None:
        """Folder of the code of the run."""
        return self._data.code_dir

    @property
    def checkpoint_dir(self) -> str | None:
        """Folder of the checkpoints."""
        return self._data.checkpoint_dir

    @property
    def hyperparameter_dir(self) -> str | None:
        """Folder of the hyper-parameters."""
        return self._data.hyperparameter_dir

    @property
    def hyparameter_dir(self) -> str | None:
        """`hyperparameter_dir` in its historic spelling."""
        return self._data.hyparameter_dir

    @property
    def tmp_data_dir(self) -> str | None:
        """Folder of data that may be thrown away."""
        return self._data.tmp_data_dir

    @property
    def pkl_file(self) -> str | None:
        """Archive of the run (JSON; the name is RLA's); of a run of RLA's, its pickle."""
        return self._data.pkl_file

    @property
    def pkl_dir(self) -> str | None:
        """Folder of `pkl_file`."""
        return self._data.pkl_dir
