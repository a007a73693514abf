"""A stage for benchmarks: folders of their own, a real agent on them, figures in one shape."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0


class Stage:
    """Temp folders with state, socket and data; `agent()` starts an agent there. Cleans up at exit."""

    def __init__(self, config: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rla-bench-"))
        self.runtime = Path(tempfile.mkdtemp(prefix="rla-", dir="/tmp"))
        self.data = self.folder / "data"
        self.config = self.folder / "rla_config.yaml"
        self.config.write_text(config)
        self.process: subprocess.Popen[bytes] | None = None
        self.environment = {
            **os.environ,
            "RLA_STATE_DIR": str(self.folder / "state"),
            "RLA_RUNTIME_DIR": str(self.runtime),
            "PYTHONPATH": str(REPOSITORY),
        }
        for name in ("RLA_RUN", "RLA_MODE", "PYTHONDONTWRITEBYTECODE"):
            self.environment.pop(name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_agent()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.runtime, ignore_errors=True)

    @property
    def spool(self) -> Path:
        """Where clients put their streams."""
        return self.folder / "state" / "spool"

    def agent(self) -> int:
        """Start an agent, wait until it serves; its pid."""
        command = [sys.executable, "-m", "rla_agent.daemon", "--config", str(self.config), "--background"]
        self.process = subprocess.Popen(command, env=self.environment)
        wait_until(lambda: (self.runtime / "control.sock").exists(), what="an agent")  # noqa: PLW0108
        return self.process.pid

    def stop_agent(self) -> None:
        """End the agent if there is one."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def client(
        self, *arguments: str, stdout: int | None = subprocess.PIPE
    ) -> subprocess.CompletedProcess[str]:
        """Run the benchmark's own file again as the training process."""
        command = [sys.executable, sys.argv[0], "--client", str(self.folder), *arguments]
        return subprocess.run(command, env=self.environment, stdout=stdout, text=True, check=True)


def wait_until(condition: Callable[[], object], deadline_s: float = DEADLINE_S, *, what: str) -> None:
    """Poll `condition` until it holds.

    Raises:
        TimeoutError: not within `deadline_s` seconds.
    """
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.01)


def quantiles(nanoseconds: Sequence[int]) -> tuple[float, float, float, float]:
    """p50, p99, p99.9 and max in microseconds."""
    ordered = sorted(nanoseconds)
    count = len(ordered)
    return tuple(ordered[min(count - 1, int(count * part))] / 1000 for part in (0.5, 0.99, 0.999, 1.0))  # type: ignore[return-value]


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += tree(int(child))
    return found


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process and its descendants."""
    total = 0
    for one in tree(pid):
        for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total


def written_bytes(pid: int) -> int:
    """Bytes that a process passed to write calls of any kind."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise ValueError(pid)
