"""Runs that the real tools wrote in this test run: `make test-imports` installs them.

Neptune was switched off: its runs are written here as its exporter says that it writes them.
"""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rla_client.database import open as open_database
from rla_client.database.changes.change_lock import changing
from rla_client.database.imports.import_logs import import_logs

pytestmark = pytest.mark.slow
VALUES = [math.sin(step) / 3 for step in range(10)]
CONFIG = {"lr": 0.1, "seed": 3, "api_key": "key-8841-xyz-0042"}


def imported(root: Path, kind: str, path: Path, count: int = 1) -> Any:
    """The first of the runs; imports twice, which doubles nothing."""
    with changing(root, 1000.0):
        first = import_logs(root, kind, path, None, 1000.0)
        made, there, problems = first.made, first.there, first.problems
        assert (len(made), there, problems) == (count, [], [])
        again = import_logs(root, kind, path, None, 1000.0)
        assert (again.made, again.there, again.problems) == ([], made, [])
    return min(open_database(root), key=lambda run: run.index)


def check(run: Any, state: str, table: str = "walk") -> None:
    assert (run.table, run.state) == (table, state)
    frame = run.scalars().set_index("time-step")
    (name,) = (name for name in frame.columns if name.endswith("loss"))
    assert frame[name].dropna().tolist() == VALUES
    assert run.hyper_param.get("lr", run.hyper_param.get("hparams", {}).get("lr")) == 0.1
    for path in Path(run.folder("log")).rglob("*"):
        assert not path.is_file() or b"key-8841" not in path.read_bytes(), path


def test_wandb(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    np = pytest.importorskip("numpy")
    pytest.importorskip("PIL")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for number in range(2):
        run = wandb.init(
            project="walk", name="a run", config=CONFIG, tags=["base line"], notes="why", dir=str(tmp_path)
        )
        for step, value in enumerate(VALUES):
            run.log({"loss": value, "deep": {"x": step}, "odd": math.inf if step else math.nan})
        run.log({"image": wandb.Image(np.zeros((4, 4, 3), dtype=np.uint8))})
        run.summary["best"] = 0.5
        run.finish(exit_code=number * 3)
    found = imported(root, "wandb", tmp_path, 2)
    check(found, "finished")
    assert (found.record.tags, found.record.note) == (("base line",), "why")
    frame = found.scalars()
    assert frame["deep.x"].dropna().tolist() == list(range(10))
    assert list(map(repr, frame["odd"].dropna())) == ["inf"] * 9
    assert frame["best"].dropna().tolist() == [0.5]
    assert [path.suffix for path in Path(found.folder("results")).rglob("*.png")] == [".png"]
    failed = max(open_database(root), key=lambda run: run.index)
    assert (failed.state, failed.record.told["exit_code"]) == ("failed", 3)


def test_wandbs_step_metrics(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's pattern: timings first, then the row that says its step; and a run that says two."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = wandb.init(project="walk", name="one", dir=str(tmp_path))
    run.define_metric("train/global_step")
    run.define_metric("*", step_metric="train/global_step", step_sync=True)
    for step in (10, 20):
        run.log({"profiling/generate": step / 100})
        run.log({"train/loss": 1 / step, "train/global_step": step})
    run.log({"eval/loss": 0.5})
    run.finish()
    found = imported(root, "wandb", tmp_path)
    frame = found.scalars().set_index("time-step")
    assert frame["train/loss"].dropna().to_dict() == {10.0: 0.1, 20.0: 0.05}
    assert frame["profiling/generate"].dropna().to_dict() == {
        0.0: 0.1,
        10.0: 0.2,
    }  # wandb's own: 0 before the first
    assert frame["eval/loss"].dropna().to_dict() == {20.0: 0.5}
    assert found.record.time_step == 20


@pytest.mark.parametrize("store", ["mlruns", "mlflow.db"])
def test_mlflow(store: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    prefix = "sqlite:///" if store.endswith(".db") else "file://"
    mlflow.set_tracking_uri(f"{prefix}{folder / store}")
    mlflow.set_experiment("walk")
    with mlflow.start_run(run_name="a run", tags={"team": "rl core"}, description="why"):
        mlflow.log_params(CONFIG)
        for step, value in enumerate(VALUES):
            mlflow.log_metrics({"train/loss": value}, step=step)
        mlflow.log_metric("odd", math.nan, step=3)
        mlflow.log_metric("same", 1.0, step=0)
        mlflow.log_metric("same", 2.0, step=0)
        mlflow.log_text("hello", "notes/x.txt")
    found = imported(root, "mlflow", folder)
    check(found, "finished")
    assert (found.record.tags, found.record.note) == (("team=rl core",), "why")
    assert found.scalars()["same"].dropna().tolist() == [1.0, 2.0]
    assert Path(found.folder("results"), "notes", "x.txt").read_text() == "hello"


def test_trackio_and_what_it_exports(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "t"))
    trackio = pytest.importorskip("trackio")
    pytest.importorskip("pyarrow")
    trackio.init(project="walk", name="a-run", config=CONFIG)
    for step, value in enumerate(VALUES):
        trackio.log({"loss": value, "odd": math.inf, "step": step})
    trackio.finish()
    check(imported(root, "trackio", tmp_path / "t"), "unknown")
    from trackio.sqlite_storage import SQLiteStorage

    SQLiteStorage.export_for_static_space("walk", tmp_path / "walk")
    other = tmp_path / "other"
    other.mkdir()
    found = imported(other, "trackio", tmp_path / "walk" / "metrics.parquet")
    check(found, "unknown")
    assert set(found.scalars()["odd"]) == {math.inf}


GRPO_IN_TRACKIO = """
import pandas as pd
import trackio
trackio.init(project="walk", name="grpo", config={"lr": 0.1})
for step in (10, 20):
    trackio.log({"train/loss": 1 / step, "train/global_step": step})
    samples = pd.DataFrame({"prompt": ["a", "b"], "turns": [[{"role": "user"}], "x"], "reward": [0.1, step]})
    trackio.log({"val/completions": trackio.Table(dataframe=samples)})
trackio.finish()
"""


def test_trackios_tables_and_the_trainers_steps(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    pytest.importorskip("pandas")
    own = {**os.environ, "TRACKIO_DIR": str(tmp_path / "t")}  # read at its import
    subprocess.run([sys.executable, "-c", GRPO_IN_TRACKIO], env=own, check=True, capture_output=True)
    found = imported(root, "trackio", tmp_path / "t")
    frame = found.scalars().set_index("time-step")
    assert frame["train/loss"].dropna().to_dict() == {10.0: 0.1, 20.0: 0.05}
    assert not [name for name in frame.columns if "completions" in name]
    folder = Path(found.folder("results")) / "val"
    assert sorted(path.name for path in folder.iterdir()) == ["10-completions.csv", "20-completions.csv"]
    lines = (folder / "20-completions.csv").read_text().splitlines()
    assert lines == ["prompt,turns,reward", 'a,"[{""role"": ""user""}]",0.1', "b,x,20.0"]


def test_aim(root: Path, tmp_path: Path) -> None:
    aim = pytest.importorskip("aim")
    if not hasattr(aim, "Run"):
        pytest.skip("aim has no Run")
    run = aim.Run(repo=str(tmp_path), experiment="walk", system_tracking_interval=None)
    run["hparams"] = CONFIG
    run.description = "why"
    run.add_tag("base line")
    for step, value in enumerate(VALUES):
        run.track(value, name="loss", step=step, context={"subset": "train"})
    run.close()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / ".aim").rglob("*")}
    found = imported(root, "aim", tmp_path)
    check(found, "finished")
    assert (found.record.tags, found.record.note) == (("base line",), "why")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / ".aim").rglob("*")} == before


