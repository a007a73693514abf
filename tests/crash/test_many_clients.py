"""A thousand clients at one agent, and one that floods it: nothing lost, nothing twice, calls stay short."""

# ruff: noqa: E501
from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from crash.conftest import BareAgent
from support.oracle import event_records

from rla_client.contract.agent.places import Places

SCRIPT = Path(__file__).with_name("clients.py")
MOST_MEMORY = 400 << 20
CALL_P99_S = 1e-3  # on a machine where a bare write beside it takes at most a quarter of that
FLOODED_RATIO = 3.0
SCHEDULER_S = 1e-4  # a p99 below this says more of the scheduler than of us
FLOOD = 60_000.0  # rows a second: twice what the agent takes in
FLOODER = 1_000_000  # number of its data root
needs_descriptors = pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 8192, reason="a thousand clients need 8,192 descriptors"
)


@dataclass(frozen=True, slots=True)
class Times:
    """Sorted durations in seconds, of calls and of bare writes beside them."""

    calls: list[float]
    floor: list[float]

    @property
    def p99(self) -> float:
        """Of the calls."""
        return self.calls[int(len(self.calls) * 0.99)]


class Crowd:
    """Processes of clients, and what they logged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._made: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, first: int, count: int, rate: float, seconds: float) -> None:
        """One process with `count` clients."""
        result = self.folder / f"result-{first}.json"
        process = subprocess.Popen(
            [
                sys.executable,
                str(SCRIPT),
                str(self.folder),
                str(first),
                str(count),
                str(rate),
                str(seconds),
                str(result),
            ],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        self._made.append((process, result))

    def go(self, wait_until: Callable[..., object]) -> None:
        """Let all begin, once each has opened its streams."""
        wait_until(
            lambda: len(list(self.folder.glob("ready-*"))) == len(self._made), 120, what="the openings"
        )
        (self.folder / "go").touch()

    def end(self, agent: BareAgent, deadline_s: float) -> tuple[dict[int, int], Times, int]:
        """Wait for all; rows by client, durations of all but the flooder's calls, the agent's most RSS."""
        rows: dict[int, int] = {}
        times, floor = list[float](), list[float]()
        memory = 0
        assert agent.process is not None
        watched = psutil.Process(agent.process.pid)
        for process, result in self._made:
            while process.poll() is None:
                memory = max(memory, watched.memory_info().rss)
                try:
                    process.wait(0.2)
                except subprocess.TimeoutExpired:
                    deadline_s -= 0.2
                    assert deadline_s > 0, "a crowd does not end"
            assert process.returncode == 0
            found = json.loads(result.read_text())
            rows |= {int(number): count for number, count in found["rows"].items()}
            if str(FLOODER) not in found["rows"]:
                times += found["times"]
                floor += found["floor"]
        self._made = []
        return rows, Times(sorted(times), sorted(floor)), memory

    def kill(self) -> None:
        """For a test that fails."""
        for process, _ in self._made:
            process.kill()
            process.wait()

    def compare(self, rows: dict[int, int]) -> None:
        """Each client's CSV and events hold its rows, each once, in order."""
        for number, count in rows.items():
            folder = self.folder / str(number)
            with (folder / "progress.csv").open(newline="") as file:
                assert [row["seq"] for row in csv.DictReader(file)] == [str(seq) for seq in range(count)], (
                    number
                )
            (events,) = (folder / "tb" / "events").iterdir()
            if number % 20 == 0:  # checksums in pure Python take their time
                assert len(event_records(events)) == count + 1


def quantiles(times: list[float]) -> str:
    """In words."""
    p50, p99, p999 = (times[int(len(times) * part)] * 1e6 for part in (0.5, 0.99, 0.999))
    return f"{len(times)} calls: p50 {p50:.0f} us, p99 {p99:.0f} us, p99.9 {p999:.0f} us, max {times[-1] * 1e3:.1f} ms"


def crowd_logs(  # noqa: PLR0913 - fixtures and sizes
    agent: BareAgent,
    wait_until: Callable[..., object],
    folder: Path,
    processes: int,
    clients: int,
    seconds: float,
    *,
    flood: float = 0.0,
) -> Times:
    """Let a crowd log 20 rows/s each and compare every file; returns how long the calls took."""
    crowd = Crowd(folder)
    try:
        for number in range(processes):
            crowd.start(number * clients, clients, 20.0, seconds)
        if flood:
            crowd.start(FLOODER, 1, flood, seconds)
        crowd.go(wait_until)
        rows, times, memory = crowd.end(agent, 120 + 6 * seconds)
    finally:
        crowd.kill()
    agent.drain(wait_until, 600)
    memory = max(memory, psutil.Process(agent.process.pid).memory_info().rss)  # type: ignore[union-attr]
    crowd.compare(rows)
    print(
        f"{processes * clients} clients{' and a flood' if flood else ''}: {sum(rows.values())} rows, each once; "
        f"{quantiles(times.calls)} (a bare write: {quantiles(times.floor)}); agent at most {memory >> 20} MiB"
    )
    assert memory <= MOST_MEMORY
    return times


@pytest.mark.slow
def test_forty_clients(
    places: Places, bare_agent: BareAgent, wait_until: Callable[..., object], tmp_path: Path
) -> None:
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    crowd_logs(bare_agent, wait_until, tmp_path / "crowd", 2, 20, 2, flood=10_000)


@pytest.mark.soak
@needs_descriptors
@pytest.mark.timeout(1800)
def test_a_thousand_clients(
    places: Places, bare_agent: BareAgent, wait_until: Callable[..., object], tmp_path: Path
) -> None:
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    times = crowd_logs(bare_agent, wait_until, tmp_path / "crowd", 10, 100, 60)
    assert times.p99 <= max(CALL_P99_S, 4 * times.floor[int(len(times.floor) * 0.99)])


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_flood_beside_a_hundred_clients(
    places: Places, bare_agent: BareAgent, wait_until: Callable[..., object], tmp_path: Path
) -> None:
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    before = crowd_logs(bare_agent, wait_until, tmp_path / "quiet", 1, 100, 20).p99
    after = crowd_logs(bare_agent, wait_until, tmp_path / "flooded", 1, 100, 20, flood=FLOOD).p99
    print(f"the flood raised the others' p99 from {before * 1e6:.0f} to {after * 1e6:.0f} us")
    assert after <= FLOODED_RATIO * max(before, SCHEDULER_S)
