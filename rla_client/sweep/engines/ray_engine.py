"""Engine of sweeps on Ray.

Ray chooses the node by the cores, memory and GPUs of a run. Restarts are left to the driver. A task, and
with it its program, ends with the driver: `rla sweep resume` restarts these runs, and they continue by
their run_id. A driver that ends normally first asks them to end (SIGTERM).

The cluster is that of the file's `ray:` section, else of RAY_ADDRESS, else a running one on this machine,
else one that is started for the sweep and ends with it:

    ray:
      address: 10.0.0.1:6379          # or auto, or ray://head:10001
      namespace: sweeps
      working_dir: .                  # sent to nodes that have no such folder
      num_cpus: 8                     # of a cluster that is started; likewise num_gpus, object_store_memory
      scheduling_strategy: SPREAD     # or DEFAULT: fill a node first
      accelerator_type: A100
      autoscaling: true               # runs that no node holds wait for one that does

Programs run in the environment of the node, plus the sweep's variables. Nodes need rla-agent, and may or
may not share the folder of the sweep; without it, a run works in the folder of Ray's worker, the last 64
KiB of its output are returned at its end, and its database is on its node.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.filesystem.plain_files import append_line
from rla_client.contract.text.spelling import hint
from rla_client.sweep.engines.attempt_files import is_released
from rla_client.sweep.engines.attempt_process import NOT_STARTED
from rla_client.sweep.engines.base import AttemptEnded, Work
from rla_client.sweep.engines.pace import Pace
from rla_client.sweep.engines.ray_task import Outcome, Sweep, task
from rla_client.sweep.journal import JOURNAL, Journal, SweepError

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
QUEUED = 2  # runs beyond the room of the nodes, or more by their pace
GATHER_S = 0.02  # ends this close are collected together, for hundreds of short runs
NODES_S = 5.0  # between checks of the cluster's size
LEFT_S = 30.0  # for Ray to end the runs of a former driver
UNSEEN_S = 3.0  # the same if the lock is not visible here; Ray needs less than a second
CLOSE_S = 5.0  # for programs to end when the driver ends


class RayEngine:
    """Engine on a Ray cluster.

    Raises:
        SweepError: Ray is not installed or cannot be reached, or the file asks for unavailable resources.
    """

    name = "ray"
    handle = ""

    def __init__(self, spec: Spec, journal: Journal) -> None:
        init, of_task, self._grows = _read_options(spec.options.get("ray", {}))
        self._began = time.monotonic()
        self._journal = journal
        self._parallel = spec.resources.parallel
        self._learns = spec.method == "optuna"  # then trials are chosen only when there is room
        resources = spec.resources
        needs = {
            "CPU": resources.cpus,
            "GPU": resources.gpus,
            "memory": float(resources.memory),
        }  # Ray's names
        self._needs = {name: amount for name, amount in needs.items() if amount}
        if resources.memory:
            of_task["memory"] = resources.memory
        self._ray, self._is_own = _connect(init)
        remote = self._ray.remote(max_retries=0, num_cpus=resources.cpus, num_gpus=resources.gpus, **of_task)
        self._task = remote(task)
        self._sweep = Sweep(str(journal.folder / JOURNAL), journal.ident, sys.executable)
        self._refs: dict[int, Any] = {}
        self._left: dict[int, str] = {}  # locks of living runs of an earlier driver
        self._lost: list[AttemptEnded] = []
        self._pace = Pace()
        self._fits, self._looked = 0, 0.0
        self._left_until = self._began + LEFT_S
        if self._parallel is None or not self._grows:
            self._look()
        if not self._fits and not self._grows:
            self.close()
            needed = ", ".join(f"{amount:g} {name}" for name, amount in self._needs.items())
            raise SweepError(
                f"no node of the Ray cluster holds a run: it takes {needed}\n"
                "hint: `ray: {autoscaling: true}` in the file waits for one that does"
            )

    def room(self) -> int:
        """See `Engine.room`."""
        busy = len(self._refs) + len(self._left)
        if self._parallel is not None:
            return max(self._parallel - busy, 0)
        if time.monotonic() - self._looked > NODES_S:
            self._look()
        return max(max(self._fits, 1) + self._queue() - busy, 0)

    def start(self, works: Sequence[Work]) -> list[str]:
        """See `Engine.start`."""
        for work in works:
            again = self._journal.runs[work.number].attempts > 1
            self._refs[work.number] = self._task.remote(pickle.dumps((work, self._sweep, again)))
        return [""] * len(works)

    def adopt(self, work: Work, handle: str) -> bool:  # noqa: ARG002 - the lock suffices
        """See `Engine.adopt`; waits for Ray to end the run, and adopts it only if it does not end."""
        if not Path(work.lock).exists():  # queued, or not visible here
            time.sleep(max(self._began + UNSEEN_S - time.monotonic(), 0.0))
            return False
        if is_released(work.lock, max(self._left_until - time.monotonic(), 0.0)):
            return False
        self._left[work.number] = work.lock
        return True

    def ended(self, timeout_s: float) -> list[AttemptEnded]:
        """See `Engine.ended`."""
        found, self._lost = self._lost, []
        for number in [number for number, lock in self._left.items() if is_released(lock, 0.0)]:
            del self._left[number]
            found.append(AttemptEnded(number, None))
        timeout_s = 0.0 if found else timeout_s
        if not self._refs:
            time.sleep(timeout_s)
            return found
        refs = {ref: number for number, ref in self._refs.items()}
        waiting = list(refs)
        if self._ray.wait(waiting, num_returns=1, timeout=timeout_s, fetch_local=False)[0]:
            if self._parallel is None:  # otherwise no run is queued
                time.sleep(GATHER_S)
            ready = self._ray.wait(waiting, num_returns=len(waiting), timeout=0.0, fetch_local=False)[0]
            self._pace.count(len(ready))
            found += self._taken([refs[ref] for ref in ready])
        return found

    def stop(self, numbers: Sequence[int], *, kill: bool) -> None:
        """See `Engine.stop`; a run of an earlier driver cannot be signalled, and `kill` gives it up."""
        for number in numbers:
            if number in self._refs:
                self._ray.cancel(self._refs[number], force=kill)
            elif kill and number in self._left:
                del self._left[number]
                self._lost.append(AttemptEnded(number, None, "its former process does not end"))

    def close(self) -> None:
        """See `Engine.close`; no run can continue, so all are asked to end."""
        self.stop(list(self._refs), kill=False)
        deadline = time.monotonic() + CLOSE_S
        while self._refs and (left := deadline - time.monotonic()) > 0:
            self.ended(left)
        self.stop(list(self._refs), kill=True)
        if self._is_own:
            self._ray.shutdown()

    def _look(self) -> None:
        """Update the number of runs that fit on the nodes."""
        self._looked = time.monotonic()
        self._fits = sum(
            min(int(node["Resources"].get(name, 0.0) / amount + 1e-9) for name, amount in self._needs.items())
            for node in self._ray.nodes()
            if node["Alive"]
        )

    def _queue(self) -> int:
        """Number of runs to hand to Ray beyond those that fit."""
        return 0 if self._learns else max(QUEUED, self._pace.ahead())

    def _taken(self, numbers: Sequence[int]) -> list[AttemptEnded]:
        refs = [self._refs.pop(number) for number in numbers]
        try:
            return list(map(self._end_of, numbers, self._ray.get(refs)))
        except self._ray.exceptions.RayError:
            return [self._one(number, ref) for number, ref in zip(numbers, refs, strict=True)]

    def _one(self, number: int, ref: object) -> AttemptEnded:
        try:
            return self._end_of(number, self._ray.get(ref))
        except self._ray.exceptions.RayError as error:
            return _end_by(number, error)

    def _end_of(self, number: int, packed: bytes) -> AttemptEnded:
        """End of a run by its result; stores the files that a node without a shared file system sent."""
        outcome: Outcome = pickle.loads(packed)  # noqa: S301 - from our task
        run = self._journal.runs[number]
        if outcome.output:
            with suppress(OSError):  # only the exit status is essential
                append_line(self._journal.path(run, "txt"), outcome.output)
        path = self._journal.path(run, "items")
        with suppress(OSError):
            known = path.read_bytes().splitlines() if outcome.items and path.exists() else []
            for line in outcome.items.splitlines():
                if line not in known:
                    append_line(path, line + b"\n")
        return AttemptEnded(number, outcome.status, outcome.reason)


def _end_by(number: int, error: BaseException) -> AttemptEnded:
    """End of a run by an exception of Ray."""
    from ray import exceptions  # noqa: PLC0415 - an extra

    text = " ".join(str(error).split())
    if isinstance(error, exceptions.TaskCancelledError):
        return AttemptEnded(number, None)
    if isinstance(error, exceptions.RayTaskError):
        cause = getattr(error, "cause", None)
        return AttemptEnded(number, NOT_STARTED, f"cannot be started: {cause or text}")
    refusals = (exceptions.RuntimeEnvSetupError, exceptions.TaskUnschedulableError)
    if isinstance(error, refusals):
        return AttemptEnded(number, NOT_STARTED, f"cannot be started: {text}")
    return AttemptEnded(number, None, f"{type(error).__name__}: {text}")


def _connect(init: Mapping[str, Any]) -> tuple[Any, bool]:
    """Ray, connected to its cluster, and whether this call connected it.

    Raises:
        SweepError: Ray is not installed, or the cluster cannot be used.
    """
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
    """Options of `ray.init`, options of tasks, and whether the cluster grows.

    Raises:
        SweepError: an option is unknown, or has another type.
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
