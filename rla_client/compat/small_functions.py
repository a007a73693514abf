"""RLA's utility functions outside of logging."""

from __future__ import annotations

import functools
import os
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from rla_client import logger
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.text.bounded_parsing import check_yaml
from rla_client.run.record.large_variables import tell_large_memory_variables

_Result = TypeVar("_Result")


def load_yaml(path: str) -> Any:  # noqa: ANN401 - any content
    """Content of a YAML file."""
    import yaml  # noqa: PLC0415 - not at import of the package

    data = read_small(path, links=True)
    check_yaml(data)
    return yaml.safe_load(data)


def get_dir_seperator() -> str:
    """The separator of a path's parts (the name is spelt as in the original)."""
    return os.sep


def deprecated_alias(**aliases: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that accepts older names of keyword arguments (`older="newer"`), with a warning."""

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
