# ruff: noqa: N802 - names of nvidia-ml-py
"""System samples of a live run's process tree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from rla_agent.system_metrics.gpus import GpuReading, open_nvml, read_gpus
from rla_agent.system_metrics.sample_files import COLUMNS
from rla_agent.system_metrics.sampler import ResourceSampler
from rla_client.contract.spool.opening import Opening


def opening(root: Path, pid: int) -> Opening:
    found = root.stat()
    (root / "log").mkdir(exist_ok=True)
    fields: dict[str, Any] = {
        "run": "r", "epoch": 1, "opened": 1000.0, "root": str(root), "root_device": found.st_dev,
        "root_inode": found.st_ino, "folders": {"log": "log"}, "sinks": ["tensorboard"], "names": {},
        "primary": True, "label": "", "pid": pid, "host": os.uname().nodename, "user": "u", "python": "",
        "client": "0", "rows": 0, "lost": 0,
    }  # fmt: skip
    return Opening.from_fields(fields)


@pytest.fixture
def busy_child() -> Any:
    """A process that burns one core and holds 50 MB, with a child of its own that does the same."""
    code = "import os\nx = bytearray(50 << 20)\nos.fork()\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    yield process.pid
    os.killpg(process.pid, 9)
    process.wait()


def test_samples_add_up_the_process_tree(
    tmp_path: Path, busy_child: int, wait_until: Callable[..., Any]
) -> None:
    run = opening(tmp_path, busy_child)
    sampler = ResourceSampler(lambda: [("stream", run)], 1.0)
    csv = tmp_path / "log" / "system.csv"

    def used() -> bool:
        sampler.sample()
        table = pd.read_csv(csv)
        return bool((table["cpu_percent"] > 0).any() and (table["processes"] == 2).any())

    wait_until(used)
    table = pd.read_csv(csv)
    assert list(table.columns) == list(COLUMNS)
    assert table["rss_bytes"].max() > 50 << 20
    assert table["disk_used_percent"].between(0, 100).all()
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["system.csv"]  # one entry in TensorBoard


def test_a_torn_line_is_overwritten_and_an_ended_process_gives_none(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    run = opening(tmp_path, process.pid)
    sampler = ResourceSampler(lambda: [("stream", run)], 1.0)
    sampler.sample()
    csv = tmp_path / "log" / "system.csv"
    with csv.open("a") as file:
        file.write("123,4")
    sampler.sample()
    assert len(pd.read_csv(csv)) == 2
    process.communicate(b"\n")
    sampler.sample()
    assert len(pd.read_csv(csv)) == 2


def test_a_removed_item_is_not_made_again(tmp_path: Path) -> None:
    run = opening(tmp_path, os.getpid())
    (tmp_path / "log").rmdir()
    ResourceSampler(lambda: [("stream", run)], 1.0).sample()
    assert not (tmp_path / "log").exists()


def test_without_a_gpu_or_its_library_nothing_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """Also with nvidia-ml-py installed where no driver is."""
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a GPU")
    assert open_nvml() is None
    assert read_gpus(open_nvml()).of([os.getpid()]) == {}
    assert not [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]


class Library:
    """The part of nvidia-ml-py that is used: two GPUs, of which the second does not tell its use."""

    class NVMLError(Exception):
        """As there."""

    @staticmethod
    def nvmlDeviceGetCount() -> int:
        return 2

    @staticmethod
    def nvmlDeviceGetHandleByIndex(index: int) -> int:
        return index

    @classmethod
    def nvmlDeviceGetUtilizationRates(cls, device: int) -> SimpleNamespace:
        if device:
            raise cls.NVMLError("Not Supported")
        return SimpleNamespace(gpu=40)

    @staticmethod
    def nvmlDeviceGetComputeRunningProcesses(device: int) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(pid=10 + device, usedGpuMemory=1000),
            SimpleNamespace(pid=20, usedGpuMemory=None if device else 500),
        ]


def test_use_and_memory_are_of_the_trees_gpus() -> None:
    library: Any = Library
    reading = read_gpus(library)
    assert reading == GpuReading(((40.0, {10: 1000, 20: 500}), (None, {11: 1000, 20: 0})))
    assert reading.of([10]) == {"gpu_memory_bytes": 1000, "gpu_percent": 40.0}
    assert reading.of([11]) == {"gpu_memory_bytes": 1000}
    assert reading.of([10, 11, 20]) == {"gpu_memory_bytes": 2500, "gpu_percent": 40.0}
    assert reading.of([99]) == {"gpu_memory_bytes": 0, "gpu_percent": 40.0}
