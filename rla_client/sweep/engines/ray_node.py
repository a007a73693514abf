"""What a Ray task does on its node: start one run's program, wait for it, and tell how it ended.

The program ends with the Ray worker that started it: a driver that dies takes its tasks with it, and the
next driver starts the run again, so it must not continue. Each worker has a watcher for that, a shell of its
own session and no child of the worker, which reads from a pipe that the worker alone holds open. It is told
the lock file of a run before that starts and when it has ended. At the end of the pipe it kills the process
group whose number the lock file holds, and whatever holds the lock, but not who waits for it. There is no
moment at which a program runs and the watcher does not know of it, and nothing is run between fork and exec.

Where the sweep's folder is not to be seen on the node, its files are in the state folder there, and what
they hold goes back with the result. An attempt that finds the lock of an earlier one held waits for it.
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

from rla_client.config.schema import DATA_ROOT_VARIABLE
from rla_client.contract.descriptors import process_descriptor
from rla_client.contract.files import PRIVATE_FOLDER
from rla_client.contract.paths import find_places
from rla_client.sweep.engines.base import Work, is_released, start_program, tail
from rla_client.sweep.engines.supervisor import BY_SIGNAL, NOT_STARTED

RUN_ID_VARIABLE, RUN_FILE_VARIABLE = "RLA_RUN_ID", "RLA_RUN_FILE"
MAX_OUTPUT_BYTES = 64 << 10  # that travels with a result; Ray sends 100 KiB of one in the reply itself
MAX_ITEMS_BYTES = 1 << 20
MAX_FIRST_LINE_BYTES = 4096
RELEASE_S = 60.0  # for an earlier attempt to be gone; its watcher kills it at once
INTERRUPT_S = 0.5  # Ray's cancelling is seen between two waits
WATCHER = """
exec 3<&0
cd /
{
    while read -r line; do
        case $line in
            /*) cd "$line" ;;
            *) lock=$line ;;
        esac
    done
    [ -n "$lock" ] || exit 0
    read -r group <"$lock" && [ "$group" -gt 1 ] && kill -KILL -- "-$group"
    found=1
    while [ -n "$found" ]; do  # what forked while it was looked for left one for the next round
        found=
        for held in /proc/[0-9]*/fd/*; do
            [ "$held" -ef "$lock" ] || continue
            pid=${held#/proc/}
            pid=${pid%%/*}
            grep -q ^lock: "/proc/$pid/fdinfo/${held##*/}" && kill -KILL "$pid" && found=1
        done
    done
} <&3 &
"""


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a node is told of the sweep.

    Attributes:
        journal: its path, where node and driver share a file system.
        ident: of the sweep; the first line of its journal names it.
        python: the driver's, which runs experiments.
    """

    journal: str
    ident: str
    python: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended on its node.

    Attributes:
        status: as a shell's; None: nothing was started, as an earlier attempt is not gone.
        reason: where it was not started.
        node: its name.
        output: the end of what it printed, where the driver cannot see the file.
        items: likewise the content of RLA_RUN_FILE.
    """

    status: int | None
    reason: str = ""
    node: str = ""
    output: bytes = b""
    items: bytes = b""


def task(packed: bytes) -> bytes:
    """`run_work` as Ray calls it: bytes cost it a tenth of what objects do, and short runs feel that."""
    return pickle.dumps(run_work(*pickle.loads(packed)))  # noqa: S301 - of Ray, which pickles all


def run_work(work: Work, sweep: Sweep, again: bool) -> Outcome:
    """Do one attempt of a run.

    Args:
        work: of the driver's machine.
        sweep: whose run it is.
        again: it is not the first attempt.
    """
    node = socket.gethostname()
    is_shared = _is_shared(sweep)
    here = work if is_shared else _moved(work, sweep)
    if not os.path.isdir(here.folder):
        here = replace(here, folder=os.getcwd())
    if here.command[0] == sweep.python and not os.access(sweep.python, os.X_OK):
        here = replace(here, command=(sys.executable, *here.command[1:]))
    try:
        outcome = _attempt(here, again=again, is_shared=is_shared)
    except OSError as error:
        return Outcome(NOT_STARTED, f"cannot be started on {node}: {error}", node)
    return replace(outcome, node=node) if is_shared else _with_files(outcome, here, node)


def _attempt(work: Work, *, again: bool, is_shared: bool) -> Outcome:
    """One attempt, files and folder being this node's.

    Raises:
        OSError: it cannot be started.
    """
    had_to_wait = not is_released(work.lock, 0.0)
    if had_to_wait and not is_released(work.lock, RELEASE_S):
        return Outcome(None, f"an earlier attempt still runs after {RELEASE_S:.0f} s")
    # the driver has looked whether it finished, unless it cannot, or it did so before this began to wait
    if (had_to_wait or (again and not is_shared)) and _is_finished(work.environment):
        return Outcome(0)
    with _interruptible() as asked:
        if again:
            Path(work.lock).unlink(missing_ok=True)  # its number is that of an earlier group
        _watcher.tell(work.lock)
        try:
            process = start_program(work, {**os.environ, **work.environment}, shell=False)
        except OSError:
            _watcher.tell("")
            raise
        status = _end_of(process, asked)
        with suppress(OSError), open(work.exit, "w", encoding="ascii") as file:  # the driver may be gone
            file.write(f"{status}\n")
        _watcher.tell("")
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


# -- the watcher ---------------------------------------------------------------------------------


class _Watcher:
    """This worker's; its pipe is never closed but by the worker's end."""

    def __init__(self) -> None:
        self._pipe = -1
        self._folder = ""

    def tell(self, lock: str) -> None:
        """Name the lock of what is started now, or none.

        Raises:
            OSError: there is no watcher, or the name cannot be told.
        """
        if "\n" in lock:
            raise OSError(f"a path with a line break: {lock!r}")
        try:
            self._write(lock)
        except BrokenPipeError:  # somebody killed it
            os.close(self._pipe)
            self._pipe = -1
            self._write(lock)

    def _write(self, lock: str) -> None:
        folder, name = os.path.split(lock)
        lines = f"{name}\n"
        if self._pipe < 0:
            self._pipe, self._folder = _start_watcher(), ""
        if folder and folder != self._folder:  # told once, as a shell reads byte by byte
            lines, self._folder = f"{folder}/\n{name}\n", folder
        os.write(self._pipe, lines.encode())


def _start_watcher() -> int:
    """The pipe to a new one."""
    reading, writing = os.pipe()
    try:
        subprocess.run(
            ["/bin/sh", "-c", WATCHER],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    return writing


_watcher = _Watcher()


# -- an earlier attempt --------------------------------------------------------------------------


def _is_finished(environment: Mapping[str, str]) -> bool:
    """Whether the database on this node has a run of this run_id that finished."""
    from rla_client.contract.layout import LOG  # noqa: PLC0415 - of repeated runs alone
    from rla_client.run.find import newest_first  # noqa: PLC0415
    from rla_client.sweep import results  # noqa: PLC0415
    from rla_client.sweep.journal import FINISHED  # noqa: PLC0415

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


# -- nodes that do not see the sweep's folder ------------------------------------------------------


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


def _with_files(outcome: Outcome, work: Work, node: str) -> Outcome:
    """What the driver cannot see; the files go."""
    items = work.environment[RUN_FILE_VARIABLE]
    found = replace(
        outcome, node=node, output=tail(work.output, MAX_OUTPUT_BYTES), items=tail(items, MAX_ITEMS_BYTES)
    )
    if outcome.status is not None:
        for path in (work.output, items, work.exit, work.lock):
            with suppress(OSError):
                os.unlink(path)
        with suppress(OSError):
            os.rmdir(os.path.dirname(work.lock))
    return found
