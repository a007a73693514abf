"""Configuration of the next run.

It opens no run; `open_run` does, with this configuration.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, get_args

from rla_client.contract.errors import ArgumentError, NotConfiguredError, UnknownParameterError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import LOG_NAME_FORMAT_VERSION
from rla_client.contract.process.descriptors import grow_soon
from rla_client.contract.run_index import NO_IP, RunIndex, make_info
from rla_client.contract.safe_names import check_table_name
from rla_client.contract.text.spelling import near
from rla_client.run.current_logger import backup, get_current, warn
from rla_client.run.opening_frame import check_path
from rla_client.run.record.excluded_sinks import Row
from rla_client.run.record.run_logger import BACKUP
from rla_client.stream.clock import TimeStepHolder, time_step_holder
from rla_client.stream.param_values import name_of, plain_hyper_param
from rla_client.stream.values import text_of

if TYPE_CHECKING:
    from rla_client.code.find_code import FoundCode
    from rla_client.code.run_secrets import Secrets
    from rla_client.config.schema import Config

RUN_ID_VARIABLE, RESUME_VARIABLE = "RLA_RUN_ID", "RLA_RESUME"
PROBE_ADDRESS = ("192.0.2.1", 80)  # TEST-NET: nothing is sent, the kernel only picks the interface
MOST_LISTED = 30  # names in one message
RLA_SECTIONS = frozenset({
    "PROJECT_TYPE", "BACKUP_CONFIG", "LOG_USED", "DL_FRAMEWORK", "SEND_LOG_FILE", "REMOTE_SETTING",
})  # fmt: skip
ResumeMode: TypeAlias = Literal["never", "allow", "must"]
_EXPECTED = {
    "task_table_name": "the name of a task table",
    "rla_config": "the path of your rla_config.yaml, or a dict of its shape; `rla init` writes one",
    "data_root": "the folder that the runs go into",
}


T = TypeVar("T")


class ConfigureArguments(TypedDict, total=False):
    """Arguments of `exp_manager.configure` that are passed on as they are."""

    run_id: str | None
    resume: ResumeMode | None
    console: bool | None
    run_file: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
    ignore_file_path: str | os.PathLike[str] | None
    log_callback_fn: Callable[[Row], object] | None
    is_master_node: bool


class RunSetup:
    """Configuration and hyper-parameters of the next run, or those in the files of a loaded one."""

    def __init__(self) -> None:
        self.time_step_holder: TimeStepHolder = time_step_holder
        self.hyper_param: dict[str, Any] = {}
        self.log_name_format_version: str | None = LOG_NAME_FORMAT_VERSION
        self.task_table_name: str | None = None
        self.data_root: str | None = None
        self.private_config: dict[str, Any] | None = None
        self.config: Config | None = None
        self.record_date: datetime | None = None
        self.info: str | None = None
        self.is_master_node = False
        self.run_file: list[str] = []
        self.ignore_file_path: str | None = None
        self.project_root: str | None = None
        self.found_code: FoundCode | None = None
        self.dl_framework: str | None = None
        self.log_callback_fn: Callable[[Row], object] | None = None
        self.tracked: list[tuple[str, object]] = []
        self.named = 0  # number of them in the index of the newest run
        self.loaded_record: list[str] = []  # of a loaded run: its tracked parameters, as `key=value`
        self.address: str | None = None
        self.run_id: str | None = None
        self.resume_mode: ResumeMode = "never"
        self.keeps_console = False

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
    ) -> None:
        """See `ExpManager.configure`."""
        grow_soon()
        from rla_client.config.schema import load_config  # noqa: PLC0415 - not at import of the package

        given = {"task_table_name": task_table_name, "rla_config": rla_config, "data_root": data_root}
        missing = [name for name, value in given.items() if value is None]
        if missing:
            what = "; ".join(f"{name} is {_EXPECTED[name]}" for name in missing)
            raise ArgumentError(f"configure() needs {', '.join(missing)}: {what}")
        source: Any = given["rla_config"]
        root: Any = given["data_root"]
        if not isinstance(source, (str, os.PathLike, Mapping)):
            raise ArgumentError(f"rla_config must be {_EXPECTED['rla_config']}, not {source!r:.100}")
        if isinstance(root, (str, os.PathLike)):
            check_path(root)
        table = check_table_name(given["task_table_name"])
        config = load_config(source)
        if isinstance(source, Mapping) and code_root is None and names_code(source):
            raise ArgumentError(
                "with rla_config as a dict that says what the code is, configure() needs code_root: "
                "the folder that its paths start from"
            )
        self.task_table_name = table
        self.config = config
        self.private_config = _raw_config(source)
        self.data_root = os.fspath(root)
        self.dl_framework = config.dl_framework
        if config.dl_framework == "tensorflow":
            _check_tensorflow(config)
        self.is_master_node = is_master_node
        self.ignore_file_path = None if ignore_file_path is None else _from_here(ignore_file_path)
        files = [run_file] if isinstance(run_file, (str, os.PathLike)) else run_file or ()
        self.run_file = [_from_here(path) for path in files]
        self.log_callback_fn = log_callback_fn
        self.run_id, self.resume_mode = named_run(run_id, resume)
        self.keeps_console = config.agent.console if console is None else console
        self.found_code = None
        if code_root is None and isinstance(source, Mapping):
            from rla_client.code.find_code import find_code  # noqa: PLC0415 - not at import of the package

            self.found_code = find_code()
            code_root = self.found_code.root
        folder = code_root if code_root is not None else Path(str(config.path)).parent
        self.project_root = os.path.abspath(folder)
        if get_current().folder is None:
            get_current().reminder = (
                "exp_manager.configure() was called, but not log_files_gen(): rows are printed and not kept"
            )

    def get_task_table_name(self) -> str:
        """See `ExpManager.get_task_table_name`."""
        return self.task_table_name or self.configured()[0]

    @property
    def task_name(self) -> str | None:
        """`task_table_name`, as RLA called it until 2022."""
        return self.task_table_name

    @property
    def root(self) -> str | None:
        """`data_root`, as RLA called it until 2022."""
        return self.data_root

    @property
    def ipaddr(self) -> str:
        """Address in the run's index."""
        if self.address is None:
            self.address = local_address()
        return self.address

    def get_version_num(self) -> str | None:
        """See `ExpManager.get_version_num`."""
        return self.log_name_format_version

    def log_name_formatter(self, prefix: str, record_date: datetime) -> str:
        """See `ExpManager.log_name_formatter`."""
        separators = {None: " ", LOG_NAME_FORMAT_VERSION: "_"}
        if self.log_name_format_version not in separators:
            raise RuntimeError(f"unknown version of the index's spelling: {self.log_name_format_version!r}")
        info = f"&{self.auto_parse_info()}" if self.info is None else self.info
        index = RunIndex.make(record_date, self.ipaddr, info)
        return f"{prefix}/{replace(index, separator=separators[self.log_name_format_version]).path}"

    def get_ignore_files(self, src: str | os.PathLike[str], names: Iterable[str]) -> list[str]:
        """See `ExpManager.get_ignore_files`."""
        if self.ignore_file_path is None:
            return []
        from rla_client.code.ignore_rules import ignored_names  # noqa: PLC0415 - not at import of the package

        root = Path(self.project_root or ".")
        return ignored_names(root, Path(self.ignore_file_path), Path(src), names)

    def configured(self) -> tuple[str, Config, str]:
        """Table, configuration and data root.

        Raises:
            NotConfiguredError: `configure` was not called.
        """
        if self.task_table_name is None or self.config is None or self.data_root is None:
            raise NotConfiguredError(
                "call exp_manager.configure(task_table_name, rla_config, data_root) first"
            )
        return self.task_table_name, self.config, self.data_root

    @property
    def starts_agent(self) -> bool:
        """Whether an agent may be started where none runs; also before `configure` was called."""
        return self.config is None or self.config.agent.autostart

    def set_hyper_param(self, /, **argkw: object) -> None:
        """See `ExpManager.set_hyper_param`."""
        self.hyper_param = argkw

    def update_hyper_param(self, k: str, v: object) -> None:
        """See `ExpManager.update_hyper_param`."""
        self.hyper_param[k] = v

    def add_record_param(self, keys: Iterable[str]) -> None:
        """See `ExpManager.add_record_param`."""
        if isinstance(keys, str):
            raise ArgumentError(f"add_record_param takes a list of names, e.g. add_record_param([{keys!r}])")
        found: list[tuple[str, object]] = []
        for key in keys:
            if key in self.hyper_param:
                found.append((key, self.hyper_param[key]))
            elif "." in key:
                try:
                    found.append((key, _reach(self.hyper_param, key)))
                except (KeyError, TypeError, AttributeError):
                    warn(f"hyper-parameter {key} is not set, so the run's index leaves it out")
            else:
                raise UnknownParameterError(_unknown(key, self.hyper_param))
        renewed = {key for key, _value in found}
        earlier = [pair for pair in self.tracked[: self.named] if pair[0] not in renewed]
        self.tracked, self.named = [*earlier, *self.tracked[self.named :], *found], len(earlier)

    def clear_record_param(self) -> None:
        """See `ExpManager.clear_record_param`."""
        self.tracked, self.named = [], 0

    @property
    def hyper_param_record(self) -> list[str]:
        """Tracked hyper-parameters as `key=value`, in the order added."""
        secrets = self.secrets()
        shown = ((name, name_of(secrets.value(name, value))) for name, value in self.tracked)
        return self.loaded_record or [make_info([pair])[1:] for pair in shown]

    @hyper_param_record.setter
    def hyper_param_record(self, record: Iterable[str]) -> None:
        """Track these `key=value` texts, of a loaded run for instance, instead."""
        pairs = [text.partition("=") for text in record]
        self.loaded_record, self.named = [], 0
        self.tracked = [(name, value) for name, _, value in pairs]

    def auto_parse_info(self) -> str:
        """See `ExpManager.auto_parse_info`."""
        return "&".join(self.hyper_param_record)

    def print_args(self) -> None:
        """See `ExpManager.print_args`."""
        shown = self.shown_parameters()
        for key, value in sorted(shown.items(), key=lambda pair: text_of(pair[0])):
            backup(f"key: {text_of(key)}, value: {text_of(value)}", echo=False)
        get_current().print_table({text_of(key): value for key, value in shown.items()}, BACKUP)

    def shown_parameters(self) -> dict[Any, Any]:
        """The hyper-parameters as they may be written: without secrets."""
        return self.secrets().parameters(self.hyper_param)

    def config_to_keep(self, secrets: Secrets) -> dict[str, Any]:
        """The sections of the configuration that RLA knows, without secrets, whatever AGENT.hide_secrets."""
        kept = {name: value for name, value in (self.private_config or {}).items() if name in RLA_SECTIONS}
        shown = replace(secrets, hides=True).parameters(kept)
        return {name: plain_hyper_param(value) for name, value in shown.items()}

    def secrets(self) -> Secrets:
        """Values to hide in everything that is written about this run; see AGENT.hide_secrets."""
        from rla_client.code.run_secrets import Secrets  # noqa: PLC0415 - not at import of the package

        hides = self.config is None or self.config.agent.hide_secrets
        return Secrets.of(self.hyper_param, hides=hides)


