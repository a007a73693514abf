"""A task of Ray on its node: one attempt of a run.

It starts the run's program, waits for it, and tells how it ended. The program ends with the Ray worker that
started it: the next driver starts the run again, so it must not continue (`ray_watcher`). Where the sweep's
folder is not to be seen on the node, its files are in the state folder there, and what they hold goes back
with the result. An attempt that finds the lock of an earlier one held waits for it.
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
from rla_client.sweep.engines.base import BY_SIGNAL, NOT_STARTED, Work, is_released, start_program, tail
from rla_client.sweep.engines.ray_watcher import watcher
from rla_client.sweep.journal import MAX_ITEMS_BYTES
from rla_client.sweep.run_state import FINISHED

RUN_ID_VARIABLE, RUN_FILE_VARIABLE = "RLA_RUN_ID", "RLA_RUN_FILE"
MAX_OUTPUT_BYTES = 64 << 10  # that travels with a result; Ray sends 100 KiB of one in the reply itself
MAX_FIRST_LINE_BYTES = 4096
RELEASE_S = 60.0  # for an earlier attempt to be gone; its watcher kills it at once
INTERRUPT_S = 0.5  # Ray's cancelling is seen between two waits


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a node is told of the sweep."""

    journal: str  # its path, where node and driver share a file system
    ident: str  # of the sweep; the first line of its journal names it
    python: str  # the driver's, which runs experiments


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended on its node."""

    status: int | None  # as a shell's; None: nothing was started, as an earlier attempt is not gone
    reason: str = ""  # where it was not started
    output: bytes = b""  # the end of what it printed, where the driver cannot see the file
    items: bytes = b""  # likewise the content of RLA_RUN_FILE


def task(packed: bytes) -> bytes:
    """`run_work` as Ray calls it: bytes cost it a tenth of what objects do, and short runs feel that."""
    return pickle.dumps(run_work(*pickle.loads(packed)))  # noqa: S301 - of Ray, which pickles all


def run_work(work: Work, sweep: Sweep, again: bool) -> Outcome:
    """Do one attempt of a run; `again`: it is not the first."""
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
    """One attempt, files and folder being this node's; OSError: it cannot be started."""
    had_to_wait = not is_released(work.lock, 0.0)
    if had_to_wait and not is_released(work.lock, RELEASE_S):
        return Outcome(None, f"an earlier attempt still runs after {RELEASE_S:.0f} s")
    # the driver has looked whether it finished, unless it cannot, or it did so before this began to wait
    if (had_to_wait or (again and not is_shared)) and _is_finished(work.environment):
        return Outcome(0)
    with _interruptible() as asked:
        if again:
            Path(work.lock).unlink(missing_ok=True)  # its number is that of an earlier group
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
    """The exit status as a shell's; the program gets SIGTERM when the task is cancelled."""
    try:
        descriptor = process_descriptor(process.pid)
    except OSError:  # an old kernel, or one of a sandbox
        descriptor = -1
    was_told = False
    try:
        while True:
            if asked() and not was_told:
                was_told = True
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
    with suppress(ProcessLookupError):  # it is started again, so what it started has to end
        os.killpg(process.pid, signal.SIGKILL)
    return BY_SIGNAL - status


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Ray cancels a task by an interrupt of its thread, which would else be raised on any line."""
    asked: list[int] = []
    try:
        former = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    except ValueError:  # not the main thread: Ray ends the worker, and so the program
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, former)


def _is_finished(environment: Mapping[str, str]) -> bool:
    """Whether the database on this node has a run of this run_id that finished."""
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
    """The same with files of this node, which a later attempt finds again."""
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
    """What the driver cannot see; the files go."""
    items = work.environment[RUN_FILE_VARIABLE]
    found = replace(outcome, output=tail(work.output, MAX_OUTPUT_BYTES), items=tail(items, MAX_ITEMS_BYTES))
    if outcome.status is not None:
        for path in (work.output, items, work.exit, work.lock):
            with suppress(OSError):
                os.unlink(path)
        with suppress(OSError):
            os.rmdir(os.path.dirname(work.lock))
    return found
