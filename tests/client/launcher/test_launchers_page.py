"""What docs/how-to/launchers.md shows, run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rla_client.launcher.context import SNAPSHOT_MODES, Options
from rla_client.launcher.settle import settle

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "launchers.md"
TEXT = PAGE.read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_run(agent: object, tmp_path: Path, number: int) -> None:
    program = tmp_path / "launcher.py"
    program.write_text(PROGRAMS[number])
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    if number:
        return
    folder = tmp_path / "data/local/experiment/search_seed=3"
    settle(folder)
    there = {path.name for path in folder.iterdir()}
    rows = TEXT[TEXT.index("This leaves") : TEXT.index("## Going on")]
    shown = {name for name in re.findall(r"`([^`]+)`", rows) if "." in name and "N" not in name} - {
        "params.pkl"
    }
    assert {name for name in shown if "/" not in name} <= there
    assert {"itr_0.pkl", "itr_5.pkl", "itr_10.pkl"} <= there


def test_every_option_and_mode_is_named() -> None:
    for name in (*Options.__dataclass_fields__, *SNAPSHOT_MODES):
        assert f"`{name}`" in TEXT, name
