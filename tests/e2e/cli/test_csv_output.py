"""Tables that commands write or print: what pandas and the csv module read back is what there was."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from rla_client.contract.text.csv_lines import rows_text
from rla_client.database.changes.change_lock import changing
from rla_client.database.fsck import find_faults
from rla_client.database.fsck_repairs import repair

MakeRun = Callable[..., str]
NAME = "note\rof it"
NOW = time.time()
HARD = ["a\rb", "a\r\nb", "\r", 'say "x",\ny', "line\u2028end"]


@pytest.fixture
def database(root: Path, make_run: MakeRun) -> Path:
    """Runs with hyper-parameters and a metric whose texts are not easy."""
    for number, text in enumerate(HARD):
        index = make_run(number=number, params={NAME: text, "seed": number})
        rows = [[text, step, 1.5] for step in range(3)]
        table = rows_text([["text\rmetric", "time-step", "timestamp"], *rows])
        (root / "log" / "task" / index / "progress.csv").write_bytes(table.encode())
    return root


def rla_bytes(*words: str) -> str:
    """What a command prints, line ends as they are."""
    command = [sys.executable, "-m", "rla_client.cli.app", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    return subprocess.run(command, check=True, capture_output=True, env=environment).stdout.decode()


def columns(text: str, name: str) -> list[list[str]]:
    """A column as the csv module and as pandas read it."""
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    frame = pd.read_csv(io.StringIO(text, newline=""), dtype=str, keep_default_na=False)
    return [[row[name] for row in rows], frame[name].tolist()]


@pytest.mark.slow
def test_printed_tables(database: Path) -> None:
    where = ("--csv", "-d", str(database))
    assert columns(rla_bytes("ls", "-c", f"seed,{NAME}", *where), NAME) == [HARD, HARD]
    text = rla_bytes("compare", "-m", "text\rmetric", *where)
    assert columns(text, NAME) == columns(text, "text\rmetric") == [HARD, HARD]
    (there, again) = columns(rla_bytes("diff", "09-30-00", "09-30-02", *where), "name")
    assert there == again
    assert NAME in there


def test_exported_tables(database: Path, tmp_path: Path) -> None:
    rla_bytes("export", str(tmp_path / "runs.csv"), "-d", str(database))
    text = (tmp_path / "runs.csv").read_bytes().decode()
    assert columns(text, NAME) == columns(text, "text\rmetric") == [HARD, HARD]
    assert "\r\n" not in text.replace("a\r\nb", "")


def test_imported_tables(database: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign.csv").write_bytes(rows_text([["step", NAME], *enumerate(HARD)]).encode())
    rla_bytes("import", "csv", str(tmp_path / "foreign.csv"), "-t", "new", "-d", str(database))
    (path,) = database.glob("log/new/*/*/*/*/progress.csv")
    assert columns(path.read_bytes().decode(), NAME) == [HARD, HARD]


def test_repaired_tables(database: Path) -> None:
    path = min(database.glob("log/task/*/*/*/*/progress.csv"))
    path.write_bytes(path.read_bytes() + b'"x\ry",3\n')
    (fault,) = [fault for fault in find_faults(database, NOW) if fault.kind == "short-rows"]
    with changing(database, NOW):
        repair(database, fault, NOW)
    text = path.read_bytes().decode()
    assert columns(text, "text\rmetric") == [["a\rb"] * 3 + ["x\ry"]] * 2
    assert columns(text, "timestamp")[0] == ["1.5"] * 3 + [""]


def test_the_csv_output_of_dowels_manner(tmp_path: Path) -> None:
    from rla_client.launcher.dowel.log_outputs import CsvOutput
    from rla_client.launcher.dowel.table_input import TabularInput

    output = CsvOutput(tmp_path / "x.csv")
    for number, text in enumerate(HARD):
        row = TabularInput()
        row.record(NAME, text)
        row.record(f"late\r{number}", number)
        output.record(row)
    text = (tmp_path / "x.csv").read_bytes().decode()
    assert columns(text, NAME) == [HARD, HARD]
    assert columns(text, "late\r1")[0] == ["", "1", "", "", ""]
