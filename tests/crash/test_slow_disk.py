"""Slow and frozen disks: the training call does not wait, the agent stays small, its watchdog quiet."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from crash.conftest import Bench
from support.loop_disk import LoopDisk, needs_loop_disk
from support.oracle import Trainer, check_folder
from support.waiting import DEADLINE_S

from rla_agent.service.control_client import ask_status
from rla_agent.service.notifier import BEATS_PER_TIMEOUT
from rla_client.contract.agent.places import STATE_VARIABLE, Places
from rla_client.contract.errors import RlaError

PACE = ("--burst", "20", "--pause", "0.02", "--floor")  # some hundred rows a second
WATCHDOG_S = 10.0  # what the unit files say
BEATS_S = 0.5
MOST_CALL_S = 0.020  # beyond the floor of the same process
MOST_MEMORY = 300 << 20
MOST_LAG_S = 1.0
FOR_EVER_S = 3600.0  # what waits for it hangs the test
ROWS = 200


class Watch:
    """A service manager's end of the notify socket, and the agent's memory, until the end of the block."""

    def __init__(self, path: Path) -> None:
        self.gap_s = 0.0
        self.beats = 0
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
                    self.beats += 1
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
        monkeypatch.setenv("WATCHDOG_USEC", str(int(BEATS_S * BEATS_PER_TIMEOUT * 1e6)))
        yield one


def check_agent(watch: Watch) -> str:
    """The agent stayed small; says how far, and how quiet its watchdog was."""
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


def known(bench: Bench, one: Trainer) -> tuple[int, int]:
    """Bytes of a run's first segment: those durable, and all that the agent sees; -1 without an answer."""
    try:
        found = ask_status(bench.places, DEADLINE_S)
    except RlaError:
        return -1, -1
    runs = {run["run_id"] for run in found["runs"] if run["root"] == str(one.folder)}
    for volume in found["volumes"]:
        for stream in volume["streams"]:
            if stream["run"] in runs:
                durable = stream["durable"][1]
                return durable, durable + stream["lag_bytes"]
    return -1, -1


class Lag:
    """How long it takes until what a run logged is durable, seen through `status`."""

    def __init__(self) -> None:
        self.most_s = 0.0
        self._ends: list[tuple[float, int]] = []

    def look(self, durable: int, end: int) -> None:
        """Compare what is durable now with what was there earlier."""
        if durable < 0:
            return
        now = time.monotonic()
        self._ends.append((now, end))
        while len(self._ends) > 1 and self._ends[1][1] <= durable:
            del self._ends[0]
        if self._ends[0][1] > durable:
            self.most_s = max(self.most_s, now - self._ends[0][0])


def go_on(bench: Bench, watch: Watch, held_up: Trainer, other: Trainer | None = None) -> None:
    """Although the disk below `held_up` never answers, no call, no beat and no other disk waits for it."""
    bench.train_on(held_up, ROWS)
    if other is not None:
        bench.train_on(other, ROWS)
        _, end = bench.wait_until(lambda: (found := known(bench, other))[1] > 0 and found)
        bench.wait_until(
            lambda: known(bench, other)[0] >= end, what="rows that are durable on the other disk"
        )
    some_beats(bench, watch)  # by then a commit that had synced before the disk froze is told of
    durable, _ = known(bench, held_up)
    bench.train_on(held_up, ROWS)
    some_beats(bench, watch)
    assert known(bench, held_up)[0] == durable, "this disk was not held up"


def some_beats(bench: Bench, watch: Watch) -> None:
    beats = watch.beats
    bench.wait_until(lambda: watch.beats >= beats + 3, what="beats for the watchdog")


