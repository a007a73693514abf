from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.run import trackers
from rla_client.run.recording import Logger
from rla_client.run.trackers import (
    ProfileKV,
    TimeTracker,
    large_variables,
    print_large_memory_variable,
    size_text,
)

torch = pytest.importorskip("torch", reason="needs PyTorch")

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
    trackers.clear_time()
    made = Rows()
    monkeypatch.setattr(trackers, "get_current", lambda: made)
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
    with trackers.open_time_tracker("rollout"):
        spin()
    trackers.log_time_tracker()
    assert rows.pending["time_used/total calls/rollout"] == 1


def test_time_record(rows: Rows) -> None:
    started = time.perf_counter()
    trackers.time_record("epoch")
    spin()
    seconds = trackers.time_record_end("epoch")
    assert rows.pending == {"time_used/epoch": seconds}
    assert rows.excluded == {"time_used/epoch": None}
    assert SPIN_S <= seconds <= time.perf_counter() - started
    with pytest.raises(ArgumentError, match="epoch"):
        trackers.time_record_end("epoch")


def test_a_new_experiment_forgets_times(rows: Rows) -> None:
    trackers.time_record("epoch")
    with trackers.time_tracker("old"):
        pass
    trackers.clear_time()
    trackers.log_time_tracker()
    assert rows.pending == {}
    with pytest.raises(ArgumentError):
        trackers.time_record_end("epoch")


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
    @trackers.profile("f")
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


# -- memory ------------------------------------------------------------------------------------

MODULE_BUFFER = np.zeros(5 << 20, np.uint8)


class Agent:
    def __init__(self) -> None:
        self.buffer = [np.zeros(1 << 20, np.uint8) for _ in range(4)]
        self.me = self


def test_large_variables_of_the_caller_are_told_largest_first() -> None:
    lines: list[str] = []
    agent = Agent()
    tensor = torch.zeros(3 << 20, dtype=torch.uint8)
    small = list(range(10))
    told = print_large_memory_variable(lines.append)
    assert list(told) == ["MODULE_BUFFER", "agent", "tensor"]
    assert told["agent"] == "4.0 MiB"
    assert lines[0] == f"{'MODULE_BUFFER':>30}:  5.0 MiB"
    assert (small, agent, tensor) is not None


def test_depth_names_the_callers_caller() -> None:
    lines: list[str] = []

    def wrapper() -> dict[str, str]:
        hidden = np.zeros(9 << 20, np.uint8)
        return print_large_memory_variable(lines.append, depth=2) if hidden.size else {}

    outer = np.zeros(2 << 20, np.uint8)
    told = wrapper()
    assert "outer" in told
    assert "hidden" not in told
    assert outer.size


def test_sizes() -> None:
    mib = 1 << 20
    array = np.zeros(4 * mib, np.uint8)
    tensor = torch.zeros(mib, dtype=torch.float32)
    namespace = {
        "array": array,
        "alias": array,
        "view": array[:10],
        "views": [tensor[0], tensor[1]],
        "net": torch.nn.Linear(1024, 1024),
        "many": [bytes(1000) for _ in range(20_000)],
        "module": np,
        "function": spin,
    }
    found = dict(large_variables(namespace))
    assert found.keys() == {"array", "view", "views", "net", "many"}
    assert found["array"] == found["view"] == 4 * mib
    assert found["views"] == pytest.approx(4 * mib, rel=0.01)
    assert found["net"] == pytest.approx(4 * mib, rel=0.05)
    assert found["many"] == pytest.approx(20_000 * 1033, rel=0.05)


def test_hostile_objects_do_not_matter() -> None:
    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __len__(self) -> int:
            raise RuntimeError

    loop: list[Any] = [np.zeros(2 << 20, np.uint8)]
    loop.append(loop)
    found = dict(large_variables({"hostile": Hostile(), "loop": loop}))
    assert found.keys() == {"loop"}


def test_size_text() -> None:
    assert [size_text(value) for value in (0, 1023, 1536, 3 << 20, 5 << 30, 2 << 40)] == [
        "0.0 B", "1023.0 B", "1.5 KiB", "3.0 MiB", "5.0 GiB", "2.0 TiB",
    ]  # fmt: skip
