"""The call of a launcher that RLA_RELAUNCH asks for.

The variable tells the launcher which call of which wrapped function is meant, the folder it is to use, its
recorded parameters, and from which snapshot it continues. That call runs there; every other call of a
wrapped function at top level is passed over, so a launcher that runs several experiments repeats only the
one.

A launcher may make its calls in several processes (multiprocessing.Pool), in which the number of a call
means nothing. There the first call that becomes the recorded one by its parameters is taken. Processes that
the launcher starts after the run see the variable, too: a token, a file that only one process can remove,
makes sure that it is one; a token that is still there at the end says that no call was.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rla_client.code.restored_secrets import restored
from rla_client.contract.errors import LaunchError
from rla_client.launcher.context import ResumeFrom
from rla_client.launcher.launch_record import Launch
from rla_client.launcher.variant import fits

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
        resume_from: snapshot to continue from; None for a run from the beginning.
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
        if self.token is None:
            return True
        with suppress(FileNotFoundError):
            os.unlink(self.token)
            return True
        return False


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
        raise LaunchError(f"{VARIABLE} is not what `rla resume` and `rla rerun` set: {error}") from error


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


def top_level_calls() -> int:
    """How many calls of experiments that are not inside of another began in this process."""
    return sum(number for (_function, nested), number in _calls.items() if not nested)


def relaunch_of(
    launch: Launch, log_dir: Path, snapshots: Path, parameters: dict[str, Any], source: ResumeFrom
) -> Relaunch:
    """The call that was recorded, once more: in `log_dir`, from the snapshot `source`."""
    return Relaunch(
        launch.function,
        launch.call,
        str(log_dir),
        str(snapshots),
        launch.config,
        parameters,
        source,
        launch.log_used,
    )
