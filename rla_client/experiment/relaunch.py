"""How a started launcher learns that it is to repeat or continue one of its runs.

`rla resume` and `rla rerun` start the launcher as it was started first, with `RLA_LAUNCH` set:
which call of which wrapped function is meant, the folder it is to use, its recorded parameters,
and from which snapshot it goes on. That call runs there; every other call of a wrapped function
at top level is passed over, so a launcher that runs several experiments, or has no
`if __name__ == "__main__"`, repeats only the one.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from rla_client.errors import LaunchError
from rla_client.experiment.context import ResumeFrom

VARIABLE = "RLA_LAUNCH"

_calls: Counter[str] = Counter()
_wanted: list[Relaunch] = []  # taken out of the environment once: it is not meant for our children


@dataclass(frozen=True, slots=True)
class Relaunch:
    """What RLA_LAUNCH says.

    Attributes:
        function: qualified name of the wrapped function.
        call: which call of it, from 0.
        log_dir: folder to use as it is.
        snapshot_dir: folder of its snapshots.
        config: path of rla_config.yaml, where the folder is an item's.
        parameters: recorded parameters, plain data.
        resume_from: snapshot to go on from; None for a run from the beginning.
    """

    function: str
    call: int
    log_dir: str
    snapshot_dir: str
    config: str | None
    parameters: dict[str, Any]
    resume_from: ResumeFrom = None

    def to_variable(self) -> str:
        """Value for the environment variable."""
        return json.dumps(asdict(self))


def wanted() -> Relaunch | None:
    """The run this process was started to repeat or continue; None in an ordinary launch.

    Raises:
        LaunchError: the variable holds something else.
    """
    value = os.environ.pop(VARIABLE, "")
    if not value:
        return _wanted[0] if _wanted else None
    try:
        _wanted[:] = [Relaunch(**json.loads(value))]
        return _wanted[0]
    except (ValueError, TypeError) as error:
        message = f"{VARIABLE} is not what `rla resume` and `rla rerun` set: {error}"
        raise LaunchError(message) from error


def count_call(function: str) -> int:
    """Which call of `function` in this process begins now, from 0."""
    number = _calls[function]
    _calls[function] += 1
    return number
