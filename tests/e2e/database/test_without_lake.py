"""Without pyarrow and DuckDB everything works as if there were no lake; the commands say what to install."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.written_runs import MakeRun

from rla_client.database.lake.build import build

BLOCKED = """
import sys
sys.modules["pyarrow"] = sys.modules["duckdb"] = None
from rla_client.cli import app
sys.argv[0] = "rla"
app.main()
"""


def rla(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, *words], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_without_the_libraries(root: Path, make_run: MakeRun, tmp_path: Path) -> None:
    for number in range(3):
        make_run(number=number)
    build(root, time.time() + 1)
    words = ("--data-root", str(root))
    listed = rla("ls", "--csv", *words)
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) == 4
    assert rla("export", str(tmp_path / "x.csv"), "--metric", "return", *words).returncode == 0
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 31
    for command in (("lake", "build"), ("sql", "SELECT 1")):
        done = rla(*command, *words)
        assert done.returncode == 1
        assert "pip install 'rla-agent[lake]'" in done.stderr


def test_a_quick_command_loads_neither(root: Path, make_run: MakeRun) -> None:
    make_run()
    build(root, time.time() + 1)
    code = "import sys; from rla_client import database; database.open(sys.argv[1]).records(); "
    code += "print([name for name in ('pyarrow', 'duckdb', 'numpy', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
