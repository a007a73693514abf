"""End of open runs with their process.

A run is `interrupted` when Ctrl-C ended the program, `failed` when another exception did, else `finished`. A
killed process records nothing: the agent notices its released lock. `sys.exit(3)` is `finished` too:
SystemExit bypasses sys.excepthook, exit functions do not see it, and a replaced `sys.exit` would mistake a
SystemExit that somebody catches for the end. It is replaced only to note a call while a KeyboardInterrupt is
handled (click and typer do that), or with the status of a signal that stops a program (130 for Ctrl-C, 143
for SIGTERM). A row after it shows that the program continued. A handler of SIGINT would be more reliable, but
asyncio and others treat Ctrl-C differently where one is set. `raise SystemExit` is noticed only in a `with`
block of ours.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Protocol

from rla_client.contract.layout import TIMESTAMP
from rla_client.contract.spool.opening import Opening
from rla_client.run.failure import ending, traceback_text
from rla_client.run.record.run_logger import Logger
from rla_client.stream.outbox import Outbox


class EndsWithProcess(Protocol):
    """Interface of an open `Run` that is closed with the process."""

    logger: Logger
    opening: Opening | None
    pid: int

    def close(self, state: str, reason: str, details: str = "") -> None:
        """End the run."""


open_runs: list[EndsWithProcess] = []
_failure: deque[tuple[str, str, str, float]] = deque(maxlen=1)  # end state of the process; see `_note`
ended: deque[tuple[Outbox, float]] = deque(maxlen=256)  # closed runs with their seconds to wait at exit
_hooks_installed = False


def install_hooks() -> None:
    """Install the hooks that note the end of this process, once per process."""
    global _hooks_installed  # noqa: PLW0603 - once per process
    if _hooks_installed:
        return
    _hooks_installed = True
    former = sys.excepthook

    def note_failure(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        _note(error)
        former(kind, error, traceback)

    sys.excepthook = note_failure
    leave = sys.exit

    @functools.wraps(leave)
    def note_interrupt(status: Any = None, /) -> NoReturn:  # noqa: ANN401 - as sys.exit
        if threading.current_thread() is threading.main_thread():
            leaving = SystemExit(status)
            leaving.__context__ = sys.exc_info()[1]
            _note(leaving)
        leave(status)

    sys.exit = note_interrupt
    atexit.register(_close_at_exit)
    os.register_at_fork(after_in_child=_after_fork_in_child)


def end_with_worker() -> None:
    """Close runs at the end of a `multiprocessing` child, too, which runs neither atexit nor excepthook."""
    util, process = map(sys.modules.get, ("multiprocessing.util", "multiprocessing.process"))
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, _close_at_worker_end, exitpriority=-100)  # after all others
        _see_what_is_printed()


@functools.cache
def _see_what_is_printed() -> None:
    """Note a worker's exception where `multiprocessing` prints it: since Python 3.13 finalizers run later."""
    import traceback  # noqa: PLC0415 - not at import of the package

    former: Callable[..., None] = traceback.print_exc

    def print_exc(*args: object, **kwargs: object) -> None:
        if sys._getframe(1).f_code.co_name == "_bootstrap":  # noqa: SLF001 - of multiprocessing
            _note(sys.exc_info()[1])
        former(*args, **kwargs)

    traceback.print_exc = print_exc


def _note(error: BaseException | None) -> None:
    """Store the state, reason and traceback of the process's end, valid for runs without a row after it."""
    if error is None:
        return
    state, reason = ending(error)
    if state == "interrupted" or not isinstance(error, SystemExit):
        valid = time.time() if isinstance(error, SystemExit) else math.inf
        _failure.append((state, reason, traceback_text(error), valid))


def _close_at_worker_end() -> None:
    _note(sys.exc_info()[1])
    _close_at_exit()


def _close_at_exit() -> None:
    *noted, valid = _failure[-1] if _failure else ("finished", "", "", math.inf)
    for run in tuple(open_runs):  # each removes itself from the list
        began = 0.0 if run.opening is None else run.opening.opened
        went_on = max(began, run.logger.last_row.get(TIMESTAMP, 0)) > valid
        state, reason, details = ("finished", "", "") if went_on else noted
        with contextlib.suppress(OSError):
            run.close(state, reason, details)
    _await_commits()


def _await_commits() -> None:
    """Wait for commits where the agent dies with this process, `exit_wait_s` in all at most."""
    began = time.monotonic()
    while ended:
        outbox, wait_s = ended.pop()
        left = wait_s - (time.monotonic() - began)
        if left > 0 and outbox.agent_alive():
            outbox.flush(left)


def _after_fork_in_child() -> None:
    ended.clear()
    _failure.clear()
