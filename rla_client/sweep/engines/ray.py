"""Runs as tasks of a Ray cluster, one each: the driver's side, and what a task does on its node.

Ray chooses the node by the cores, memory and GPUs that a run takes, and repeats nothing: the driver does.
A task, and so its program, ends with the driver: `rla sweep resume` starts again what ran, and it continues
where it was by its run_id. A driver that ends by itself asks them to end first (SIGTERM).

The cluster is that of the file's `ray:` section, else of RAY_ADDRESS, else the one that runs on this machine,
else one that is started for the sweep and ends with it:

    ray:
      address: 10.0.0.1:6379          # or auto, or ray://head:10001
      namespace: sweeps
      working_dir: .                  # sent to nodes that have no such folder
      num_cpus: 8                     # of a cluster that is started; likewise num_gpus, object_store_memory
      scheduling_strategy: SPREAD     # or DEFAULT: fill a node first
      accelerator_type: A100
      autoscaling: true               # runs that no node holds wait for one that does

Programs run in the environment of the node, with the sweep's variables on top. Nodes need rla-agent, and
share the folder of the sweep or not; where they do not, a run works in the folder of Ray's worker, the last
64 KiB that it printed come back when it has ended, and its database lies on its node.

**On the node** a task starts one run's program, waits for it, and tells how it ended. The program ends with
the Ray worker that started it: the next driver starts the run again, so it must not continue. Each worker has
a watcher for that, a shell of its own session and no child of the worker, which reads from a pipe that the
worker alone holds open. It is told the lock file of a run before that starts and when it has ended. At the
end of the pipe it kills the process group whose number the lock file holds, and whatever holds the lock, but
not who waits for it. There is no moment at which a program runs and the watcher does not know of it, and
nothing is run between fork and exec.

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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.config.project import DATA_ROOT_VARIABLE
from rla_client.contract.agent.places import find_places
from rla_client.contract.filesystem.modes import PRIVATE_FOLDER
from rla_client.contract.filesystem.plain_files import append_line
from rla_client.contract.process.syscalls import process_descriptor
from rla_client.contract.text.spelling import hint
from rla_client.sweep.engines.base import Ended, Pace, Work, is_released, start_program, tail
from rla_client.sweep.engines.supervisor import BY_SIGNAL, NOT_STARTED
from rla_client.sweep.journal import FINISHED, JOURNAL, MAX_ITEMS_BYTES, Journal, SweepError

if TYPE_CHECKING:
    from rla_client.sweep.spec import Spec

INIT = {
    "address": str,
    "namespace": str,
    "working_dir": str,
    "num_cpus": int,
    "num_gpus": int,
    "object_store_memory": int,
}
TASK = {"accelerator_type": str, "scheduling_strategy": str}
AUTOSCALING = "autoscaling"
STRATEGIES = ("DEFAULT", "SPREAD")
QUEUED = 2  # runs beyond what the nodes hold, or as many as their pace says
GATHER_S = 0.02  # ends that are so close are taken together: short runs come by the hundred
NODES_S = 5.0  # between two looks at what the cluster holds
LEFT_S = 30.0  # for Ray to have ended what a driver left
UNSEEN_S = 3.0  # the same, where no lock tells: it takes Ray well below a second
CLOSE_S = 5.0  # for programs to end by themselves when the driver does
RUN_ID_VARIABLE, RUN_FILE_VARIABLE = "RLA_RUN_ID", "RLA_RUN_FILE"
MAX_OUTPUT_BYTES = 64 << 10  # that travels with a result; Ray sends 100 KiB of one in the reply itself
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


class RayEngine:
    """See the module.

    Raises:
        SweepError: Ray is not there or cannot be reached, or the file asks for what it has not.
    """

    name = "ray"
    handle = ""

    def __init__(self, spec: Spec, journal: Journal) -> None:
        init, of_task, self._grows = _read_options(spec.options.get("ray", {}))
        self._began = time.monotonic()
        self._journal = journal
        self._parallel = spec.resources.parallel
        self._learns = spec.method == "optuna"  # then none is chosen before there is room
        takes = spec.resources
        needs = {"CPU": takes.cpus, "GPU": takes.gpus, "memory": float(takes.memory)}  # by Ray's names
        self._needs = {name: amount for name, amount in needs.items() if amount}
        if takes.memory:
            of_task["memory"] = takes.memory
        self._ray, self._is_own = _connect(init)
        remote = self._ray.remote(max_retries=0, num_cpus=takes.cpus, num_gpus=takes.gpus, **of_task)
        self._task = remote(task)
        self._sweep = Sweep(str(journal.folder / JOURNAL), journal.ident, sys.executable)
        self._refs: dict[int, Any] = {}
        self._left: dict[int, str] = {}  # locks of runs that an earlier driver left and that live
        self._lost: list[Ended] = []
        self._pace = Pace()
        self._fits, self._looked = 0, 0.0
        self._left_until = self._began + LEFT_S
        if self._parallel is None or not self._grows:
            self._look()
        if not self._fits and not self._grows:
            self.close()
            told = ", ".join(f"{amount:g} {name}" for name, amount in self._needs.items())
            raise SweepError(
                f"no node of the Ray cluster holds a run: it takes {told}\n"
                "hint: `ray: {autoscaling: true}` in the file waits for one that does"
            )

    def room(self) -> int:
        """As `Engine.room`."""
        busy = len(self._refs) + len(self._left)
        if self._parallel is not None:
            return max(self._parallel - busy, 0)
        if time.monotonic() - self._looked > NODES_S:
            self._look()
        return max(max(self._fits, 1) + self._queue() - busy, 0)

    def start(self, works: Sequence[Work]) -> list[str]:
        """As `Engine.start`."""
        for work in works:
            again = self._journal.runs[work.number].attempts > 1
            self._refs[work.number] = self._task.remote(pickle.dumps((work, self._sweep, again)))
        return [""] * len(works)

    def adopt(self, work: Work, handle: str) -> bool:  # noqa: ARG002 - the lock tells
        """As `Engine.adopt`: none lives, once Ray has ended it; one that does not end is waited for."""
        if not Path(work.lock).exists():  # queued, or not seen here
            time.sleep(max(self._began + UNSEEN_S - time.monotonic(), 0.0))
            return False
        if is_released(work.lock, max(self._left_until - time.monotonic(), 0.0)):
            return False
        self._left[work.number] = work.lock
        return True

    def ended(self, timeout_s: float) -> list[Ended]:
        """As `Engine.ended`."""
        found, self._lost = self._lost, []
        for number in [number for number, lock in self._left.items() if is_released(lock, 0.0)]:
            del self._left[number]
            found.append(Ended(number, None))
        timeout_s = 0.0 if found else timeout_s
        if not self._refs:
            time.sleep(timeout_s)
            return found
        refs = {ref: number for number, ref in self._refs.items()}
        waiting = list(refs)
        if self._ray.wait(waiting, num_returns=1, timeout=timeout_s, fetch_local=False)[0]:
            if self._parallel is None:  # else nothing is queued behind what has ended
                time.sleep(GATHER_S)
            ready = self._ray.wait(waiting, num_returns=len(waiting), timeout=0.0, fetch_local=False)[0]
            self._pace.count(len(ready))
            found += self._taken([refs[ref] for ref in ready])
        return found

    def stop(self, numbers: Sequence[int], *, kill: bool) -> None:
        """As `Engine.stop`; one that an earlier driver left cannot be reached, and is let go of by `kill`."""
        for number in numbers:
            if number in self._refs:
                self._ray.cancel(self._refs[number], force=kill)
            elif kill and number in self._left:
                del self._left[number]
                self._lost.append(Ended(number, None, "its former process does not end"))

    def close(self) -> None:
        """As `Engine.close`: nothing can be left going; what runs is asked to end."""
        self.stop(list(self._refs), kill=False)
        deadline = time.monotonic() + CLOSE_S
        while self._refs and (left := deadline - time.monotonic()) > 0:
            self.ended(left)
        self.stop(list(self._refs), kill=True)
        if self._is_own:
            self._ray.shutdown()

    def _look(self) -> None:
        """See how many runs the nodes hold."""
        self._looked = time.monotonic()
        self._fits = sum(
            min(int(node["Resources"].get(name, 0.0) / amount + 1e-9) for name, amount in self._needs.items())
            for node in self._ray.nodes()
            if node["Alive"]
        )

    def _queue(self) -> int:
        """How many more to hand to Ray than run."""
        return 0 if self._learns else max(QUEUED, self._pace.ahead())

    def _taken(self, numbers: Sequence[int]) -> list[Ended]:
        refs = [self._refs.pop(number) for number in numbers]
        try:
            return list(map(self._told, numbers, self._ray.get(refs)))
        except self._ray.exceptions.RayError:
            return [self._one(number, ref) for number, ref in zip(numbers, refs, strict=True)]

    def _one(self, number: int, ref: object) -> Ended:
        try:
            return self._told(number, self._ray.get(ref))
        except self._ray.exceptions.RayError as error:
            return _end_by(number, error)

    def _told(self, number: int, packed: bytes) -> Ended:
        """The end, once what a node that does not share this file system sent is written down."""
        outcome: Outcome = pickle.loads(packed)  # noqa: S301 - of our task
        run = self._journal.runs[number]
        if outcome.output:
            with suppress(OSError):  # the exit status counts
                append_line(self._journal.path(run, "txt"), outcome.output)
        path = self._journal.path(run, "items")
        with suppress(OSError):
            known = path.read_bytes().splitlines() if outcome.items and path.exists() else []
            for line in outcome.items.splitlines():
                if line not in known:
                    append_line(path, line + b"\n")
        return Ended(number, outcome.status, outcome.reason)


def _end_by(number: int, error: BaseException) -> Ended:
    """What an exception of Ray says of a run."""
    from ray import exceptions  # noqa: PLC0415 - an extra

    said = " ".join(str(error).split())
    if isinstance(error, exceptions.TaskCancelledError):
        return Ended(number, None)
    if isinstance(error, exceptions.RayTaskError):
        cause = getattr(error, "cause", None)
        return Ended(number, NOT_STARTED, f"cannot be started: {cause or said}")
    refusals = (exceptions.RuntimeEnvSetupError, exceptions.TaskUnschedulableError)
    if isinstance(error, refusals):
        return Ended(number, NOT_STARTED, f"cannot be started: {said}")
    return Ended(number, None, f"{type(error).__name__}: {said}")


def _connect(init: Mapping[str, Any]) -> tuple[Any, bool]:
    """Ray, connected to its cluster, and whether this did it; SweepError: it is not installed, or refuses."""
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SweepError(f"Ray is not there: {error}\nhint: pip install 'rla-agent[ray]'") from error
    if ray.is_initialized():
        return ray, False
    try:
        ray.init(**init, log_to_driver=False, include_dashboard=None, logging_level="WARNING")
    except (OSError, ValueError, RuntimeError) as error:  # ConnectionError is an OSError
        where = f" at {init['address']}" if "address" in init else ""
        raise SweepError(
            f"the Ray cluster{where} cannot be used: {error}\n"
            "hint: a cluster that asks for a token wants RAY_AUTH_MODE=token here, too"
        ) from error
    return ray, True


def _read_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """What `ray.init` and what tasks are given, and whether the cluster grows.

    Raises:
        SweepError: there is no such option, or it is of another type.
    """
    kinds = {**INIT, **TASK, AUTOSCALING: bool}
    for name, value in given.items():
        if name not in kinds:
            raise SweepError(f"ray has no option {name!r}\nhint: {hint(name, kinds)}")
        if type(value) is not kinds[name]:
            words = {str: "text", int: "a whole number", bool: "true or false"}
            raise SweepError(f"ray.{name} must be {words[kinds[name]]}, not {value!r}")
    strategy = given.get("scheduling_strategy", STRATEGIES[0])
    if strategy not in STRATEGIES:
        raise SweepError(f"ray.scheduling_strategy knows no {strategy!r}\nhint: {hint(strategy, STRATEGIES)}")
    init = {name: given[name] for name in INIT if name in given}
    if "working_dir" in init:
        init["runtime_env"] = {"working_dir": init.pop("working_dir")}
    return init, {name: given[name] for name in TASK if name in given}, bool(given.get(AUTOSCALING, False))


# -- on the node ----------------------------------------------------------------------------------


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
