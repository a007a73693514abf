"""Slow and frozen disks: the training call does not wait, the agent stays small, its watchdog quiet."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from crash.conftest import Bench
from crash.loop_disk import LoopDisk, needs_loop_disk
from crash.oracle import Trainer, check_folder

from rla_agent.control import ask_status
from rla_client.errors import RlaError
from rla_client.places import STATE_VARIABLE, Places

PACE = ("--burst", "20", "--pause", "0.02", "--floor")  # some hundred rows a second
WATCHDOG_S = 10.0  # what the unit files say
MOST_CALL_S = 0.020  # beyond the floor of the same process
MOST_MEMORY = 300 << 20
MOST_LAG_S = 1.0
FROZEN_S = 6.0  # what waits for it is told from what a busy machine holds up


class Watch:
    """A service manager's end of the notify socket, and the agent's memory, until the end of the block."""

    def __init__(self, path: Path) -> None:
        self.gap_s = 0.0
        self.memory = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(0.1)
        self._over = threading.Event()
        self._last = 0.0
        self._pid = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:  # noqa: PYI034
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def follow(self, pid: int) -> None:
        """From now on gaps between beats, and memory, count."""
        self._last = time.monotonic()
        self._pid = pid

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                beat = b"WATCHDOG=1" in self._socket.recv(4096)
            except TimeoutError:
                beat = False
            if self._pid:
                now = time.monotonic()
                self.gap_s = max(self.gap_s, now - self._last)
                if beat:
                    self._last = now
                self.memory = max(self.memory, memory_of(self._pid))


def memory_of(pid: int) -> int:
    """RSS in bytes; 0 once it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


@pytest.fixture
def watch(tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    address = places.runtime / "notify"
    with Watch(address) as one:
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG_S * 1e6)))
        yield one


def check_agent(watch: Watch) -> str:
    """The agent stayed small, and its watchdog quiet; says how far."""
    assert watch.gap_s < WATCHDOG_S
    assert watch.memory <= MOST_MEMORY
    return f"agent at most {watch.memory >> 20} MiB, longest gap between watchdog beats {watch.gap_s:.1f} s"


def calls(path: Path) -> tuple[list[float], float]:
    """How long calls took, in order, and the longest bare write(2) beside them, in seconds."""
    pairs = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
    times = sorted(pair[0] for pair in pairs)
    floor = max(pair[1] for pair in pairs)
    p50, p99, p999 = (times[int(len(times) * part)] * 1e6 for part in (0.5, 0.99, 0.999))
    print(
        f"{len(times)} calls: p50 {p50:.0f} us, p99 {p99:.0f} us, p99.9 {p999:.0f} us, "
        f"max {times[-1] * 1e3:.1f} ms (a bare write: max {floor * 1e3:.1f} ms)"
    )
    return times, floor


class Lag:
    """How long it takes until what a run logged is durable, seen through `status`."""

    def __init__(self, places: Places, folder: Path) -> None:
        self.most_s = 0.0
        self._places = places
        self._folder = str(folder)
        self._ends: list[tuple[float, int]] = []

    def look(self) -> None:
        """Compare what is durable now with what was there earlier."""
        try:
            found = ask_status(self._places, 2.0)
        except RlaError:
            return
        stream = self._stream(found)
        if stream is None:
            return
        now, durable = time.monotonic(), stream["durable"][1]
        self._ends.append((now, durable + stream["lag_bytes"]))
        while len(self._ends) > 1 and self._ends[1][1] <= durable:
            del self._ends[0]
        if self._ends[0][1] > durable:
            self.most_s = max(self.most_s, now - self._ends[0][0])

    def _stream(self, found: dict[str, Any]) -> dict[str, Any] | None:
        runs = {run["run_id"] for run in found["runs"] if run["root"] == self._folder}
        for volume in found["volumes"]:
            for stream in volume["streams"]:
                if stream["run"] in runs and stream["durable"][0] == 1:
                    return stream  # type: ignore[no-any-return]
        return None


def freeze_one_of_two(
    bench: Bench, loop_disk: Callable[..., LoopDisk], watch: Watch, seconds: float
) -> tuple[float, float, float]:
    """Freeze one data root's disk; the longest call and floor there, and the other's lag, in seconds."""
    frozen, other = loop_disk("frozen"), loop_disk("other")
    bench.serve()
    one = bench.train("frozen/run", "--times", str(bench.times), *PACE)
    two = bench.train("other/run", *PACE)
    for trainer in (one, two):
        bench.wait_until(
            lambda trainer=trainer: (trainer.folder / "progress.csv").exists() and trainer.told > 200
        )
    assert bench.agent.process is not None
    watch.follow(bench.agent.process.pid)
    lag_s = lag_while_frozen(bench, frozen, one, two, seconds)
    assert other.folder.is_mount()
    one.stop()
    two.stop()
    bench.agent.drain(bench.wait_until, 60)
    rows = check_folder(one) + check_folder(two)
    times, floor = calls(bench.times)
    print(
        f"data root frozen {seconds:.0f} s: {rows} rows all there, {check_agent(watch)}, "
        f"the other data root at most {lag_s:.2f} s behind"
    )
    return times[-1], floor, lag_s