def test_sacred(root: Path, tmp_path: Path) -> None:
    sacred = pytest.importorskip("sacred")
    from sacred.observers import FileStorageObserver

    experiment = sacred.Experiment("walk", save_git_info=False, interactive=True)
    experiment.observers.append(FileStorageObserver(tmp_path / "s"))
    experiment.add_config(CONFIG)
    (tmp_path / "art.txt").write_text("x")

    @experiment.main  # type: ignore[untyped-decorator]
    def main(_run: Any) -> None:
        for step, value in enumerate(VALUES):
            _run.log_scalar("loss", value, step)
        _run.add_artifact(str(tmp_path / "art.txt"))
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError):
        experiment.run(options={"--comment": "why"})
    found = imported(root, "sacred", tmp_path / "s")
    check(found, "failed")
    assert found.record.told["reason"] == "RuntimeError: boom"
    assert (found.record.note, Path(found.folder("results"), "art.txt").read_text()) == ("why", "x")
    about = json.loads(Path(found.folder("log"), "run.json").read_text())
    assert about["imported"] == {"from": "sacred", "id": "1"}


TIME = pa.timestamp("ms", tz="UTC")
EXPORTED = pa.schema({
    "project_id": pa.string(), "run_id": pa.string(),
    "attribute_path": pa.string(), "attribute_type": pa.string(),
    "step": pa.decimal128(18, 6), "timestamp": TIME, "int_value": pa.int64(), "float_value": pa.float64(),
    "string_value": pa.string(), "bool_value": pa.bool_(), "datetime_value": TIME,
    "string_set_value": pa.list_(pa.string()), "file_value": pa.struct({"path": pa.string()}),
    "histogram_value": pa.struct({
        "type": pa.string(), "edges": pa.list_(pa.float64()), "values": pa.list_(pa.float64()),
    }),
})  # fmt: skip
"""What neptune-exporter's README says of its columns."""


