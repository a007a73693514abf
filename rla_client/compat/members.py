"""What the original's modules offer and ours do not: constants, small functions, functions it deprecated.

Only `compat.py` refers to these names; new scripts need none of them.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from rla_client import logger
from rla_client.contract.files import read_small
from rla_client.contract.parsing import check_yaml
from rla_client.loader import ExperimentLoader, without_hidden
from rla_client.run.trackers import tell_large_memory_variables
from rla_client.stream.clock import time_step_holder

DEFAULT_X_NAME = "time-step"
DEFAULT_TIMESTAMP = "timestamp"
_Result = TypeVar("_Result")


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
