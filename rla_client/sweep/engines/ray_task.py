"""Ray task of one attempt, on its node.

The task starts the run's program, waits for it, and returns its end. The program ends with the Ray worker
that started it (`ray_watcher`): it must not continue, because the next driver starts the run again. If the
node does not share the sweep's folder, the run's files are in the node's state folder, and their content
is returned with the result. An attempt waits for an earlier one that still holds the lock.
"""

from __future__ import annotations

import functools
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rla_client.config.project import DATA_ROOT_VARIABLE
from rla_client.contract.agent.places import find_places
from rla_client.contract.filesystem.modes import PRIVATE_FOLDER
from rla_client.contract.process.syscalls import process_descriptor
from rla_client.sweep.engines.attempt_files import BY_SIGNAL, is_released, tail
from rla_client.sweep.engines.attempt_process import NOT_STARTED, start_program
from rla_client.sweep.engines.base import Work
from rla_client.sweep.engines.ray_watcher import watcher
from rla_client.sweep.journal import MAX_ITEMS_BYTES
from rla_client.sweep.run_state import FINISHED

RUN_ID_VARIABLE, RUN_FILE_VARIABLE = "RLA_RUN_ID", "RLA_RUN_FILE"
MAX_OUTPUT_BYTES = 64 << 10  # returned with a result; Ray sends up to 100 KiB in the reply itself
MAX_FIRST_LINE_BYTES = 4096
RELEASE_S = 60.0  # for an earlier attempt to end; its watcher kills it at once
INTERRUPT_S = 0.5  # cancellation by Ray is noticed between two waits


@dataclass(frozen=True, slots=True)
class Sweep:
    """Data of the sweep for a node."""

    journal: str  # its path, if node and driver share a file system
    ident: str  # identifier in the first line of the journal
    python: str  # the driver's interpreter, which runs experiments


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of an attempt on its node."""

    status: int | None  # as a shell's; None: not started, because an earlier attempt still runs
    reason: str = ""  # if it was not started
    output: bytes = b""  # end of the output, if the driver cannot read the file
    items: bytes = b""  # content of RLA_RUN_FILE, likewise


def task(packed: bytes) -> bytes:
    """`run_work` with bytes, which Ray passes ten times as fast as objects; this matters for short runs."""
    return pickle.dumps(run_work(*pickle.loads(packed)))  # noqa: S301 - from Ray, which pickles everything


def run_work(work: Work, sweep: Sweep, again: bool) -> Outcome:
    """Run one attempt; `again` says that it is not the first."""
    is_shared = _is_shared(sweep)
    here = work if is_shared else _moved(work, sweep)
    if not os.path.isdir(here.folder):
        here = replace(here, folder=os.getcwd())
    if here.command[0] == sweep.python and not os.access(sweep.python, os.X_OK):
        here = replace(here, command=(sys.executable, *here.command[1:]))
    try:
        outcome = _attempt(here, again=again, is_shared=is_shared)
    except OSError as error:
        return Outcome(NOT_STARTED, f"cannot be started on {socket.gethostname()}: {error}")
    return outcome if is_shared else _with_files(outcome, here)


def _attempt(work: Work, *, again: bool, is_shared: bool) -> Outcome:
    """Run one attempt with files and folder of this node; raises OSError if it cannot be started."""
    had_to_wait = not is_released(work.lock, 0.0)
    if had_to_wait and not is_released(work.lock, RELEASE_S):
        return Outcome(None, f"an earlier attempt still runs after {RELEASE_S:.0f} s")
    # the driver has checked whether the run finished, unless it cannot, or checked before this waited
    if (had_to_wait or (again and not is_shared)) and _is_finished(work.environment):
        return Outcome(0)
    with _interruptible() as asked:
        if again:
            Path(work.lock).unlink(missing_ok=True)  # it has the number of an earlier group
        watcher.tell(work.lock)
        try:
            process = start_program(work, {**os.environ, **work.environment}, shell=False)
        except OSError:
            watcher.tell("")
            raise
        status = _end_of(process, asked)
        with suppress(OSError), open(work.exit, "w", encoding="ascii") as file:  # the driver may be gone
            file.write(f"{status}\n")
        watcher.tell("")
    return Outcome(status)


def _end_of(process: subprocess.Popen[bytes], asked: Callable[[], bool]) -> int:
    """Exit status as a shell's, of a program that gets SIGTERM when the task is cancelled."""
    try:
        descriptor = process_descriptor(process.pid)
    except OSError:  # an old kernel, or a sandbox
        descriptor = -1
    was_signalled = False
    try:
        while True:
            if asked() and not was_signalled:
                was_signalled = True
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
            if descriptor >= 0:
                if select.select([descriptor], [], [], INTERRUPT_S)[0]:
                    break
                continue
            with suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPT_S)
                break
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    status = process.wait()
    if status >= 0:
        return status
    with suppress(ProcessLookupError):  # the run is started again, so its child processes must end
        os.killpg(process.pid, signal.SIGKILL)
    return BY_SIGNAL - status


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Record Ray's cancellation, an interrupt of the thread, instead of raising KeyboardInterrupt."""
    asked: list[int] = []
    try:
        former = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    except ValueError:  # not the main thread: Ray ends the worker, and with it the program
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, former)


def _is_finished(environment: Mapping[str, str]) -> bool:
    """Whether the database on this node has a finished run of this run_id."""
    from rla_client.contract.layout import LOG  # noqa: PLC0415 - of repeated runs alone
    from rla_client.run.resume.run_id_index import newest_first  # noqa: PLC0415
    from rla_client.sweep import results  # noqa: PLC0415

    root, run_id = environment[DATA_ROOT_VARIABLE], environment[RUN_ID_VARIABLE]
    try:
        tables = os.listdir(f"{root}/{LOG}")
    except OSError:
        return False
    return any(
        results.settled({"data_root": root, "table": table, "index": index.path}) == FINISHED
        for table in tables
        for index in newest_first(Path(root, LOG, table), run_id)
    )


@functools.lru_cache(maxsize=16)
def _is_shared(sweep: Sweep) -> bool:
    try:
        with open(sweep.journal, "rb") as file:
            return f'"{sweep.ident}"'.encode() in file.readline(MAX_FIRST_LINE_BYTES)
    except OSError:
        return False


def _moved(work: Work, sweep: Sweep) -> Work:
    """The work with files on this node, which a later attempt finds again."""
    folder = find_places().state / "sweeps" / sweep.ident
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    at = f"{folder}/{work.number:04d}"
    return replace(
        work,
        environment={**work.environment, RUN_FILE_VARIABLE: f"{at}.items"},
        output=f"{at}.txt",
        exit=f"{at}.exit",
        lock=f"{at}.lock",
    )


def _with_files(outcome: Outcome, work: Work) -> Outcome:
    """The outcome with the content of this node's files, which are deleted."""
    items = work.environment[RUN_FILE_VARIABLE]
    found = replace(outcome, output=tail(work.output, MAX_OUTPUT_BYTES), items=tail(items, MAX_ITEMS_BYTES))
    if outcome.status is not None:
        for path in (work.output, items, work.exit, work.lock):
            with suppress(OSError):
                os.unlink(path)
        with suppress(OSError):
            os.rmdir(os.path.dirname(work.lock))
    return found
