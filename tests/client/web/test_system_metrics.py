"""Samples of system metrics."""

from __future__ import annotations

import pytest
from support.run_files import OneRun


@pytest.mark.parametrize("rows", [3, 100_000])
def test_system_metrics(one: OneRun, rows: int) -> None:
    lines = ["timestamp,seconds,cpu_percent,gpu_percent", *(f"{1000 + n},{n},{n % 7}," for n in range(rows))]
    (one.folder("log") / "system.csv").write_text("\n".join(lines) + "\nhalf a ro")
    found = one.ask("system")["columns"]
    assert list(found) == ["timestamp", "seconds", "cpu_percent"]
    times = found["timestamp"]
    assert times == sorted(set(times))
    assert times[0] < 1100
    assert times[-1] == 1000 + rows - 1
    assert len(times) == (3 if rows == 3 else len(times)) <= 1200
    assert len(times) > 1000 or rows == 3


def test_no_system_metrics_and_broken_ones(one: OneRun) -> None:
    assert one.ask("system") == {"columns": {}}
    (one.folder("log") / "system.csv").write_bytes(b"\xff\x00,,\n" + b"inf,nan,x\n" * 5 + b"9" * (1 << 20))
    assert one.ask("system") == {"columns": {}}
