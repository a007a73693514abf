"""Fixtures around real processes: folders of their own, a real agent, and a check for leaks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings
from support.marked import MARKER_VARIABLE, processes_of
from support.waiting import DEADLINE_S, TIME_FACTOR, wait_until

from rla_agent.pipeline.volume import VALIDATE_VARIABLE
from rla_agent.service.control_client import ask_status
from rla_client.contract.agent.places import RUNTIME_VARIABLE, STATE_VARIABLE, Places
from rla_client.contract.errors import RlaError
from rla_client.contract.job.arena_layout import ARENA_FOLDER, ARENA_PREFIX, spool_key
from rla_client.run.process_end import ended

pytest_plugins = ["progress"]

# started by nohup or in the background of a script, we and our children would ignore these signals
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# without it, `ray.init` joins a cluster that another test has on this machine
os.environ["RAY_ADDRESS"] = "local"
# of PyTorch and numpy: the nets of tests are small, and several tests run at a time
os.environ.setdefault("OMP_NUM_THREADS", "1")

# how long an example takes depends on what else the machine does
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

SERVES_S = 1.0  # asked for its status so long, and then again
ENDING_S = 30.0  # a niced process on a busy machine may take that long
RLA_VARIABLES = (
    "RLA_RUN",
    "RLA_LAUNCH",
    "RLA_CONSOLE_KEPT",
    "RLA_RELAUNCH",
    "RLA_MODE",
    "RLA_RUN_ID",
    "RLA_RESUME",
    "RLA_RUN_FILE",
    "RANK",
    "SLURM_PROCID",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
)


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[..., Any]:
    """`wait_until(condition, deadline_s, what=...)`, for tests that cannot import conftest."""
    return wait_until


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """State and runtime folders of this test alone, set in the environment; no process may outlive it."""
    runtime = Path(tempfile.mkdtemp(prefix="rla-", dir="/tmp"))  # a socket path has 107 bytes
    found = Places(tmp_path / "state", runtime)
    monkeypatch.setenv(VALIDATE_VARIABLE, "1")
    monkeypatch.setenv(STATE_VARIABLE, str(found.state))
    monkeypatch.setenv(RUNTIME_VARIABLE, str(found.runtime))
    monkeypatch.setenv(MARKER_VARIABLE, runtime.name)
    for name in RLA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    found.create()
    ended.clear()  # of earlier tests, whose agents are gone
    threads = _threads()
    descriptors = _descriptors()
    yield found
    end = time.monotonic() + ENDING_S * TIME_FACTOR  # what watches for its parent's end sees it
    while (left := processes_of(runtime.name)) and time.monotonic() < end:
        time.sleep(0.05)
    told = [_describe(process) for process in left]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=5)
    shutil.rmtree(runtime, ignore_errors=True)
    for arena in Path(ARENA_FOLDER).glob(f"{ARENA_PREFIX}*-{spool_key(found.spool)}-*"):
        arena.unlink(missing_ok=True)  # of a training that was killed, and that no agent came after
    assert not told, f"processes outlived the test: {told}"
    wait_until(lambda: _threads() <= threads, 5, lambda: f"end of threads {_threads() - threads}")

    def leaked() -> list[str]:
        return [name for name in (_descriptors() - descriptors) if str(found.state) in name]

    # a thread in the background (the sync of a blob) closes its file a moment later
    wait_until(lambda: not leaked(), 5, lambda: f"end of descriptors {leaked()}")


class Agent:
    """A real agent process in the foreground, serving `places`."""

    def __init__(self, places: Places, log: Path, arguments: tuple[str, ...] = ()) -> None:
        self.places = places
        self.log = log
        self.arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running agent."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, deadline_s: float = DEADLINE_S) -> Agent:
        """Start it and wait until it answers on its control socket."""
        assert not self.alive, "this agent runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rla_agent", "start", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._serves_or_ended, deadline_s, lambda: f"a serving agent; its log: {self._log_tail()}")
        return self

    def status(self) -> dict[str, Any]:
        """What `rla-agent status --json` prints."""
        done = self.command("status", "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def command(self, *arguments: str, timeout_s: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
        """Run `rla-agent ARGUMENTS` against this agent's folders."""
        return subprocess.run(
            [sys.executable, "-m", "rla_agent", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s * TIME_FACTOR,
            check=False,
        )

    def send_signal(self, number: int) -> None:
        """Send a signal to its process."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end. Does nothing to an ended one."""
        self._end(signal.SIGKILL, DEADLINE_S)

    def stop(self, deadline_s: float = DEADLINE_S) -> int:
        """SIGTERM, wait until it drained; its exit code. It must end within the deadline."""
        return self._end(signal.SIGTERM, deadline_s)

    def restart(self) -> Agent:
        """Kill it if it runs, and start another on the same folders."""
        self.kill()
        return self.start()

    def _end(self, number: signal.Signals, deadline_s: float) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)  # a stopped process would not see SIGTERM
            process.send_signal(number)
        try:
            return process.wait(deadline_s * TIME_FACTOR)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail(f"no end within {deadline_s * TIME_FACTOR:g} s of {number.name}: {self._log_tail()}")

    def _serves_or_ended(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            pytest.fail(f"the agent ended with {self._process.returncode}: {self._log_tail()}")
        if not self.places.control_socket.exists():
            return False
        with contextlib.suppress(RlaError):  # not yet
            return bool(ask_status(self.places, SERVES_S))
        return False

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""


@pytest.fixture
def new_agent(places: Places, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """`new_agent(*arguments)`: an `Agent` that is not started yet; killed at the end of the test."""
    made: list[Agent] = []

    def make(*arguments: str) -> Agent:
        made.append(Agent(places, tmp_path / f"agent-{len(made)}.log", arguments))
        return made[-1]

    yield make
    for agent in made:
        agent.kill()


@pytest.fixture
def agent(new_agent: Callable[..., Agent]) -> Agent:
    """A started agent; killed at the end of the test."""
    return new_agent().start()


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid}: {' '.join(process.cmdline())}"
    except psutil.Error:
        return str(process.pid)


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if not thread.daemon}


def _descriptors() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found
