"""Readings of the machine's GPUs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

_DRIVER_PATHS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")  # the last one is WSL's
_log = logging.getLogger("rla_agent.system_metrics.gpus")


@cache
def open_nvml() -> ModuleType | None:
    """nvidia-ml-py, ready for use; None without a GPU, or where it is not installed or finds no driver."""
    if not any(os.path.exists(path) for path in _DRIVER_PATHS):
        return None
    try:
        import pynvml  # noqa: PLC0415 - only where there is a GPU
    except ImportError:
        _log.info(
            "there is a GPU, but nvidia-ml-py is not installed: the GPU columns of system.csv stay empty"
        )
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _log.info("no GPU readings: %s", error)
        return None
    ready: ModuleType = pynvml
    return ready


def read_gpus(nvml: ModuleType | None) -> GpuReading:
    """Use and memory of each GPU; unavailable values (MIG, an old one) are left out."""
    if nvml is None:
        return GpuReading()
    gpus: list[tuple[float | None, dict[int, int]]] = []
    with suppress(nvml.NVMLError):
        for index in range(nvml.nvmlDeviceGetCount()):
            percent: float | None = None
            memory: dict[int, int] = {}
            with suppress(nvml.NVMLError):
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                with suppress(nvml.NVMLError):
                    percent = float(nvml.nvmlDeviceGetUtilizationRates(device).gpu)
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):
                    memory[process.pid] = memory.get(process.pid, 0) + (process.usedGpuMemory or 0)
            gpus.append((percent, memory))
    return GpuReading(tuple(gpus))


@dataclass(frozen=True, slots=True)
class GpuReading:
    """Of each GPU: use in percent, None where it does not tell, and bytes of memory by pid."""

    gpus: tuple[tuple[float | None, Mapping[int, int]], ...] = ()

    def of(self, pids: Iterable[int]) -> dict[str, Any]:
        """Values for a process tree: mean use of the GPUs it is on, and memory of its processes.

        Where it is seen on none (it does not compute, or a container hides its pids) the mean is
        that of all GPUs.
        """
        tree = set(pids)
        mine = [gpu for gpu in self.gpus if not tree.isdisjoint(gpu[1])]
        told = [percent for percent, _ in mine or self.gpus if percent is not None]
        used = sum(held for _, memory in mine for pid, held in memory.items() if pid in tree)
        values: dict[str, Any] = {"gpu_memory_bytes": used} if self.gpus else {}
        return values | ({"gpu_percent": sum(told) / len(told)} if told else {})