def lag_while_frozen(bench: Bench, disk: LoopDisk, there: Trainer, other: Trainer, seconds: float) -> float:
    """Freeze a disk for a while, in which training there goes on; how far the other's files fell behind."""
    lag = Lag(bench.places, other.folder)
    disk.freeze(at_most_s=seconds + 30)
    try:
        until, told = time.monotonic() + seconds, there.told
        while time.monotonic() < until:
            lag.look()
            threading.Event().wait(0.05)
        assert there.told > told + 100, "training stood still"
    finally:
        disk.thaw()
    return lag.most_s


@pytest.mark.slow
@pytest.mark.root
@needs_loop_disk
def test_frozen_data_root(bench: Bench, loop_disk: Callable[..., LoopDisk], watch: Watch) -> None:
    most, _, lag = freeze_one_of_two(bench, loop_disk, watch, seconds=FROZEN_S)
    assert most < FROZEN_S - 1, "a call waited for the frozen disk"
    assert lag < FROZEN_S - 1, "the other data root waited for the frozen one"


@pytest.mark.soak
@pytest.mark.root
@needs_loop_disk
def test_data_root_frozen_a_minute(bench: Bench, loop_disk: Callable[..., LoopDisk], watch: Watch) -> None:
    most, floor, lag = freeze_one_of_two(bench, loop_disk, watch, seconds=60)
    assert most <= floor + MOST_CALL_S
    assert lag <= MOST_LAG_S


def slow_syncs(bench: Bench, watch: Watch, delay_s: float, seconds: float) -> tuple[list[float], float]:
    """Let every sync of the agent take `delay_s`; how long calls took, in order, and the floor."""
    bench.agent.spawn(
        "strace", "-f", "-qq", "-o", "/dev/null", "--seccomp-bpf", "-e", "trace=fsync,fdatasync",
        "-e", f"inject=fsync,fdatasync:delay_enter={int(delay_s * 1e6)}",
    )  # fmt: skip
    bench.wait_until(bench.agent.serves, 60 + 20 * delay_s)
    (child,) = psutil.Process(bench.agent.process.pid).children()  # type: ignore[union-attr]
    watch.follow(child.pid)
    one = bench.train("run", "--times", str(bench.times), *PACE)
    until = time.monotonic() + seconds
    bench.wait_until(lambda: time.monotonic() > until, seconds + 5)
    assert one.told > 10 * seconds, "training stood still"
    assert ask_status(bench.places)["agent"]["pid"] == child.pid
    one.stop()
    watch.follow(0)
    bench.agent.kill_traced(bench.wait_until)
    bench.agent.spawn()
    bench.agent.drain(bench.wait_until)
    rows = check_folder(one)
    times, floor = calls(bench.times)
    print(f"each sync {delay_s:.0f} s, for {seconds:.0f} s: {rows} rows all there, {check_agent(watch)}")
    return times, floor


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.mark.slow
@needs_strace
def test_each_sync_takes_a_second(bench: Bench, watch: Watch) -> None:
    bench.serve()
    bench.agent.kill()  # its files are made and synced: the slow start that follows takes half the time
    times, _ = slow_syncs(bench, watch, delay_s=1, seconds=5)
    assert times[-3] < 0.5, "calls waited for syncs"  # one or two may have waited for a busy machine


@pytest.mark.soak
@needs_strace
@pytest.mark.timeout(600)
def test_each_sync_takes_five_seconds(bench: Bench, watch: Watch) -> None:
    times, floor = slow_syncs(bench, watch, delay_s=5, seconds=90)
    assert times[-1] <= floor + MOST_CALL_S


@pytest.mark.slow
@pytest.mark.root
@needs_loop_disk
def test_frozen_spool_disk_is_waited_for_and_costs_nothing_else(
    bench: Bench, loop_disk: Callable[..., LoopDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not promised: the call waits for write(2). How long is told; nothing is lost."""
    disk = loop_disk("state-disk")
    on_disk = Places(disk.folder / "state", bench.places.runtime)
    monkeypatch.setenv(STATE_VARIABLE, str(on_disk.state))
    bench.agent.places = on_disk
    on_disk.create()
    on_disk.stopped_marker.touch()
    bench.serve()
    one = bench.train("run", "--times", str(bench.times), *PACE)
    bench.train_on(one, 200)
    disk.freeze(at_most_s=30)
    try:
        until = time.monotonic() + 2
        bench.wait_until(lambda: time.monotonic() > until)
    finally:
        disk.thaw()
    bench.train_on(one, 200)
    bench.end(one)
    check_folder(one)
    times, _ = calls(bench.times)
    print(f"spool's own disk frozen 2 s: the longest call took {times[-1]:.1f} s")
    assert os.path.ismount(disk.folder)
