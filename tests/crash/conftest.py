"""Fixtures of the crash tests: an agent that starts fast and dies often, trainers, a seed that is told."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from crash.zygote import Forked, Zygote
from support.loop_disk import loop_disk  # noqa: F401 - a fixture
from support.oracle import Trainer
from support.waiting import DEADLINE_S

from rla_agent.service.control_client import ask_status
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.spool.segments import stream_names


class BareAgent:
    """`python -m rla_agent.daemon`, without the command line in between."""

    def __init__(self, places: Places, log: Path) -> None:
        self.places = places
        self.log = log
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.started = 0.0

    def spawn(self, *command: str, config: Path | None = None, zygote: Zygote | None = None) -> BareAgent:
        """Start it, under `command` if given, and return at once; or from a zygote, which is faster."""
        arguments = () if config is None else ("--config", str(config))
        if zygote is not None:
            self.started = time.monotonic()
            self.process = zygote.fork("agent", "--background", *arguments, log=self.log)
            return self
        with self.log.open("ab") as log:
            self.started = time.monotonic()
            self.process = subprocess.Popen(
                [*command, sys.executable, "-m", "rla_agent.daemon", "--background", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.getcwd()},
            )
        return self

    def serves(self) -> bool:
        """Whether it answers; fails when it has ended by itself."""
        assert self.process is not None
        assert self.process.poll() is None, f"the agent ended with {self.process.returncode}: {self.tail()}"
        try:
            return bool(ask_status(self.places, DEADLINE_S))
        except RlaError:
            return False

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def kill_traced(self) -> None:
        """SIGKILL for strace and the agent that it started: it does not end with one that it holds up."""
        assert self.process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(self.process.pid).children()
            for process in started:
                process.kill()
            self.kill()
            psutil.wait_procs(started)

    def drain(self, wait_until: Callable[..., object], deadline_s: float = 30.0) -> None:
        """Wait until every stream was taken in to its end and is gone."""

        def empty() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the agent ended: {self.tail()}"
            return not stream_names(self.places.spool)

        wait_until(empty, deadline_s, what=lambda: f"an empty spool; agent: {self.tail()}")

    def tail(self) -> str:
        """The end of its log and output."""
        texts = [
            path.read_text(errors="replace")[-3000:] for path in (self.places.log, self.log) if path.exists()
        ]
        return "\n".join(texts)


@pytest.fixture
def bare_agent(places: Places, tmp_path: Path) -> Iterator[BareAgent]:
    """An agent that is not started yet; killed at the end."""
    agent = BareAgent(places, tmp_path / "bare-agent.log")
    yield agent
    if agent.process is not None and agent.process.poll() is None:
        agent.signal(signal.SIGCONT)
    agent.kill()


@pytest.fixture
def zygote(places: Places) -> Iterator[Zygote]:
    """Forks agents and workloads that need not import anything any more."""
    with Zygote() as one:
        yield one


@pytest.fixture
def trainer(places: Places, tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    """`trainer(name, *arguments)` starts a workload; killed at the end. No agent is started by it."""
    places.stopped_marker.touch()
    made: list[Trainer] = []

    def start(
        name: str, *arguments: str, command: tuple[str, ...] = (), zygote: Zygote | None = None
    ) -> Trainer:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        made.append(Trainer(folder, *arguments, command=command, zygote=zygote))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.kill()


@dataclass(frozen=True, slots=True)
class Bench:
    """What a crash test works with: an agent that is not started yet, trainers, and a folder for them."""

    places: Places
    agent: BareAgent
    train: Callable[..., Trainer]
    wait_until: Callable[..., Any]
    folder: Path

    @property
    def times(self) -> Path:
        """Where a trainer started with `--times` writes how long its calls took."""
        return self.folder / "times"

    def serve(self) -> None:
        """Start the agent, and wait until it answers."""
        self.agent.spawn()
        self.wait_until(self.agent.serves)

    def train_on(self, trainer: Trainer, rows: int) -> None:
        """Wait until more than `rows` rows were logged beyond those of now."""
        target = trainer.told + rows
        self.wait_until(lambda: trainer.told > target, what=f"row {target}, whatever the disks do")

    def end(self, trainer: Trainer) -> None:
        """Stop a trainer, and wait until the agent has taken in everything."""
        trainer.stop()
        self.agent.drain(self.wait_until)


@pytest.fixture
def bench(
    places: Places,
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> Bench:
    """The fixtures that most crash tests need together."""
    return Bench(places, bare_agent, trainer, wait_until, tmp_path)


@pytest.fixture
def chance() -> random.Random:
    """Randomness whose seed is shown when a test fails; set RLA_TEST_SEED to repeat it."""
    seed = int(os.environ.get("RLA_TEST_SEED", time.time_ns() % 1_000_000))
    print(f"RLA_TEST_SEED={seed}")
    return random.Random(seed)
