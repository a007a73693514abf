"""Time of named blocks."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from rla_client import logger
from rla_client.contract.errors import ArgumentError
from rla_client.manager import ExpManager
from rla_client.run.record import time_tracker
from rla_client.run.record.run_logger import Logger
from rla_client.run.record.time_tracker import ProfileKV, TimeTracker

SPIN_S = 0.01


class Rows:
    """What a logger's next row holds."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pending: dict[str, Any] = {}
        self.excluded: dict[str, Any] = {}

    def record(self, key: str, value: object, exclude: str | tuple[str, ...] | None = None) -> None:
        with self.lock:
            self.pending[key] = value
            self.excluded[key] = exclude

    add = Logger.add  # the real one, with this lock and these values


def spin(seconds: float = SPIN_S) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    time_tracker.clear_time()
    made = Rows()
    monkeypatch.setattr(time_tracker, "get_current", lambda: made)
    return made


def test_time_tracker_counts_calls_and_seconds(rows: Rows) -> None:
    tracker = TimeTracker()
    started = time.perf_counter()
    for _ in range(3):
        with tracker("learn"):
            spin()
    passed = time.perf_counter() - started
    tracker.log()
    row = rows.pending
    assert list(row) == [
        "time_used/total calls/learn", "time_used/total time cost/learn",
        "time_used/time cost per call/learn", "time_used/time cost percentage/learn",
    ]  # fmt: skip
    assert row["time_used/total calls/learn"] == 3
    total = row["time_used/total time cost/learn"]
    assert 3 * SPIN_S <= total <= passed
    assert row["time_used/time cost per call/learn"] == pytest.approx(total / 3)
    assert 0 < row["time_used/time cost percentage/learn"] <= 1
    assert set(rows.excluded.values()) == {("csv",)}


def test_time_tracker_as_decorator_through_recursion_and_errors() -> None:
    tracker = TimeTracker()

    @tracker("f")
    def f(depth: int) -> int:
        spin()
        if depth == 0:
            raise ValueError("bottom")
        return f(depth - 1)

    started = time.perf_counter()
    with pytest.raises(ValueError, match="bottom"):
        f(2)
    passed = time.perf_counter() - started
    info = tracker.get_info()
    assert info["total calls/f"] == 3
    assert 3 * SPIN_S <= info["total time cost/f"] <= passed
    tracker.clear()
    assert tracker.get_info() == {}


def test_time_tracker_in_threads() -> None:
    tracker = TimeTracker()

    def work() -> None:
        for _ in range(200):
            with tracker("work"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.get_info()["total calls/work"] == 800
    assert 0 < tracker.get_info()["total time cost/work"] <= 4 * (time.perf_counter() - started)


def test_open_and_log_time_tracker(rows: Rows) -> None:
    with time_tracker.open_time_tracker("rollout"):
        spin()
    time_tracker.log_time_tracker()
    assert rows.pending["time_used/total calls/rollout"] == 1


def test_time_record(rows: Rows) -> None:
    started = time.perf_counter()
    time_tracker.time_record("epoch")
    spin()
    seconds = time_tracker.time_record_end("epoch")
    assert rows.pending == {"time_used/epoch": seconds}
    assert rows.excluded == {"time_used/epoch": None}
    assert SPIN_S <= seconds <= time.perf_counter() - started
    with pytest.raises(ArgumentError, match="epoch"):
        time_tracker.time_record_end("epoch")


def test_a_new_experiment_forgets_times(rows: Rows) -> None:
    time_tracker.time_record("epoch")
    with time_tracker.time_tracker("old"):
        pass
    time_tracker.clear_time()
    time_tracker.log_time_tracker()
    assert rows.pending == {}
    with pytest.raises(ArgumentError):
        time_tracker.time_record_end("epoch")


def test_profile_adds_seconds_until_the_dump(rows: Rows) -> None:
    started = time.perf_counter()
    for _ in range(2):
        with ProfileKV("step"):
            spin()
    assert list(rows.pending) == ["wait_step"]
    assert 2 * SPIN_S <= rows.pending["wait_step"] <= time.perf_counter() - started
    with pytest.raises(KeyError), ProfileKV("step"):
        raise KeyError
    assert rows.pending["wait_step"] >= 2 * SPIN_S


def test_profile_decorator_keeps_the_function(rows: Rows) -> None:
    @time_tracker.profile("f")
    def f(n: int) -> int:
        """Count down."""
        return 0 if n == 0 else f(n - 1)

    assert (f(3), f.__name__, f.__doc__) == (0, "f", "Count down.")
    assert rows.pending["wait_f"] > 0


class SlowDict(dict[str, Any]):
    """Gives other threads time between reading and writing."""

    def get(self, key: str, default: Any = None) -> Any:
        value = super().get(key, default)
        threading.Event().wait(0.001)
        return value


def test_profile_in_threads_adds_up(rows: Rows) -> None:
    rows.pending = SlowDict()

    def work() -> None:
        for _ in range(5):
            with ProfileKV("work"):
                spin(0.001)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows.pending["wait_work"] >= 15 * 0.001


def test_time_record_and_fph(manager: ExpManager) -> None:
    manager.time_record("rollout")
    assert manager.time_record_end("rollout") >= 0
    assert logger.getkvs()["time_used/rollout"] >= 0
    manager.update_fph(1)
    manager.update_fph(10)
    assert logger.getkvs() == {}
