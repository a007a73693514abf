"""`rla integrate`: the changed scripts train, and their runs have the rows."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Rla = Callable[..., subprocess.CompletedProcess[str]]
SCRIPTS = {  # pattern → script, and the name of a column
    "writer": ("""
import argparse
from tensorboardX import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
args = parser.parse_args()
writer = SummaryWriter("runs/a")
for step in range(3):
    writer.add_scalar("loss", args.lr * step, step)
writer.close()
""", "loss"),
    "wandb": ("""
import wandb

run = wandb.init(project="proj", config={"lr": 0.5})
for step in range(3):
    wandb.log({"loss": 0.5 * step})
wandb.finish()
""", "loss"),
    "prints": ("""
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
args = parser.parse_args()
for step in range(3):
    loss = args.lr * step
    print(f"{step}: loss {loss:.2f}")
""", "loss"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("own_state")
@pytest.mark.parametrize("pattern", SCRIPTS)
def test_a_changed_script_records_what_it_logs(rla: Rla, tmp_path: Path, pattern: str) -> None:
    script, column = SCRIPTS[pattern]
    path = tmp_path / "walk.py"
    path.write_text(script)
    path.chmod(0o755)
    shown = rla("integrate", str(path))
    assert (shown.returncode, path.read_text()) == (0, script), shown.stderr
    facts = json.loads(rla("integrate", str(path), "--write", "--json").stdout)
    assert facts["changed"]
    assert facts["diff"].splitlines() == shown.stdout.splitlines()
    assert path.stat().st_mode & 0o111
    assert "nothing to change" in rla("integrate", str(path), "--write").stdout

    environment = {**os.environ, "RLA_DATA_ROOT": str(tmp_path / "data")}
    subprocess.run([sys.executable, path], cwd=tmp_path, env=environment, check=True, capture_output=True)
    drained = subprocess.run(
        [Path(sys.executable).with_name("rla-agent"), "drain"], check=False, capture_output=True, text=True
    )
    assert drained.returncode == 0, drained.stderr
    (table,) = (tmp_path / "data" / "log").rglob("progress.csv")
    rows = list(csv.DictReader(table.open()))
    assert [float(row[column]) for row in rows] == [0.0, 0.5, 1.0]


def test_what_is_no_script(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print 'two'\n")
    for name, told in (("a.py", "cannot be read as Python"), ("b.py", "No such file")):
        done = rla("integrate", str(tmp_path / name))
        assert done.returncode == 1
        assert told in done.stderr
