"""The original RLA's modules, for scripts that were written for it.

    python -m rla_client.compat train.py --lr 0.001

`install()` puts modules named `RLA`, `RLA.easy_log.logger`, … into `sys.modules`; each gives the
names that the original's module of that path has, from ours. Where an installed original is
importable, ours take its place in this process only.
"""

# What the original offers and ours do not (constants, small functions, functions that it deprecated) stands
# here, too; new scripts need none of it.

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import runpy
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

from rla_client import logger
from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import DEFAULT_LOG_TYPES, LOG
from rla_client.contract.text.bounded_parsing import check_yaml
from rla_client.loader import ExperimentLoader, without_hidden
from rla_client.run.record.large_variables import tell_large_memory_variables
from rla_client.stream.clock import time_step_holder

DEFAULT_X_NAME = "time-step"
DEFAULT_TIMESTAMP = "timestamp"
default_log_types = list(DEFAULT_LOG_TYPES)
_Result = TypeVar("_Result")

# module of the original → where its names come from: a whole module of ours, or name → (module, name)
_WHOLE = {
    "RLA.easy_log.logger": "rla_client.logger",
    "RLA.easy_log.time_used_recorder": "rla_client.run.record.time_tracker",
}
_LOADER = (
    "ExperimentLoader", "exp_loader", "experimental_loader", "fork_log_file_fn", "update_hyper_parameters_fn",
)  # fmt: skip
_TOOLS = ("DeleteLogTool", "ArchiveLogTool", "MigrateLogTool", "ViewLogTool", "PrettyPlotterTool", "Filter")
_QUERY = (
    "experiment_data_query", "single_experiment_query", "extract_valid_index", "BasicQueryResult",
    "ArchiveQueryResult", "LogQueryResult", "HyperParamResult", "CkpResult", "OtherQueryResult",
)  # fmt: skip
_KINDS = (
    "LOG", "CODE", "CHECKPOINT", "ARCHIVE_TESTER", "HYPARAMETER", "OTHER_RESULTS", "TMP_DATA",
    "ARCHIVED_TABLE", "HYPARAM_FILE_NAME",
)  # fmt: skip
_TOP = (
    "exp_manager", "logger", "time_step_holder", "plot_func", "MatplotlibRecorder", "ImgRecorder",
    "ExperimentLoader", "fork_log_file_fn", "update_hyper_parameters_fn", "experiment_data_query",
    "single_experiment_query", "time_tracker",
)  # fmt: skip
_CONSTANTS = (
    "DEFAULT_X_NAME", "DEFAULT_TIMESTAMP", "FRAMEWORK", "FTP_PROTOCOL_NAME", "LOG_NAME_FORMAT_VERSION",
    "PLATFORM_TYPE",
)  # fmt: skip


