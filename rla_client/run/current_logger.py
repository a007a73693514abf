"""Logger of the current run.

`rla_client.logger` and all other functions without an explicit run write to it: it is that of the thread's
scope (`stream/run_scope.py`). Worker processes join the run of the process's scope, which the environment
variable RLA_RUN describes to them, with streams of their own.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Callable

from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.spool.opening import Opening
from rla_client.run.opening_frame import worker_opening
from rla_client.run.rank_variables import rank
from rla_client.run.record.run_logger import BACKUP, INFO, WARN, Logger, shown_text
from rla_client.run.run_mode import RUN_VARIABLE, disabled
from rla_client.stream import run_scope
from rla_client.stream.clock import time_step_holder
from rla_client.stream.outbox import Outbox


def joined_logger() -> Logger | None:
    """The logger of a worker process whose parent opened a run; None where there is none."""
    try:
        description = json.loads(os.environ[RUN_VARIABLE])
        opening, sinks = Opening.from_fields(description["opening"]), tuple(description["sinks"])
    except (KeyError, ValueError, TypeError, RemoteProtocolError):
        return None
    if opening.pid == os.getpid() or disabled():
        return None
    if rank() > 0 and not description.get("all_ranks"):
        return Logger(opening.log_folder, ())

    def join(lock: threading.RLock) -> Outbox | None:
        from rla_client.config.schema import AgentConfig  # noqa: PLC0415 - not at import of the package

        own = worker_opening(opening)
        if own is None:
            return None
        outbox = Outbox(
            find_places(), own, AgentConfig(), lock=lock, as_worker=lambda: worker_opening(opening)
        )
        atexit.register(outbox.release)
        return outbox

    logger = Logger(opening.log_folder, sinks, join=join)
    logger.address = str(description.get("address") or "")
    return logger


_DEFAULT = Logger(None, ("stdout",))
_DEFAULT.reminder = (
    "no run is open, so rows are printed and not saved: call rla_client.init(...) first, "
    "or exp_manager.configure(...) and exp_manager.log_files_gen()"
)
current_logger = run_scope.PerScope(lambda: _DEFAULT)
_one: Logger | None = _DEFAULT  # of all threads; None: each has its own
copies: list[Callable[[Logger | None], None]] = []  # holders of a copy, called at each change
_told_workers = ""


def get_current() -> Logger:
    """The logger that the functions of `rla_client.logger` use now."""
    return _one or current_logger()


def get_current_of_all() -> Logger | None:
    """The logger of all threads, for `copies`; None where each has its own."""
    return _one


def set_current(logger: Logger | None, place: run_scope.Scope | None = None) -> Logger:
    """Make `logger` (None: the one that only prints) current; returns the former one.

    Args:
        logger: of the run.
        place: its scope; default: this thread's, or a new one where another thread's run is open.
    """
    here = run_scope.current()
    former = current_logger.of(here)
    if logger is None or logger is _DEFAULT:
        drop_current(former, here)
    elif (
        place is None and here is not run_scope.process() and logger is current_logger.of(run_scope.process())
    ):
        drop_current(former, here)
        run_scope.forget_own()
    elif place is not None or logger is not former:
        place = place or run_scope.room()
        run_scope.take(place)
        current_logger.put(logger, place)
    return former


def drop_current(logger: Logger, where: run_scope.Scope) -> None:
    """Unset a logger that is the current one of a scope."""
    if current_logger.of(where) is logger:
        current_logger.put(_DEFAULT, where)
        run_scope.retire(where)


def _take_current(one: run_scope.Scope | None) -> None:
    global _one, _told_workers  # noqa: PLW0603 - copies of what the scopes have
    _one = None if one is None else current_logger.of(one)
    for take in copies:
        take(_one)
    for_workers = current_logger.of(run_scope.process()).for_workers
    told = os.environ.get(RUN_VARIABLE, "")
    if for_workers and told != for_workers:
        os.environ[RUN_VARIABLE] = _told_workers = for_workers
    elif not for_workers and told and told == _told_workers:
        del os.environ[RUN_VARIABLE]


def _tell_guess() -> None:
    current_logger.of(run_scope.process()).log(
        f"[WARN] the thread {threading.current_thread().name!r} has opened no run, and several are open: "
        "what it logs is part of this one. For another one, use what rla_client.init() gave: run.log(...), "
        "or `with run.active():` around the calls (shown once)",
        level=WARN,
    )


run_scope.guesses.append(_tell_guess)
run_scope.changes.append(_take_current)
if (_joined := joined_logger()) is not None:
    run_scope.process().used = True
    current_logger.put(_joined, run_scope.process())


def info(*args: object) -> None:
    """`log` at level INFO."""
    get_current().log(*args, level=INFO)


def warn(*args: object) -> None:
    """`log` at level WARN, after `[WARN] <time-step> : `."""
    get_current().log(*_prefixed("WARN", args), level=WARN)


def backup(*args: object, echo: bool = True) -> None:
    """`log` at level BACKUP, after `[BACKUP] <time-step> : `; `echo=False` leaves stdout out."""
    get_current().log(*_prefixed("BACKUP", args), level=BACKUP, echo=echo)


def _prefixed(word: str, args: tuple[object, ...]) -> tuple[object, ...]:
    first = shown_text(args[0]) if args else ""
    return (f"[{word}] {time_step_holder.get_time()} : {first}", *args[1:])