def named_run(run_id: str | None = None, resume: str | None = None) -> tuple[str | None, ResumeMode]:
    """The run's name and whether to continue it, by default from RLA_RUN_ID and RLA_RESUME.

    Raises:
        ArgumentError: `resume` is no `ResumeMode`, or `must` without a name.
    """
    run_id = run_id or os.environ.get(RUN_ID_VARIABLE) or None
    mode = resume or os.environ.get(RESUME_VARIABLE) or "never"
    known: tuple[ResumeMode, ...] = get_args(ResumeMode)
    if mode not in known:
        raise ArgumentError(f"resume is one of {', '.join(known)}; got {mode!r}")
    if mode == "must" and run_id is None:
        raise ArgumentError(f"resume='must' needs a run_id (or {RUN_ID_VARIABLE})")
    return run_id, known[known.index(mode)]


def local_address() -> str:
    """Address of the interface towards the default route, `noip` without one."""
    import socket  # noqa: PLC0415 - not at import of the package

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(PROBE_ADDRESS)
            return str(probe.getsockname()[0])
    except OSError:
        return NO_IP


def _check_tensorflow(config: Config) -> None:
    """Warn where checkpoints need TensorFlow and it is not installed."""
    from importlib.util import find_spec  # noqa: PLC0415 - rarely needed

    found = sys.modules["tensorflow"] if "tensorflow" in sys.modules else find_spec("tensorflow")
    if found is not None:
        return
    where = "rla_config" if config.path is None else str(config.path)
    warn(
        f"DL_FRAMEWORK is tensorflow in {where}, but TensorFlow is not installed for {sys.executable}: "
        "checkpoints cannot be saved or loaded; set DL_FRAMEWORK: torch, or pip install tensorflow"
    )