def _of(home: str, names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Names that come from one module of ours."""
    return {name: (home, name) for name in names}


RLA_NAMES: dict[str, str] = {  # name that RLA or its tools offer → where it is
    **dict.fromkeys(_TOP, "rla_client"),
    **dict.fromkeys(_TOOLS, "rla_client.database"),
    **dict.fromkeys(("experiment_data_query", "single_experiment_query"), "rla_client.database"),
    **dict.fromkeys(("fork_log_file_fn", "update_hyper_parameters_fn"), "rla_client.loader"),
    **dict.fromkeys(("simple_plot", "simple_hist", "simple_scatter"), "rla_client.media.simple_plots"),
    "plot_saved_images": "rla_client.plot",
    **dict.fromkeys((*_KINDS, "DEFAULT_LOG_TYPES"), "rla_client.contract.layout"),
    **dict.fromkeys((*_CONSTANTS, "LoadTesterMode", "LogDataType", "default_log_types"), "rla_client.compat"),
}
__all__ = list(RLA_NAMES)  # `from rla_client.compat import *` is `from RLA import *`
_CONST = _of("rla_client.compat", _CONSTANTS)
_EASY_CONST = {
    **_of("rla_client.contract.layout", _KINDS),
    "HYPARAM": ("rla_client.contract.layout", "HYPARAM_FILE_NAME"),
    "default_log_types": ("rla_client.compat", "default_log_types"),
    "LogDataType": ("rla_client.compat", "LogDataType"),
    "LoadTesterMode": ("rla_client.compat", "LoadTesterMode"),
}
_UTILS = _of("rla_client.compat", ("load_yaml", "deprecated_alias", "get_dir_seperator"))
_TIMES = ("time_record", "time_record_end", "time_tracker", "TimeTracker", "SingleTimeTracker")
_DEPRECATED = ("import_hyper_parameters", "load_from_record_date", "fork_tester_log_files")
_NAMES: dict[str, dict[str, tuple[str, str]]] = {
    "RLA": {**_of("rla_client", _TOP), **_EASY_CONST, **_CONST},
    "RLA.easy_log": {"logger": ("rla_client", "logger")},
    "RLA.easy_log.tester": {
        **_of("rla_client.manager", ("exp_manager", "tester", "Tester")),
        **_of("rla_client.compat", _DEPRECATED),
        "logger": ("rla_client", "logger"),
        "time_step_holder": ("rla_client", "time_step_holder"),
        **_EASY_CONST,
        **_CONST,
        **_UTILS,
    },
    "RLA.easy_log.tools": {
        **_of("rla_client.run.record.time_tracker", ("time_record", "time_record_end")),
        "time_used_wrap": ("rla_client.compat", "time_used_wrap"),
        "DeleteLogTool": ("rla_client.database", "DeleteLogTool"),
    },
    "RLA.easy_log.delete_log_tool": {"DeleteLogTool": ("rla_client.database", "DeleteLogTool")},
    "RLA.trackers": {},
    "RLA.trackers.time_used_recorder": _of("rla_client.run.record.time_tracker", _TIMES),
    "RLA.trackers.memory_used_recorder": {
        "print_large_memory_variable": ("rla_client.compat", "print_large_memory_variable"),
    },
    "RLA.easy_log.time_step": {
        "time_step_holder": ("rla_client.stream.clock", "time_step_holder"),
        "TimeStepHolder": ("rla_client.stream.clock", "TimeStepHolder"),
    },
    "RLA.easy_log.simple_mat_plot": _of(
        "rla_client.media.simple_plots", ("simple_plot", "simple_hist", "simple_scatter")
    ),
    "RLA.easy_log.complex_data_recorder": _of(
        "rla_client", ("MatplotlibRecorder", "ImgRecorder", "VideoRecorder")
    ),
    "RLA.easy_log.exp_loader": {
        **_of("rla_client.loader", _LOADER),
        **_of("rla_client.manager", ("exp_manager", "Tester")),
        "logger": ("rla_client", "logger"),
        "DEFAULT_X_NAME": _CONST["DEFAULT_X_NAME"],
        "experiment_data_query": ("rla_client.database", "experiment_data_query"),
    },
    "RLA.easy_log.log_tools": _of("rla_client.database", _TOOLS),
    "RLA.rla_argparser": _of("rla_client.compat", ("argparse", "arg_parser_postprocess", "boolean_flag")),
    "RLA.easy_log.const": _EASY_CONST,
    "RLA.const": _CONST,
    "RLA.easy_plot": {},
    "RLA.easy_plot.plot_func_v2": {
        "plot_func": ("rla_client", "plot_func"),
        "default_key_to_legend": ("rla_client.plot.selected_runs", "default_key_to_legend"),
    },
    "RLA.easy_plot.plot_func": {
        "plot_func": ("rla_client", "plot_func"),
        "plot_res_func": ("rla_client.compat", "plot_res_func"),
    },
    "RLA.easy_plot.plot_saved_images": {"plot_saved_images": ("rla_client", "plot_saved_images")},
    "RLA.easy_plot.result_cls": {name: ("rla_client.database", name) for name in _QUERY if name[0].isupper()},
    "RLA.query_tool": {
        **_of("rla_client.database", _QUERY),
        **_EASY_CONST,
        "Tester": ("rla_client.manager", "Tester"),
    },
    "RLA.utils": {},
    "RLA.utils.utils": _UTILS,
}


_PLOT = "plot_func of rla_client draws curves from the database"
_CURVES = "rla_client.database.open(data_root).curves(...) gives the curves as a DataFrame"
_OUTPUTS = "LOG_USED in rla_config.yaml names the outputs; rla_client writes them itself"
_OWN = "write it in the script; it has nothing to do with logging"
_SAVE = "exp_manager.new_saver, save_checkpoint and load_checkpoint do this for PyTorch and TensorFlow 2"
_INSTEAD: dict[str, dict[str, str]] = {  # module → name ("" for all others of it) → what to use
    "RLA.auto_ftp": {"": "the agent replicates; REMOTE_SETTING in rla_config.yaml names the master"},
    "RLA.email_send": {"": "rules under ALERTS in rla_config.yaml send mail, exp_manager.alert a message"},
    "RLA.emb_test": {"": "tests of a script belong into pytest"},
    "RLA.exp_loader": {"": "ExperimentLoader of rla_client loads earlier runs"},
    "RLA.exp_loader.utils": {"": "experiment_data_query of rla_client finds earlier runs"},
    "RLA.easy_plot.plot_util": {"": _PLOT, "load_results": _CURVES},
    "RLA.easy_plot.load_images": {"": "plot_saved_images of rla_client shows images side by side"},
    "RLA.easy_plot.utils": {"": _CURVES},
    "RLA.easy_tf": {"": _SAVE},
    "RLA.easy_tf.saver_tools": {"": _SAVE},
    "RLA.easy_tf.tools": {"": _OWN},
    "RLA.easy_torch": {"": _SAVE},
    "RLA.easy_torch.save_tools": {"": _SAVE},
    "RLA.utils.tf_util": {"": _OWN},
    "RLA.utils.utils": dict.fromkeys(
        ("get_sys_type", "rename_kwargs", "set_or_append", "set_or_keep", "optional_set"), _OWN
    ),
    "RLA.easy_plot.plot_func": dict.fromkeys(
        (
            "default_key_to_legend", "split_by_task", "split_by_reg", "auto_gen_key_value_name",
            "picture_split", "csv_to_xy", "word_replace", "word_replace_back", "scale_index_to_dict",
            "show_plt",
        ),
        _PLOT,
    ),
    "RLA.easy_plot.plot_func_v2": dict.fromkeys(
        ("meta_csv_data_loader_func", "split_by_reg", "split_by_task", "picture_split", "csv_to_xy"), _PLOT
    ),
    "RLA.easy_plot.plot_saved_images": {"meta_image_data_loader_func": "plot_saved_images reads them itself"},
    "RLA.easy_plot.result_cls": dict.fromkeys(("Result", "CsvResult", "ImgResult"), _CURVES),
    "RLA.easy_log.log_tools": {
        "BasicLogTool": "DeleteLogTool and the other tools of rla_client.database stand alone",
        "DownloadLogTool": "`rla pull` brings runs from the master",
    },
    "RLA.easy_log.complex_data_recorder": {"format_name": "MatplotlibRecorder.save makes the names itself"},
    "RLA.easy_log.tools": {"rc_start_time": "time_record and time_record_end keep the times"},
    "RLA.trackers.time_used_recorder": {"rc_start_time": "time_record and time_record_end keep the times"},
    "RLA.easy_log.time_used_recorder": {"rc_start_time": "time_record and time_record_end keep the times"},
    "RLA.easy_log.logger": {
        **dict.fromkeys(
            (
                "KVWriter", "SeqWriter", "HumanOutputFormat", "JSONOutputFormat", "CSVOutputFormat",
                "TensorBoardOutputFormat", "make_output_format", "summary_val", "valid_float_value",
            ),
            _OUTPUTS,
        ),
        "ma_dict": "ma_record_tabular keeps the windows",
        "lst_print_dict": "record_tabular(..., freq=n) keeps the times",
    },
}  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any name of RLA's
    home = RLA_NAMES.get(name, __name__)
    if home == __name__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


class _OldModule(ModuleType):
    """A module of the original's name that finds its names in ours at first use."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any public name
        module = self.__name__
        if f"{module}.{name}" in known_modules():
            return importlib.import_module(f"{module}.{name}")
        home, attribute = _WHOLE.get(module, ""), name
        if not home and name in _NAMES.get(module, {}):
            home, attribute = _NAMES[module][name]
        if not home or not hasattr(importlib.import_module(home), attribute):
            instead = _INSTEAD.get(module, {})
            use = "" if name.startswith("_") else instead.get(name) or instead.get("", "")
            if use:  # `from … import …` tells of no AttributeError
                raise ImportError(f"rla_client does not offer {module}.{name}: {use}", name=module)
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), attribute)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        whole = _WHOLE.get(self.__name__)
        return dir(importlib.import_module(whole)) if whole else sorted(_NAMES.get(self.__name__, {}))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the old modules when they are imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a name of the original, None for any other."""
        del path, target
        if fullname not in known_modules():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """An empty module that looks its names up."""
        module = _OldModule(spec.name, f"{spec.name} of the original RLA, served by rla_client.")
        home = _WHOLE.get(spec.name)
        names = dir(importlib.import_module(home)) if home else list(_NAMES.get(spec.name, {}))
        module.__dict__["__all__"] = [name for name in names if not name.startswith("_")]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def known_modules() -> frozenset[str]:
    """Module names of the original that can be imported; of some, each name says what to use instead."""
    return frozenset({*_WHOLE, *_NAMES, *_INSTEAD})


def install() -> None:
    """Serve the original's module names in this process from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for name in [name for name in sys.modules if name == "RLA" or name.startswith("RLA.")]:
        if not isinstance(sys.modules[name], _OldModule):
            del sys.modules[name]


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m rla_client.compat SCRIPT [ARGUMENT …]`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in ([], ["-h"], ["--help"]):
        sys.stdout.write(f"{(__doc__ or '').strip()}\n")
        return 0 if words else 2
    if not os.path.isfile(words[0]):
        sys.stderr.write(f"rla_client.compat: there is no script {words[0]}\n")
        return 2
    importlib.import_module("rla_client.compat").install()  # this is __main__; others import it by name
    warnings.filterwarnings("ignore", message=".* is the older name of .*")
    sys.argv = words
    sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
    sys.path.insert(1, os.path.join(os.path.dirname(__file__), "old_names"))  # spawned processes get it too
    runpy.run_path(words[0], run_name="__main__")
    return 0


class FRAMEWORK:
    """Values of DL_FRAMEWORK."""

    tensorflow = "tensorflow"
    torch = "torch"


class FTP_PROTOCOL_NAME:  # noqa: N801 - the original's name
    """Values of REMOTE_SETTING.file_transfer_protocol."""

    FTP = "ftp"
    SFTP = "sftp"


class LOG_NAME_FORMAT_VERSION:  # noqa: N801 - the original's name
    """Versions of the index name."""

    V1 = "v1"


class LogDataType:
    """Values of LOG_USED."""

    TB = "tensorboard"
    CSV = "csv"
    TXT = "log"
    STDOUT = "stdout"


def load_yaml(path: str) -> Any:  # noqa: ANN401 - any content
    """Content of a YAML file."""
    import yaml  # noqa: PLC0415 - not at import of the package

    data = read_small(path, links=True)
    check_yaml(data)
    return yaml.safe_load(data)


class LoadTesterMode:
    """How an earlier run is loaded."""

    FORK_TO_NEW = "fork"


class PLATFORM_TYPE:  # noqa: N801 - the original's name
    """Operating systems that the original tells apart."""

    WIN = "win"
    LINUX = "linux"
    OTHER = "other"


def get_dir_seperator() -> str:
    """What stands between the parts of a path (the original's spelling)."""
    return os.sep


def deprecated_alias(**aliases: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: take older names of keyword arguments (`older="newer"`), with a warning."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> object:
            for older, newer in aliases.items():
                if older in kwargs:
                    warnings.warn(f"{older} is the older name of {newer}", DeprecationWarning, stacklevel=2)
                    kwargs[newer] = kwargs.pop(older)
            return function(*args, **kwargs)

        return call

    return decorate


def time_used_wrap(name: str, func: Callable[..., _Result], *args: object, **kwargs: object) -> _Result:
    """Call `func`, record its seconds as `time_used/<name>` and write the row; returns its result."""
    started = time.perf_counter()
    result = func(*args, **kwargs)
    logger.record_tabular(f"time_used/{name}", time.perf_counter() - started)
    logger.dump_tabular()
    return result


def plot_res_func(  # noqa: PLR0913, PLR0917 - the original's
    prefix_dir: str,
    regs: Sequence[str],
    param_keys: Sequence[str],
    value_keys: Sequence[str],
    scale_dict: Mapping[str, Callable[[Any], Any]] | None = None,
    replace_legend_keys: Sequence[str] | None = None,
    save_name: str | None = None,
    key_to_legend_fn: Callable[[list[str], str], str] | None = None,
    **further: Any,  # noqa: ANN401 - of plot_func
) -> Any:  # noqa: ANN401
    """`plot_func` as it was before: of a table's log folder, `<data root>/log/<table>`.

    Args:
        prefix_dir: the log folder.
        regs: globs below it.
        param_keys: hyper-parameters whose values make the groups.
        value_keys: metrics.
        scale_dict: see `plot_func`.
        replace_legend_keys: one legend for each of `regs`.
        save_name: see `plot_func`.
        key_to_legend_fn: gets `key=value` texts and a metric.
        **further: see `plot_func`; `y_bound`, `x_start` and `remove_outlier` have no use.

    Raises:
        ArgumentError: `prefix_dir` is no log folder of a table.
    """
    from rla_client.plot.rla_plotters import plot_func  # noqa: PLC0415 - not at import of the package

    root, mark, table = os.path.normpath(prefix_dir).replace(os.sep, "/").rpartition(f"/{LOG}/")
    if not mark:
        raise ArgumentError(f"prefix_dir is <data root>/{LOG}/<table>, got {prefix_dir!r}")
    for name in ("y_bound", "x_start", "remove_outlier", "use_buf"):
        further.pop(name, None)
    if key_to_legend_fn is not None:
        older = key_to_legend_fn
        further["key_to_legend_fn"] = lambda parse_dict, keys, y_name, _joined=True: older(
            [f"{key}={parse_dict[key]}" for key in keys], y_name
        )
    globs = [reg.lstrip("/") for reg in regs]
    return plot_func(
        root, table, globs, list(param_keys), list(value_keys), scale_dict=scale_dict,
        regs2legends=replace_legend_keys, save_name=save_name, **further,
    )  # fmt: skip


def print_large_memory_variable() -> dict[str, str]:
    """See `exp_manager.print_large_memory_variable`."""
    return tell_large_memory_variables(depth=3)


# -- deprecated by the original in favour of ExperimentLoader ----------------------------------


def _loader(task_table_name: str, record_date: str) -> ExperimentLoader:
    loader = ExperimentLoader()
    loader.config(task_table_name, record_date)
    return loader


def import_hyper_parameters(task_table_name: str, record_date: str) -> argparse.Namespace:
    """Hyper-parameters of a run of the current data root."""
    loader = _loader(task_table_name, record_date)
    return argparse.Namespace(**without_hidden(loader.load().hyper_param))


def load_from_record_date(task_table_name: str, record_date: str, *, trust: bool = False) -> tuple[int, Any]:
    """The newest checkpoint of a run of the current data root; sets the clock to it."""
    step, content, _ = _loader(task_table_name, record_date).load_from_record_date(trust=trust)
    time_step_holder.set_time(step)
    return step, content


def fork_tester_log_files(task_table_name: str, record_date: str) -> None:
    """Put a run's data under the current one."""
    _loader(task_table_name, record_date).fork_log_files()


def boolean_flag(
    parser: argparse.ArgumentParser,
    name: str,
    default: bool = False,
    help: str | None = None,  # noqa: A002
) -> None:
    """Add `--name` and `--no-name`, which set `name` (dashes as underscores) to True and False."""
    target = name.replace("-", "_")
    parser.add_argument(f"--{name}", action="store_true", default=default, dest=target, help=help)
    parser.add_argument(f"--no-{name}", action="store_false", dest=target)


def arg_parser_postprocess(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add `--loaded_task_name`, `--loaded_date` (an earlier run to load) and `--info` (a text)."""
    parser.add_argument("--loaded_task_name", default="", type=str, help="table of a run to load")
    parser.add_argument("--loaded_date", default="", type=str, help="YYYY/MM/DD/HH-MM-SS-ffffff of that run")
    parser.add_argument("--info", default="default exp info", type=str, help="a text that tells runs apart")
    return parser


if __name__ == "__main__":
    sys.exit(main())
