"""A database as our agent writes it, that the tests fill, and `rla` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from support.legacy_database import old_pickle

MakeRun = Callable[..., str]
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path_factory.mktemp("state")))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.delenv("RLA_DATA_ROOT", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty data root with a name that is not easy."""
    folder = tmp_path / "data röot"
    folder.mkdir()
    return folder


@pytest.fixture
def make_run(root: Path) -> MakeRun:
    """Write a run as our agent does; returns its index."""
    return lambda **options: write_run(root, **options)


def write_run(  # noqa: C901, PLR0913 - one option for each thing a test varies
    root: Path,
    *,
    number: int = 0,
    table: str = "task",
    info: str = "&lr=0.1",
    params: dict[str, object] | None = None,
    rows: int = 10,
    state: str | None = "finished",
    updated: float | None = None,
    kinds: tuple[str, ...] = (
        "log",
        "code",
        "checkpoint",
        "archive_tester",
        "hyperparameter",
        "results",
        "tmp_data",
    ),
    spaces: bool = False,
) -> str:
    gap = " " if spaces else "_"
    index = f"2026/11/21/09-30-{number:02}-123456{gap}10.0.0.5{gap}{info}"
    values = {"lr": 0.1, "seed": number} if params is None else params
    opened = datetime(2026, 11, 21, 9, 30, number, 123456).timestamp()  # noqa: DTZ001 - local time
    for kind in kinds:
        folder = root / kind / table / index
        (folder.parent if kind == "archive_tester" else folder).mkdir(parents=True, exist_ok=True)
    if "log" in kinds:
        folder = root / "log" / table / index
        lines = [f"{step * 0.5},{step},{opened + step}" for step in range(rows)]
        (folder / "progress.csv").write_text("\n".join(["return,time-step,timestamp", *lines]) + "\n")
        (folder / "backup.txt").write_text("[BACKUP] 0 : key: lr, value: 0.1\n")
        (folder / "log.txt").write_text("first line\nlast line\n")
        if state is not None:
            when = time.time() if updated is None else updated
            run = {"format": 1, "run_id": f"run{number}", "host": "box", "state": state, "opened": opened}
            run |= {
                "updated": when,
                "time_step": rows - 1,
                "closed": opened + 60,
                "last_row": opened + rows - 1,
            }
            (folder / "run.json").write_text(json.dumps(run))
    if "archive_tester" in kinds:
        content = {"hyper_param": values, "custom_data": {}, "record_date": index[:26], "info": info}
        (root / "archive_tester" / table / f"{index}.json").write_text(json.dumps(content))
    if "hyperparameter" in kinds:
        (root / "hyperparameter" / table / index / "parameter.json").write_text(json.dumps(values))
    if "checkpoint" in kinds:
        for step in (5, 10, 100):
            (root / "checkpoint" / table / index / f"checkpoint_{step}.pt").write_bytes(b"zip")
    if "results" in kinds:
        (root / "results" / table / index / "5-figure.png").write_bytes(b"png")
    if "code" in kinds:
        (root / "code" / table / index / "train.py").write_text(f"seed = {number}\n")
    if "tmp_data" in kinds:
        (root / "tmp_data" / table / index / "x.bin").write_bytes(b"1")
    return index


@pytest.fixture(name="old_pickle")
def old_pickle_fixture() -> Callable[..., bytes]:
    """The bytes of an archived manager as the original's dill writes them."""
    return old_pickle


@pytest.fixture
def rla() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `rla WORDS` in a process of its own."""
    return run_rla


def run_rla(
    *words: str, cwd: Path | None = None, columns: int | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}  # xdist sets it
    environment |= {"COLUMNS": str(columns)} if columns else {}
    environment.setdefault("PYTHONPATH", str(REPOSITORY))
    command = [sys.executable, "-m", "rla_client.cli.app", *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )
