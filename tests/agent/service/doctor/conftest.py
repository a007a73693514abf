"""Training process for findings that need one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TRAINING = """
import sys, time
from rla_client import exp_manager, logger
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
logger.record_tabular("a", 1)
logger.dump_tabular()
print("up", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts that training, below `tmp_path/data`; it waits for a line."""
    (tmp_path / "data").mkdir()
    made: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", TRAINING, str(tmp_path / "data")]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        made.append(process)
        assert process.stdout is not None
        assert "up\n" in iter(process.stdout.readline, "")
        return process

    yield start
    for process in made:
        process.kill()
        process.communicate()


@pytest.fixture
def training_script() -> str:
    """Python of a training that logs one row to the data root in its arguments, and waits for a line."""
    return TRAINING