def exported(path: Path, run: str, *rows: tuple[Any, ...]) -> None:
    """One Parquet file of it: (name, type, value, step, seconds) of each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = [
        {
            "project_id": "lab/walk", "run_id": run, "attribute_path": name, "attribute_type": kind,
            "step": None if step is None else Decimal(str(step)),
            "timestamp": None if when is None else datetime.fromtimestamp(when, timezone.utc),
            f"{'file' if kind == 'file_set' else kind.removesuffix('_series')}_value": value,
        }
        for name, kind, value, step, when in (*rows,)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(found, EXPORTED), path, compression="snappy")


def one(name: str, kind: str, value: object) -> tuple[Any, ...]:
    return name, kind, value, None, None


def test_neptune(root: Path, tmp_path: Path) -> None:
    data, began = tmp_path / "exports" / "data" / "lab_walk_1a2b", datetime(2025, 3, 1, tzinfo=timezone.utc)
    points = [("train/loss", "float_series", value, step, 1e9 + step) for step, value in enumerate(VALUES)]
    exported(
        data / "WAL-7_part_0.parquet", "WAL-7",
        one("sys/name", "string", "a run"), one("sys/creation_time", "datetime", began),
        one("sys/failed", "bool", value=True), one("sys/tags", "string_set", ["base line"]),
        one("sys/description", "string", "why"), one("sys/owner", "string", "ada"),
        one("lr", "float", 0.1), one("seed", "int", 3), one("api_key", "string", CONFIG["api_key"]),
        one("model", "file", {"path": "model/weights.pt"}), one("gone", "file", {"path": "gone.txt"}),
        one("evil", "file", {"path": "../../secret"}), one("linked", "file", {"path": "link/secret"}),
        one("source_code/files", "file_set", {"path": "code"}), one("lr", "int", None),
        one("theirs", "string", None),
        *points[:6],
    )  # fmt: skip
    exported(
        data / "WAL-7_part_1.parquet", "WAL-7",
        *points[6:],
        ("said", "string_series", "two,\nlines", 2, 1e9), ("odd", "float_series", math.inf, 2.5, 1e9),
        ("weights", "histogram_series", {"type": "COUNTING", "edges": [0, 1], "values": [4]}, 3, 1e9),
    )  # fmt: skip
    exported(data / "WAL-8_part_1.parquet", "WAL-8", one("lr", "float", 1.0))  # killed before its part 0
    (data / "WAL-9_part_0.parquet.tmp").write_bytes(b"PAR1")
    weights = tmp_path / "exports" / "files" / data.name / "model" / "weights.pt"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"w")
    (tmp_path / "exports" / "secret").write_text("x")
    (weights.parent.parent / "link").symlink_to(tmp_path / "exports")
    (weights.parent.parent / "code" / "a").mkdir(parents=True)
    (weights.parent.parent / "code" / "a" / "b.py").write_text("pass")

    found = imported(root, "neptune", tmp_path / "exports")

    check(found, "failed")
    assert (found.record.tags, found.record.note, found.hyper_param["seed"]) == (("base line",), "why", 3)
    assert found.record.opened == began.timestamp()
    frame = found.scalars().set_index("time-step")
    assert frame["odd"].dropna().to_dict() == {2.5: math.inf}
    with Path(found.folder("log"), "progress.csv").open(newline="") as file:
        texts = {
            (name, row["time-step"]): row[name]
            for row in csv.DictReader(file)
            for name in ("said", "weights")
        }
    assert texts["said", "2"] == "two,\nlines"
    assert json.loads(texts["weights", "3"])["values"] == [4]
    results = Path(found.folder("results"))
    files = sorted(str(path.relative_to(results)) for path in results.rglob("*") if path.is_file())
    assert files == ["code/a/b.py", "model/weights.pt"]
    assert "theirs" not in found.hyper_param
    about = json.loads(Path(found.folder("log"), "run.json").read_text())
    assert (about["imported"], about["user"]) == ({"from": "neptune", "id": "WAL-7"}, "ada")


def test_neptune_that_is_damaged(root: Path, tmp_path: Path) -> None:
    exported(tmp_path / "p" / "A-1_part_0.parquet", "A-1", one("lr", "float", 1.0))
    whole = (tmp_path / "p" / "A-1_part_0.parquet").read_bytes()
    (tmp_path / "p" / "A-2_part_0.parquet").write_bytes(whole[:-20])
    pq.write_table(pa.table({"x": [1]}), tmp_path / "p" / "A-3_part_0.parquet")
    with changing(root, 1000.0):
        done = import_logs(root, "neptune", tmp_path, None, 1000.0)
    made, problems = done.made, done.problems
    assert len(made) == 1
    assert ["A-2" in problems[0], "A-3" in problems[1]] == [True, True]


def test_neptunes_runs_of_long_names_are_told_apart(root: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        run = f"experiment-2025-seed-{seed}"
        exported(tmp_path / "p" / f"{run}_part_0.parquet", run, ("loss", "float_series", 0.5, seed, 1e9))
    imported(root, "neptune", tmp_path, count=2)
