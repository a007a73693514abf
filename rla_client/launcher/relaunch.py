"""How a started launcher learns that it is to repeat or continue one of its runs.

`rla resume` and `rla rerun` start the launcher as it was started first, with `RLA_RELAUNCH` set:
which call of which wrapped function is meant, the folder it is to use, its recorded parameters,
and from which snapshot it goes on. That call runs there; every other call of a wrapped function
at top level is passed over, so a launcher that runs several experiments, or has no
`if __name__ == "__main__"`, repeats only the one.

A launcher may make its calls in several processes (multiprocessing.Pool), which all inherit the
variable, and in which the number of a call means nothing. There the first call that becomes the
recorded one by its parameters is taken. What the run itself starts does not see the variable; processes
that the launcher starts after it do, or their runs would be made anew. A token, a file that only one
process can remove, makes sure that it is one; a token that is still there at the end says that no call was.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from rla_client.code.secret_values import restored
from rla_client.contract.errors import LaunchError
from rla_client.launcher.context import ResumeFrom
from rla_client.launcher.recorded_parameters import fits

VARIABLE = "RLA_RELAUNCH"

_calls: Counter[tuple[str, bool]] = Counter()
_wanted: list[Relaunch] = []


@dataclass(frozen=True, slots=True)
class Relaunch:
    """What RLA_RELAUNCH says.

    Attributes:
        function: qualified name of the wrapped function.
        call: which call of it, from 0.
        log_dir: folder to use as it is.
        snapshot_dir: folder of its snapshots.
        config: path of rla_config.yaml, where the folder is an item's.
        parameters: recorded parameters, plain data.
        resume_from: snapshot to go on from; None for a run from the beginning.
        log_used: outputs of an item without a configuration file; None: the usual ones.
        token: file that the process which makes the run removes.
        starter: pid of `rla`, the parent of the launcher itself, not of processes that it starts.
    """

    function: str
    call: int
    log_dir: str
    snapshot_dir: str
    config: str | None
    parameters: dict[str, Any]
    resume_from: ResumeFrom = None
    log_used: list[str] | None = None
    token: str | None = None
    starter: int | None = None

    def to_variable(self) -> str:
        """Value for the environment variable."""
        return json.dumps(asdict(self))

    def is_for(self, function: str, call: int, parameters: Mapping[str, Any]) -> bool:
        """Whether this call is meant. True for one call in all processes of the launcher."""
        if function != self.function:
            return False
        pooled = self.starter is not None and os.getppid() != self.starter
        if not (fits(parameters, restored(self.parameters, parameters, [])) if pooled else call == self.call):
            return False
        return self._take_token()

    def _take_token(self) -> bool:
        if self.token is None:
            return True
        try:
            os.unlink(self.token)
        except FileNotFoundError:
            return False
        return True


def wanted() -> Relaunch | None:
    """The run this process was started to repeat or continue; None in an ordinary launch.

    Raises:
        LaunchError: the variable holds something else.
    """
    value = os.environ.get(VARIABLE, "")
    if _wanted or not value:
        return _wanted[0] if _wanted else None
    try:
        known = {field.name for field in fields(Relaunch)}  # another release may say more
        found = {key: content for key, content in json.loads(value).items() if key in known}
        _wanted[:] = [Relaunch(**found)]
        return _wanted[0]
    except (ValueError, TypeError, AttributeError) as error:
        message = f"{VARIABLE} is not what `rla resume` and `rla rerun` set: {error}"
        raise LaunchError(message) from error


@contextmanager
def taken() -> Iterator[None]:
    """Around the wanted run: what it starts is its own and sees no variable."""
    value = os.environ.pop(VARIABLE, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[VARIABLE] = value


def count_call(function: str, *, nested: bool) -> int:
    """Which call of `function` in this process begins now, from 0.

    Calls inside of other experiments are counted by themselves: a relaunch does not make them.
    """
    key = (function, nested)
    number = _calls[key]
    _calls[key] += 1
    return number