def freeze_one_of_two(
    bench: Bench, loop_disk: Callable[..., LoopDisk], watch: Watch, seconds: float = 0.0
) -> tuple[float, float, float]:
    """Freeze one data root's disk; the longest call and floor there, and the other's lag, in seconds."""
    frozen, other = loop_disk("frozen"), loop_disk("other")
    bench.serve()
    one = bench.train("frozen/run", "--times", str(bench.times), *PACE)
    two = bench.train("other/run", *PACE)
    for trainer in (one, two):
        bench.wait_until(lambda trainer=trainer: trainer.told > ROWS and known(bench, trainer)[0] > 0)
    assert bench.agent.process is not None
    watch.follow(bench.agent.process.pid)
    lag = Lag()
    frozen.freeze(at_most_s=seconds + FOR_EVER_S)
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            lag.look(*known(bench, two))
            threading.Event().wait(0.05)
        go_on(bench, watch, one, two)
    finally:
        frozen.thaw()
    assert other.folder.is_mount()
    one.stop()
    two.stop()
    bench.agent.drain(bench.wait_until, 60)
    rows = check_folder(one) + check_folder(two)
    times, floor = calls(bench.times)
    print(
        f"data root frozen {seconds:.0f} s: {rows} rows all there, {check_agent(watch)}, "
        f"the other data root at most {lag.most_s:.2f} s behind"
    )
    return times[-1], floor, lag.most_s


@pytest.mark.slow
@pytest.mark.root
@needs_loop_disk
def test_frozen_data_root(bench: Bench, loop_disk: Callable[..., LoopDisk], watch: Watch) -> None:
    freeze_one_of_two(bench, loop_disk, watch)


@pytest.mark.soak
@pytest.mark.root
@needs_loop_disk
def test_data_root_frozen_a_minute(bench: Bench, loop_disk: Callable[..., LoopDisk], watch: Watch) -> None:
    most, floor, lag = freeze_one_of_two(bench, loop_disk, watch, seconds=60)
    assert most <= floor + MOST_CALL_S
    assert lag <= MOST_LAG_S
    assert watch.gap_s < WATCHDOG_S


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def serve_slowly(bench: Bench, watch: Watch, delay_s: float, *only: str) -> int:
    """Start an agent whose syncs, `only` those of some files if given, take `delay_s`; its process id."""
    bench.agent.spawn(
        "strace", "-f", "-qq", "-o", "/dev/null", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", *only,
        "-e", f"inject=fsync,fdatasync:delay_enter={int(delay_s * 1e6)}",
    )  # fmt: skip
    bench.wait_until(bench.agent.serves, 60 + (0 if only else 20 * delay_s))
    (child,) = psutil.Process(bench.agent.process.pid).children()  # type: ignore[union-attr]
    watch.follow(child.pid)
    return child.pid


def kill_and_compare(bench: Bench, watch: Watch, one: Trainer) -> int:
    """Kill the slow agent, let another one take in the rest; the rows that are there."""
    one.stop()
    watch.follow(0)
    bench.agent.kill_traced()
    bench.agent.spawn()
    bench.agent.drain(bench.wait_until)
    return check_folder(one)


@pytest.mark.further
@pytest.mark.slow
@needs_strace
def test_syncs_that_never_return(bench: Bench, watch: Watch) -> None:
    pid = serve_slowly(bench, watch, FOR_EVER_S, "-P", str(bench.folder / "run" / "progress.csv"))
    one = bench.train("run", "--times", str(bench.times), *PACE)
    bench.wait_until(lambda: known(bench, one)[1] > 0)
    go_on(bench, watch, one)
    assert ask_status(bench.places)["agent"]["pid"] == pid
    rows = kill_and_compare(bench, watch, one)
    calls(bench.times)
    print(f"a sync that never returns: {rows} rows all there, {check_agent(watch)}")


@pytest.mark.soak
@needs_strace
@pytest.mark.timeout(600)
def test_each_sync_takes_five_seconds(bench: Bench, watch: Watch) -> None:
    delay_s, seconds = 5, 90
    pid = serve_slowly(bench, watch, delay_s)
    one = bench.train("run", "--times", str(bench.times), *PACE)
    until = time.monotonic() + seconds
    bench.wait_until(lambda: time.monotonic() > until, seconds + 5)
    assert one.told > 10 * seconds, "training stood still"
    assert ask_status(bench.places)["agent"]["pid"] == pid
    rows = kill_and_compare(bench, watch, one)
    times, floor = calls(bench.times)
    print(f"each sync {delay_s} s, for {seconds} s: {rows} rows all there, {check_agent(watch)}")
    assert times[-1] <= floor + MOST_CALL_S
    assert watch.gap_s < WATCHDOG_S


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
