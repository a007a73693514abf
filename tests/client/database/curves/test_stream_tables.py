"""Several writers of one run: their names, their rows beside each other, the same from every reader."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from support.written_runs import write_run

from rla_client.database.catalogue import Catalogue
from rla_client.database.change_signatures import RACY_NS, Signatures, signed_size
from rla_client.database.curves.chart_points import chart_points
from rla_client.database.curves.progress_csv import read_columns
from rla_client.database.curves.stream_tables import (
    role_variants,
    roles_in,
    run_columns,
    split_role,
    table_of,
    with_role,
)
from rla_client.database.database import Database
from rla_client.mcp.tools import Tools
from rla_client.top.runs_on_screen import RunsOnScreen
from rla_client.web.curve_points import read_curves
from rla_client.web.live_stream import Watcher
from rla_client.web.run_registry import Site

Rla = Callable[..., CompletedProcess[str]]
NOW_NS = 4_000_000_000_000_000_000


@pytest.fixture
def index(root: Path) -> str:
    """A run of a main process with three rows, and of two others, one of which has `return`, too."""
    index = write_run(root, rows=3)
    write_roles(root, index)
    return index


def write_roles(root: Path, index: str) -> None:
    folder = root / "log" / "task" / index
    folder.joinpath("progress.rollout-2.csv").write_text(
        "reward,time-step,timestamp\n7.0,10,1.0\n8.0,20,2.0\n"
    )
    folder.joinpath("progress.rollout-10.csv").write_text(
        "reward,return,time-step,timestamp\n9.0,-1.0,1,1.0\n"
    )
    folder.joinpath("progress.old-1.csv").write_text("reward,time-step\n1.0,1\n")  # set aside by the agent


def test_names_of_metrics_of_roles() -> None:
    assert split_role("rollout/len@rank-3") == ("rollout/len", "rank-3")
    assert split_role("a@b@c") == ("a@b", "c")
    for plain in ("loss", "recall@5", "@x", "loss@", "loss@../x"):
        assert split_role(plain) == (plain, "")
    assert with_role("loss", "rank1") == "loss@rank1"
    assert with_role("time-step", "rank1") == "time-step"
    assert table_of("/a/progress.csv", "p1") == "/a/progress.p1.csv"
    assert role_variants("a", ["a", "a@x", "b@x", "a@y", "a@5"]) == ["a@x", "a@y"]


def test_roles_among_files() -> None:
    names = [
        "progress.csv",
        "progress.rank10.csv",
        "progress.rank2.csv",
        "progress.old-1.csv",
        "warn.rank2.txt",
    ]
    names += ["progress.rank2.old-1.csv", "progress.json", "progress.7.csv", "run.json"]
    assert roles_in(names) == ["rank2", "rank10"]


def test_rows_of_one_writer_are_these_alone(root: Path, index: str) -> None:
    path = str(root / "log" / "task" / index / "progress.csv")
    found = run_columns(path, ["reward@rollout-2", "time-step"], read_columns)
    assert {name: column.tolist() for name, column in found.items()} == {
        "reward@rollout-2": [7.0, 8.0],
        "time-step": [10.0, 20.0],
    }
    both = run_columns(path, ["return", "return@rollout-10", "time-step", "gone@rollout-2"], read_columns)
    assert both["time-step"].tolist() == [0.0, 1.0, 2.0, 1.0]
    np.testing.assert_equal(both["return"], [0.0, 0.5, 1.0, np.nan])
    np.testing.assert_equal(both["return@rollout-10"], [np.nan, np.nan, np.nan, -1.0])
    (root / "log" / "task" / index / "progress.csv").unlink()
    assert run_columns(path, ["reward@rollout-10"], read_columns)["reward@rollout-10"].tolist() == [9.0]
    with pytest.raises(FileNotFoundError):
        run_columns(path, ["reward@nobody"], read_columns)


def test_a_column_of_that_very_name_comes_first(root: Path, index: str) -> None:
    path = root / "log" / "task" / index / "progress.csv"
    path.write_text("hits@rollout-2,time-step\n0.5,3\n")
    found = run_columns(str(path), ["hits@rollout-2", "time-step"], read_columns)
    assert {name: column.tolist() for name, column in found.items()} == {
        "hits@rollout-2": [0.5],
        "time-step": [3.0],
    }


@pytest.mark.slow
def test_every_command_finds_the_metrics_of_each_writer(root: Path, index: str, rla: Rla) -> None:
    def asked(*words: str) -> str:
        done = rla(words[0], "-d", str(root), *words[1:], columns=200)
        assert done.returncode == 0, done
        return done.stdout

    columns = ("-c", "return,return@rollout-10,reward@rollout-2")
    (row,) = json.loads(asked("ls", "--json", *columns))
    assert [row[name] for name in columns[1].split(",")] == [1.0, -1.0, 8.0]
    assert index in asked("ls", "--where", "reward@rollout-2 > 7 and reward@rollout-10 == 9", "--csv")
    shown = json.loads(asked("show", "@last", "--json"))
    assert shown["metrics"]["reward@rollout-10"] == 9.0
    assert "reward@rollout-2" in asked("show", "@last", "-m", "reward@rollout-2")
    assert {"return", "return@rollout-10", "reward@rollout-2", "reward@rollout-10"} == {
        one["metric"] for one in json.loads(asked("metrics", "--json"))
    }
    (row,) = json.loads(asked("ls", "--json", "-m", "reward", "-m", "return"))
    assert (row["reward@rollout-2"], row["reward@rollout-10"], row["return"]) == (8.0, 9.0, 1.0)
    assert asked("show", "@last", "-m", "reward").count("\nreward@rollout-") == 2
    assert [*Database(root).find("@last").scalars(["reward"])] == ["reward@rollout-2", "reward@rollout-10"]
    asked("export", str(root / "curves.csv"), "-m", "reward", "-m", "return")
    table = list(csv.DictReader(io.StringIO((root / "curves.csv").read_text())))
    assert [(one["metric"], one["role"], float(one["x"]), float(one["value"])) for one in table] == [
        ("reward@rollout-2", "rollout-2", 10.0, 7.0),
        ("reward@rollout-2", "rollout-2", 20.0, 8.0),
        ("reward@rollout-10", "rollout-10", 1.0, 9.0),
        ("return", "", 0.0, 0.0),
        ("return", "", 1.0, 0.5),
        ("return", "", 2.0, 1.0),
    ]
    asked("plot", "reward", "-r", "@last", "-o", str(root / "reward.png"))
    assert (root / "reward.png").stat().st_size > 1000
    query = "SELECT role, metric, step, value FROM rows WHERE metric LIKE 're%@%' ORDER BY value"
    found = [tuple(one.values()) for one in json.loads(asked("sql", query, "--json"))]
    assert found == [
        ("rollout-10", "return@rollout-10", 1.0, -1.0),
        ("rollout-2", "reward@rollout-2", 10.0, 7.0),
        ("rollout-2", "reward@rollout-2", 20.0, 8.0),
        ("rollout-10", "reward@rollout-10", 1.0, 9.0),
    ]


def test_the_lake_keeps_the_rows_of_roles(root: Path, index: str, rla: Rla) -> None:
    for number in range(1, 70):  # enough that curves come from the lake
        write_run(root, number=number % 60, info=f"&n={number}", rows=2)
    assert rla("lake", "build", "-d", str(root)).returncode == 0
    database = Database(root)
    frame = database.curves(database.records(), ["reward@rollout-2", "return"])
    (name,) = {str(one) for one in frame[frame["role"] == "rollout-2"]["index"]}
    assert name == index
    assert frame[frame["metric"] == "return"]["index"].nunique() == 70
    query = "SELECT count(*) AS n FROM rows WHERE role IS NOT NULL AND metric NOT LIKE 'timestamp%'"
    assert json.loads(rla("sql", "-d", str(root), query, "--json").stdout) == [{"n": 4}]
    verified = rla("lake", "verify", "-d", str(root))
    assert verified.returncode == 0, verified


def test_an_assistant_and_the_terminal_find_them(root: Path, index: str) -> None:
    database = Database(root)
    assert "8" in Tools(database).curves(metric="reward@rollout-2")
    points, _ = chart_points(root, "task", index, ["reward@rollout-2", "return"])
    assert points == {
        "reward@rollout-2": [(10.0, 7.0), (20.0, 8.0)],
        "return": [(0.0, 0.0), (1.0, 0.5), (2.0, 1.0)],
    }
    source = RunsOnScreen(root, lambda _: database.records())
    assert "reward@rollout-10" in source.metrics(database.records())
    assert source.curve(("task", index), "reward@rollout-10") == [(1.0, 9.0)]


def test_the_page_follows_each_writer(root: Path) -> None:
    index = write_run(root, state="running", rows=3)
    write_roles(root, index)
    site = Site([root])
    version = site.look(wait=True)
    (curve,) = read_curves(site, site.entries(), "time-step", "reward@rollout-2")
    assert (curve.xs.tolist(), curve.ys.tolist(), curve.rows) == ([10.0, 20.0], [7.0, 8.0], 2)
    cursors = {"return": {"0": 3}, "reward@rollout-2": {"0": 2}}
    page = Watcher(site, {"version": version, "cursors": cursors})
    assert page.look() == []
    folder = root / "log" / "task" / index
    with (folder / "progress.csv").open("a") as file:
        file.write("1.5,3,0\n")
    with (folder / "progress.rollout-2.csv").open("a") as file:
        file.write("9.0,30,3.0\n")
    rows = [data for event, data in page.look() if event == "rows"]
    assert [(data["from"], data["x"], data["y"]) for data in rows] == [
        (3, [3.0], {"return": [1.5]}),
        (2, [30.0], {"reward@rollout-2": [9.0]}),
    ]


def test_a_row_of_a_role_changes_the_signature(root: Path, index: str) -> None:
    def signature(known: str | None = None) -> str:
        with Signatures(root, NOW_NS) as signatures:
            return signatures.of("task", index, known)

    first = signature()
    assert first == signature(first)
    assert first.count("|") == 2
    folder = root / "log" / "task" / index
    size = sum(
        (folder / name).stat().st_size
        for name in ("progress.csv", "progress.rollout-2.csv", "progress.rollout-10.csv")
    )
    told = signed_size(first)
    assert told is not None
    assert told[1] == size
    assert signed_size("no log") is None
    with (folder / "progress.rollout-2.csv").open("a") as file:
        file.write("9.0,30,3.0\n")
    assert signature(first) == signature() != first
    with Catalogue(root, root / "state") as catalogue:
        catalogue.refresh(NOW_NS)
        assert catalogue.record("task", index).metrics["reward@rollout-2"] == 9.0
        with (folder / "progress.rollout-10.csv").open("a") as file:
            file.write("10.0,0.0,2,3.0\n")
        catalogue.refresh(NOW_NS + 2 * RACY_NS)
        assert catalogue.record("task", index).metrics["reward@rollout-10"] == 10.0


def test_a_run_without_rows_of_a_main_process(root: Path, index: str) -> None:
    (root / "log" / "task" / index / "progress.csv").unlink()
    (record,) = Database(root).records()
    assert record.time_step == 20
    assert record.likely == "return@rollout-10"
    assert Database(root).find("@last").scalars(["reward@rollout-10"]).to_numpy().tolist() == [[9.0]]


def test_hostile_tables_of_roles(root: Path, index: str) -> None:
    folder = root / "log" / "task" / index
    (folder / "progress.link.csv").symlink_to("/etc/passwd")
    (folder / "progress.fifo.csv").mkdir()
    (folder / "progress.nul.csv").write_bytes(b"a,time-step\n\0,text\n")
    (folder / "progress.text.csv").write_text("a,time-step\nx,later\n")
    (record,) = Database(root).records()
    assert record.metrics["reward@rollout-2"] == 8.0
    assert record.time_step == 2
    assert len(record.problems) >= 2