def names_code(config: Mapping[str, Any]) -> bool:
    """Whether a configuration names its folders of code."""
    backup, project = (config.get(name) for name in ("BACKUP_CONFIG", "PROJECT_TYPE"))
    return (isinstance(backup, Mapping) and bool({"backup_code_dir", "lib_dir"} & set(backup))) or (
        isinstance(project, Mapping) and project.get("backup_code_by") == "lib"
    )


def first_named(name: str, value: T, older: str, former: T) -> T:
    """The argument `name`, also by its older name.

    Raises:
        ArgumentError: both were given.
    """
    if former is None:
        return value
    if value is not None:
        raise ArgumentError(f"configure() got both {older} and {name}; {older} is the older name of {name}")
    warnings.warn(f"{older} is the older name of {name}", DeprecationWarning, stacklevel=3)
    return former


def _from_here(path: str | os.PathLike[str]) -> str:
    """An existing path relative to the working directory as an absolute one; any other path unchanged."""
    text = os.fspath(path)
    return os.path.abspath(text) if os.path.exists(text) else text


def _raw_config(source: object) -> dict[str, Any]:
    """The configuration as the user wrote it, for scripts that read `private_config`."""
    if isinstance(source, Mapping):
        return dict(source)
    import yaml  # noqa: PLC0415 - loaded already by load_config

    content = yaml.safe_load(read_small(os.fspath(source), links=True))  # type: ignore[call-overload]
    return content if isinstance(content, dict) else {}


def _unknown(key: object, hyper_param: Mapping[str, Any]) -> str:
    names = sorted(map(str, hyper_param))
    meant = f"Did you mean {' or '.join(map(repr, close))}? " if (close := near(key, names)) else ""
    listed = ", ".join(names[:MOST_LISTED]) + (", …" if len(names) > MOST_LISTED else "")
    return (
        f"no hyper-parameter {key!r} is set, so it cannot be tracked. {meant}"
        f"There are: {listed or 'none; give config=, or call set_hyper_param(...) first'}"
    )


def _reach(hyper_param: Mapping[str, Any], dotted: str) -> object:
    value: Any = hyper_param
    for part in dotted.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value
