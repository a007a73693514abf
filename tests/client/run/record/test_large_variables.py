"""Variables by their memory."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from rla_client.run.record.large_variables import large_variables, print_large_memory_variable, size_text

torch = pytest.importorskip("torch", reason="needs PyTorch")
SPIN_S = 0.01


def spin(seconds: float = SPIN_S) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


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
