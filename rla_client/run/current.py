"""The current logger: what `rla_client.logger` writes to, and what else says something of a run."""

from __future__ import annotations

from collections.abc import Callable

from rla_client.run.recording import BACKUP, INFO, WARN, Logger
from rla_client.run.run import joined_logger
from rla_client.stream.clock import time_step_holder

_DEFAULT = Logger(None, ("stdout",))
_DEFAULT.reminder = (
    "no run is open, so rows are printed and not saved: call rla_client.init(...) first, "
    "or exp_manager.configure(...) and exp_manager.log_files_gen()"
)
_current = joined_logger() or _DEFAULT
copies: list[Callable[[Logger], None]] = []  # who keeps a copy of it is told of each change


def get_current() -> Logger:
    """The logger that the functions of `rla_client.logger` use now."""
    return _current


def set_current(logger: Logger | None) -> Logger:
    """Make `logger` (None: the one that only prints) the current one; returns the former."""
    global _current
    former, _current = _current, logger or _DEFAULT
    for take in copies:
        take(_current)
    return former


def info(*args: object) -> None:
    """`log` at level INFO."""
    _current.log(*args, level=INFO)


def warn(*args: object) -> None:
    """`log` at level WARN, after `[WARN] <time-step> : `."""
    _current.log(*_prefixed("WARN", args), level=WARN)


def backup(*args: object, echo: bool = True) -> None:
    """`log` at level BACKUP, after `[BACKUP] <time-step> : `; `echo=False` leaves stdout out."""
    _current.log(*_prefixed("BACKUP", args), level=BACKUP, echo=echo)


def _prefixed(word: str, args: tuple[object, ...]) -> tuple[object, ...]:
    first = args[0] if args else ""
    return (f"[{word}] {time_step_holder.get_time()} : {first}", *args[1:])
