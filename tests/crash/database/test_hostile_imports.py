"""What somebody else's logs may hold, and an import that is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from support.waiting import wait_until

from rla_client.contract.errors import ArgumentError
from rla_client.database import open as open_database
from rla_client.database.changes.change_lock import changing
from rla_client.database.imports.import_logs import import_logs

Result = tuple[list[str], list[str], list[str]]


def run_import(root: Path, kind: str, path: Path) -> Result:
    with changing(root, 1000.0):
        done = import_logs(root, kind, path, None, 1000.0)
    return done.made, done.there, done.problems


def sacred_run(folder: Path, name: str = "walk", **metrics: Sequence[object]) -> Path:
    folder.mkdir(parents=True)
    begun = f"2026-11-25T03:59:12.{len(list(folder.parent.iterdir())):06}"
    about = {"status": "COMPLETED", "start_time": begun, "experiment": {"name": name}}
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "config.json").write_text('{"lr": 0.1}')
    series = {
        key: {"steps": [*range(len(values))], "timestamps": [begun] * len(values), "values": values}
        for key, values in metrics.items()
    }
    (folder / "metrics.json").write_text(json.dumps(series))
    return folder


def begun(folder: Path, importing: subprocess.Popen[bytes]) -> bool:
    """Whether something is in the folder, or the import has ended."""
    return any(folder.glob("*")) or importing.poll() is not None


def test_evil_names_stay_inside(root: Path, tmp_path: Path) -> None:
    metrics = {'=1+1,"\n': [1.5], "timestamp": [2.0]}
    for number, name in enumerate(["../../up", ".rla", "/etc", "a\nb\0c", "..", "2026", "x" * 500, "\ud800"]):
        sacred_run(tmp_path / "s" / str(number), name, **metrics)
    made, _, problems = run_import(root, "sacred", tmp_path / "s")
    assert (len(made), problems) == (8, [])
    assert len(list(open_database(root))) == 8
    assert {path.name for path in root.iterdir()} == {".rla", "log", "hyperparameter"}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["s", root.name])
    assert list(open_database(root).find("@last").scalars().columns)[:2] == ['=1+1,"_', "_timestamp"]


def test_links_pipes_and_broken_files(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not copy")
    good = sacred_run(tmp_path / "s" / "1", loss=[float("nan"), float("inf"), -0.0, 10**300, 1e-320])
    for name in ("link.png", "cout.txt"):
        (good / name).symlink_to(secret)
    os.mkfifo(good / "pipe")
    (good / "picture.png").write_bytes(b"png")
    sacred_run(tmp_path / "s" / "2", loss=[1]).joinpath("metrics.json").write_text('{"loss": {"steps": [1]}}')
    sacred_run(tmp_path / "s" / "3", loss=[1]).joinpath("config.json").write_text("[" * 100_000)
    with changing(root, 1000.0):
        done = import_logs(root, "sacred", tmp_path / "s", None, 1000.0)
    assert (len(done.made), done.problems) == (3, [])
    assert sorted(text.partition(" ")[0] for text in done.remarks) == ["config.json", "metrics.json"]
    run = open_database(root).find("source=1")
    assert [path.name for path in Path(run.folder("results")).iterdir()] == ["picture.png"]
    assert all(b"do not copy" not in path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert list(map(repr, run.scalars()["loss"].tolist())) == ["nan", "inf", "-0.0", "1e+300", "1e-320"]


def test_databases_that_are_none_or_programs(root: Path, tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"not a database")
    with sqlite3.connect(tmp_path / "b.db") as store:
        store.execute("CREATE TABLE configs (run_id, run_name, config, created_at)")
        store.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT 1 FROM r) SELECT * FROM r"
        )
    with sqlite3.connect(tmp_path / "c.db") as store:
        store.execute("CREATE TABLE configs (run_id, run_name, config, created_at)")
        store.execute("CREATE TABLE metrics (id, run_id, timestamp, run_name, step, metrics)")
        store.execute(
            "INSERT INTO configs VALUES ('../..', '../../..', '{\"lr\": 1}', '2026-11-25T00:00:00Z')"
        )
        store.execute("INSERT INTO metrics VALUES (1, '../..', 'never', 'x', 1, '{}')")
        store.execute("INSERT INTO configs VALUES ('r2', 'r', '{\"lr\": 2}', '2026-11-25T00:00:00Z')")
    before = sorted(tmp_path.iterdir())
    made, _, problems = run_import(root, "trackio", tmp_path)
    assert len(made) == 1
    assert [name in text for name, text in zip(("a.db", "b.db", "c.db"), problems, strict=True)] == [True] * 3
    assert sorted(tmp_path.iterdir()) == before


def framed(*records: bytes) -> bytes:
    return b":W&B\xe1\xbe\x00" + b"".join(
        struct.pack("<IHB", zlib.crc32(b"\x01" + one), len(one), 1) + one for one in records
    )


def field(number: int, data: bytes | int) -> bytes:
    """One field of a protobuf message: bytes, or a small number."""
    key = number << 3 | (2 if isinstance(data, bytes) else 0)
    head = bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])
    return head + (bytes([len(data)]) + data if isinstance(data, bytes) else bytes([data]))


def wandb_item(name: bytes, value: int) -> bytes:
    return field(1, field(2, name) + field(16, b"%d" % value))


WANDB_RUN = field(17, field(1, b"ab12") + field(3, b"walk"))
WANDB_STARTED = field(17, field(1, b"ab12") + field(3, b"walk") + field(17, field(1, 100)))
WANDB_ROWS = [
    field(2, wandb_item(b"loss", step) + wandb_item(b"_step", step)) for step in range(3)
]  # fmt: skip
WANDB_EXIT = field(18, field(1, 3) + field(2, 42))


def test_a_torn_log_of_wandb(root: Path, tmp_path: Path) -> None:
    (tmp_path / "run-ab12.wandb").write_bytes(framed(WANDB_RUN, *WANDB_ROWS)[:-2])
    (tmp_path / "run-x.wandb").write_bytes(framed(b"\xff\xff\xff"))
    with changing(root, 1000.0):
        done = import_logs(root, "wandb", tmp_path, None, 1000.0)
    assert len(done.made) == 1
    assert "run-x.wandb" in done.problems[0]
    ((remark, count),) = done.remarks.items()
    assert ("is cut" in remark, count) == (True, 1)
    found = open_database(root).find("@last")
    assert (found.state, found.scalars()["loss"].tolist()) == ("unknown", [0, 1])


@pytest.mark.parametrize("cut", [True, False])
def test_what_wandb_stores_beside_a_log_that_lacks_it(root: Path, tmp_path: Path, cut: bool) -> None:
    """A log that is cut, or has no history: last values, parameters and duration come from `files/`."""
    folder = tmp_path / "offline-run-20260102_030405-ab12"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "wandb-summary.json").write_text(
        '{"loss": 9.5, "best": 7, "_step": 40, "_runtime": 61.5, "_wandb": {"runtime": 61}}'
    )
    (folder / "files" / "config.yaml").write_text("_wandb: {value: {}}\nlr: {desc: null, value: 0.1}\n")
    log = framed(WANDB_RUN, *WANDB_ROWS)[:-2] if cut else framed(WANDB_RUN, WANDB_EXIT)
    (folder / "run-ab12.wandb").write_bytes(log)
    with changing(root, 1000.0):
        done = import_logs(root, "wandb", tmp_path, None, 1000.0)
    assert (done.problems, len(done.remarks)) == ([], int(cut))
    found = open_database(root).find("@last")
    rows = found.scalars()
    assert (rows["loss"].iloc[-1], rows["best"].iloc[-1], rows["time-step"].iloc[-1]) == (9.5, 7, 40)
    assert found.record.hyper == {"lr": 0.1}
    assert found.state == ("unknown" if cut else "failed")
    assert found.record.duration_s == pytest.approx(61.5)


@pytest.mark.parametrize("log", [b"", b":W&", b":W&B\xe1\xbe\x00"])
def test_a_log_of_wandb_that_is_cut_within_its_header(root: Path, tmp_path: Path, log: bytes) -> None:
    """On a full disk `files/` may be all that there is."""
    folder = tmp_path / "offline-run-20260102_030405-ab12"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "wandb-summary.json").write_text('{"loss": 9.5, "_step": 40, "_runtime": 61.5}')
    (folder / "run-ab12.wandb").write_bytes(log)
    assert run_import(root, "wandb", tmp_path)[2] == []
    rows = open_database(root).find("@last").scalars()
    assert (rows["loss"].tolist(), rows["time-step"].tolist()) == ([9.5], [40])


@pytest.mark.parametrize("newest", [40, 2])
def test_a_log_of_wandb_that_ends_with_a_whole_record(root: Path, tmp_path: Path, newest: int) -> None:
    """Of a run that was killed: no exit, and nothing torn."""
    folder = tmp_path / "offline-run-20260102_030405-ab12"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "wandb-summary.json").write_text(
        f'{{"loss": 9.5, "best": 7, "_step": {newest}, "_runtime": 61.5}}'
    )
    (folder / "files" / "config.yaml").write_text("lr: {desc: null, value: 0.1}\n")
    (folder / "run-ab12.wandb").write_bytes(framed(WANDB_RUN, *WANDB_ROWS))
    with changing(root, 1000.0):
        done = import_logs(root, "wandb", tmp_path, None, 1000.0)
    assert (done.problems, ["is cut" in one for one in done.remarks]) == ([], [True] if newest > 2 else [])
    found = open_database(root).find("@last")
    rows = found.scalars()
    assert (rows["best"].iloc[-1], rows["time-step"].iloc[-1]) == (7, newest)
    assert rows["loss"].tolist() == ([0, 1, 2, 9.5] if newest > 2 else [0, 1, 2])
    assert (found.record.hyper, found.state) == ({"lr": 0.1}, "unknown")
    assert found.record.duration_s == pytest.approx(61.5)


def test_a_log_of_wandb_that_was_cut_before_it_named_its_run(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "offline-run-20260102_030405-ab12"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "wandb-summary.json").write_text('{"loss": 1.5, "_step": 3}')
    (folder / "run-ab12.wandb").write_bytes(framed()[:7])
    assert run_import(root, "wandb", tmp_path)[2] == []
    found = open_database(root).find("@last")
    assert (found.record.date[:19], found.scalars()["loss"].tolist()) == ("2026/01/02/03-04-05", [1.5])


def test_the_latest_run_of_wandb(root: Path, tmp_path: Path) -> None:
    """A link beside its run; where somebody copied what it leads to, it is all there is."""
    log = framed(WANDB_STARTED, *WANDB_ROWS, WANDB_EXIT)
    for name in ("offline-run-20260102_030405-ab12", "latest-run"):
        (tmp_path / "wandb" / name).mkdir(parents=True)
        (tmp_path / "wandb" / name / "run-ab12.wandb").write_bytes(log)
    assert [len(part) for part in run_import(root, "wandb", tmp_path)] == [1, 0, 0]
    (tmp_path / "wandb" / "offline-run-20260102_030405-ab12" / "run-ab12.wandb").unlink()
    for folder in (tmp_path, tmp_path / "wandb", tmp_path / "wandb" / "latest-run"):
        assert [len(part) for part in run_import(root, "wandb", folder)] == [0, 1, 0]


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on(root: Path, tmp_path: Path) -> None:
    for number in range(250):
        sacred_run(tmp_path / "s" / str(number), loss=[0.5 * step for step in range(20)])
    command = [
        sys.executable,
        "-m",
        "rla_client.cli.app",
        "import",
        "sacred",
        str(tmp_path / "s"),
        "-d",
        str(root),
    ]
    for folder in (root / ".rla/copies", root / "log/walk"):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as importing:
            wait_until(partial(begun, folder, importing))
            importing.send_signal(signal.SIGKILL)
        for log in (root / "log").glob(
            "walk/*/*/*/*"
        ):  # whoever has a log has all of it, before any recovery
            assert len((log / "progress.csv").read_text().splitlines()) == 21
            assert (root / "hyperparameter" / log.relative_to(root / "log") / "parameter.json").exists()
    made, there, problems = run_import(root, "sacred", tmp_path / "s")
    assert (len(made) + len(there), problems) == (250, [])
    assert len(list(open_database(root))) == 250
    assert list((root / ".rla" / "copies").iterdir()) == []


def test_nothing_there_is_said(root: Path, tmp_path: Path) -> None:
    for kind in ("wandb", "mlflow", "trackio", "aim", "sacred"):
        with pytest.raises(ArgumentError, match=f"no {kind} logs"):
            run_import(root, kind, tmp_path)
