"""Call of a launcher that RLA_RELAUNCH selects.

The variable has the number of the call of a wrapped function, its folder, its recorded parameters, and the
snapshot to continue from. That call runs in that folder; every other top-level call of a wrapped function
is skipped, so a launcher that runs several experiments repeats only one.

A launcher may make its calls in several processes (multiprocessing.Pool), where the number of a call is
not defined. There the first call that fits the recorded parameters runs. Processes that the launcher
starts after the run have the variable, too. Therefore only the process that removes the token, a file,
runs the call; a token that remains at the end shows that no call ran.
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
from rla_client.launcher.launch_parameters import fits
from rla_client.launcher.launch_record import Launch

VARIABLE = "RLA_RELAUNCH"
_calls: Counter[tuple[str, bool]] = Counter()
_wanted: list[Relaunch] = []


@dataclass(frozen=True, slots=True)
class Relaunch:
    """Content of RLA_RELAUNCH.

    Attributes:
        function: qualified name of the wrapped function.
        call: number of its call, from 0.
        log_dir: existing folder to use.
        snapshot_dir: folder of its snapshots.
        config: path of rla_config.yaml, for the folder of an item.
        parameters: recorded parameters, plain data.
        resume_from: snapshot to continue from; None for a run from the beginning.
        log_used: outputs of an item without a configuration file; None: the default ones.
        token: file that the process which makes the run removes.
        starter: pid of `rla`, the parent of the launcher's main process.
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
        """Whether this call is selected. True for one call in all processes of the launcher."""
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
    """Relaunch for which this process was started; None in an ordinary launch.

    Raises:
        LaunchError: the variable has another content.
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
    """Remove the variable during the selected run, so that programs started by it do not see it."""
    value = os.environ.pop(VARIABLE, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[VARIABLE] = value


def count_call(function: str, *, nested: bool) -> int:
    """Count a call of `function` in this process; returns its number, from 0.

    Calls inside other experiments are counted separately: a relaunch does not select them.
    """
    key = (function, nested)
    number = _calls[key]
    _calls[key] += 1
    return number


def top_level_calls() -> int:
    """Number of top-level calls of experiments that began in this process."""
    return sum(number for (_function, nested), number in _calls.items() if not nested)


def relaunch_of(
    launch: Launch, log_dir: Path, snapshots: Path, parameters: dict[str, Any], source: ResumeFrom
) -> Relaunch:
    """Relaunch of a recorded call in `log_dir`, from the snapshot `source`."""
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
