"""Process of a run that calls a function.

If a sweep has an experiment instead of a command, each run is the process `python -m rla_client.sweep.call`.
It imports `file.py:function` or `module:function` and calls it with the run's parameters by name. A function
of `wrap_experiment` also gets the sweep's database, unless it has a folder of its own; after a kill it
continues at its last snapshot, by RLA_RUN_ID.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import runpy
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from rla_client.config.project import DATA_ROOT_VARIABLE
from rla_client.contract.process.call_signature import signature_of
from rla_client.contract.text.spelling import hint
from rla_client.sweep.command import EXPERIMENT_VARIABLE, PARAMETERS_VARIABLE
from rla_client.sweep.journal import SweepError
from rla_client.sweep.space import Parameters


def parameters_of(environment: Mapping[str, str]) -> Parameters:
    """Parameters of this process's run.

    Raises:
        SweepError: this is not a process of a sweep.
    """
    try:
        return dict(json.loads(environment[PARAMETERS_VARIABLE]))
    except (KeyError, ValueError, TypeError) as error:
        raise SweepError(
            f"{PARAMETERS_VARIABLE} holds no parameters: this is not a run of a sweep"
        ) from error


def main() -> None:
    """Call the function.

    Raises:
        SweepError: this is not a process of a sweep, or there is no such function.
    """
    from rla_client.launcher.wrap import CONTEXT_NAME  # noqa: PLC0415 - not for a driver

    where, _, name = os.environ.get(EXPERIMENT_VARIABLE, "").rpartition(":")
    parameters = parameters_of(os.environ)
    function = _find(where, name)
    if CONTEXT_NAME in signature_of(getattr(function, "__wrapped__", lambda: None)).parameters:
        function({"data_root": os.environ[DATA_ROOT_VARIABLE]}, **parameters)
    else:
        function(**parameters)


def _find(where: str, name: str) -> Callable[..., Any]:
    sys.path[0:0] = [os.getcwd()]
    found = _loaded(os.path.abspath(where)) if where.endswith(".py") else importlib.import_module(where)
    function = getattr(found, name, None)
    if not callable(function):
        known = [word for word, one in vars(found).items() if inspect.isroutine(one) and word[0] != "_"]
        raise SweepError(f"{where} has no function {name!r}\nhint: {hint(name, known)}")
    return function  # type: ignore[no-any-return]


def _loaded(path: str) -> types.ModuleType:
    """Load a file like multiprocessing: as the main module by another name; its `main` is not run."""
    sys.path.insert(0, os.path.dirname(path))
    sys.argv[:] = [path]
    module = types.ModuleType("__mp_main__")
    vars(module).update(runpy.run_path(path, run_name="__mp_main__"))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    return module


if __name__ == "__main__":
    main()
