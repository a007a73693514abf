"""SQL over the lake and what is not in it: the same answers with a lake, with half of one, and without."""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from support.waiting import wait_until
from support.written_runs import MakeRun

from rla_client import database
from rla_client.contract.errors import ArgumentError, DatabaseError, UnknownNameError
from rla_client.database.lake import sql_query, sql_session
from rla_client.database.lake.build import build
from rla_client.database.lake.manifest import read_parts
from rla_client.database.records.notes import change_note

duckdb = pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")
QUERIES = (
    "SELECT * EXCLUDE opened FROM runs ORDER BY run",
    "SELECT * FROM params ORDER BY run, name",
    "SELECT * FROM last ORDER BY run, metric",
    "SELECT * FROM rows ORDER BY run, metric, step NULLS FIRST, value",
    "SELECT run, kind, path, bytes FROM files ORDER BY ALL",
    "SELECT * FROM system ORDER BY ALL",
    """SELECT r."table", p.name, avg(w.value) FROM runs r JOIN params p USING (run) JOIN rows w USING (run)
    WHERE w.metric = 'return' GROUP BY ALL ORDER BY ALL""",
)


@pytest.fixture
def filled(root: Path, make_run: MakeRun) -> Path:
    log = root / "log" / "task"
    for number in range(6):
        index = make_run(number=number, state="running" if number == 5 else "finished")
    (log / index / "system.csv").write_text("timestamp,seconds,cpu_percent\n100.0,1,50\n101.0,2,\n")
    odd = make_run(number=7, params={"lr": "0.1", "nested": {"a": [1, 2]}, "big": 10**400, "none": None})
    (log / odd / "progress.csv").write_text(
        'loss,word,time-step\nnan,hello,1\ninf,,2\n,"a,\nb",3\n1e-320,True,4\n'
    )
    chained = make_run(number=8)
    run = json.loads((log / chained / "run.json").read_text())
    parent = {"run": odd, "table": "task", "time_step": 2, "rows": 2, "chain": True}
    (log / chained / "run.json").write_text(json.dumps({**run, "parent": parent}))
    return root


def answers(root: Path) -> list[str]:
    return [repr(database.open(root).sql(query).fetchall()) for query in QUERIES]


@pytest.mark.slow
def test_the_clock_of_a_query_ends_with_it(filled: Path) -> None:
    """A thread that outlives it would be the last to hold the connection, and abort a Python that ends."""
    before = {*threading.enumerate()}
    for _ in range(20):
        database.open(filled).sql(QUERIES[1], timeout_s=60)
        assert {*threading.enumerate()} <= before


def now() -> float:
    return time.time() + 1


@pytest.mark.slow
def test_the_same_with_and_without_a_lake(filled: Path, make_run: MakeRun) -> None:
    without = answers(filled)
    build(filled, now())
    assert len(read_parts(filled)) == 1
    assert answers(filled) == without
    late = make_run(number=20)
    change_note(filled, f"task/{late}", add=["x"])
    half = answers(filled)
    shutil.rmtree(filled / ".rla" / "lake")
    assert answers(filled) == half != without


def test_recorded_nan_is_no_null_and_a_chain_is_one_run(filled: Path) -> None:
    build(filled, now())
    found = database.open(filled).sql("SELECT run, step, value FROM rows WHERE metric = 'loss'").fetchall()
    assert {run.partition("/2026")[0] for run, _, _ in found} == {"task"}
    assert {run[-20:] for run, _, _ in found} == {next(iter(found))[0][-20:]}
    assert [repr(row[1:]) for row in found] == ["(1.0, nan)", "(2.0, inf)"]  # two of the parent's rows count


def test_runs_look_as_in_the_list(filled: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_client.database.lake.build.QUIET_S", 0.0)
    make_run(number=9, state=None)
    build(filled, now())
    make_run(number=10, state=None)
    db = database.open(filled)
    names = ["index", "state", "host", "took", "step", "metric", "value", "note", "tags"]
    found = db.sql(f'SELECT {", ".join(map(sql_name, names))} FROM runs ORDER BY "index"').fetchall()
    expected = [
        (
            one.index, one.shown_state(time.time()), one.host, one.duration_s, one.time_step,
            one.likely or None, one.likely_value, one.note, list(one.tags),
        )
        for one in sorted(db.records(), key=lambda one: one.index)
    ]  # fmt: skip
    assert found == expected


def sql_name(name: str) -> str:
    return f'"{name}"'


def test_frames_of_all_kinds(filled: Path) -> None:
    build(filled, now())
    db = database.open(filled)
    assert len(db.sql("SELECT * FROM runs").df()) == 7
    assert int(db.sql("SELECT count(*) AS n FROM rows").df()["n"][0]) > 50
    assert len(db.lake_files("rows")) == 1
    with pytest.raises(UnknownNameError, match="rows"):
        db.lake_files("row")


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{out}'",
        "SELECT 1; SELECT 2",
        "ATTACH '{out}'",
        "CREATE TABLE x AS SELECT 1",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "PRAGMA memory_limit='1TB'",
        "EXPORT DATABASE '{out}'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('{root}/log/task/**')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM read_parquet('http://localhost:1/x')",
        "SELECT * FROM filled",
        "SELECT getenv('HOME')",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
        "SELECT * FROM rows, read_csv('/etc/passwd')",
        "",
    ],
)
def test_a_query_reads_the_views_alone(filled: Path, tmp_path: Path, query: str) -> None:
    build(filled, now())
    before = sorted(os.listdir(tmp_path))
    with pytest.raises((ArgumentError, DatabaseError)):
        database.open(filled).sql(query.format(out=tmp_path / "out", root=filled)).fetchall()
    assert sorted(os.listdir(tmp_path)) == before


def test_the_lakes_own_files_are_not_written(filled: Path) -> None:
    build(filled, now())
    db = database.open(filled)
    path = db.lake_files("rows")[0]
    before = Path(path).read_bytes()
    for query in (f"COPY (SELECT 1) TO '{path}'", f"EXPLAIN ANALYZE COPY (SELECT * FROM rows) TO '{path}'"):
        with pytest.raises((ArgumentError, DatabaseError)):
            db.sql(query)
    assert Path(path).read_bytes() == before


def test_wrong_names_are_answered_with_the_nearest(filled: Path) -> None:
    db = database.open(filled)
    with pytest.raises(ArgumentError, match="did you mean 'rows'"):
        db.sql("SELECT * FROM row")
    with pytest.raises(ArgumentError, match="state"):
        db.sql("SELECT stat FROM runs")


def test_a_query_that_takes_too_long_ends(filled: Path) -> None:
    with pytest.raises(DatabaseError, match="longer than"):
        database.open(filled).sql(
            "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range % 7 = b.range % 11", 0.3
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "SELECT range(9000000)",
        pytest.param("SELECT repeat('x', 2000000000) FROM range(1000)", marks=pytest.mark.further),
        pytest.param("SELECT [range(1000000) FOR x IN range(1000000)]", marks=pytest.mark.further),
    ],
)
def test_values_that_no_memory_holds(filled: Path, query: str) -> None:
    """DuckDB's own limits do not reach them; the process of the query ends, this one stays small."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DatabaseError, match=r"one row of the result has|longer than 20 s|needs more than"):
        database.open(filled).sql(query, 20.0).fetchall()
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < 512 << 20


def test_a_query_runs_nothing_of_the_current_folder(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "runpy", "types", "operator", "signal"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path / "no text"])  # as notebooks do
    assert database.open(filled).sql("SELECT 1").fetchall() == [(1,)]
    assert not (tmp_path / "ran").exists()


def test_rows_that_are_too_many_for_an_answer(filled: Path) -> None:
    clock = sql_query.Clock(20.0, 1 << 20)
    query = "SELECT range(1000) FROM range(1000)"
    with pytest.raises(DatabaseError, match="the rows asked for have more than 1 MB"):
        sql_query.fetched(database.open(filled).sql(query, clock), 0, clock)


@pytest.mark.slow
def test_the_process_of_a_query_ends_with_it(filled: Path) -> None:
    db = database.open(filled)
    found = db.sql("SELECT i FROM range(100000000) t(i)")
    assert found.fetchmany(2) == [(0,), (1,)]
    process = _child_of_this()
    del found
    gc.collect()
    wait_until(lambda: not psutil.pid_exists(process), what=lambda: "the query's process has ended")


def _child_of_this() -> int:
    (child,) = [one.pid for one in psutil.Process().children() if _runs_a_query(one)]
    return child


def _runs_a_query(process: psutil.Process) -> bool:
    try:
        return any("sql_process" in word for word in process.cmdline())
    except psutil.Error:  # it has ended
        return False


def test_values_come_as_duckdb_gives_them(filled: Path) -> None:
    query = """SELECT sum(i) AS s, 5::HUGEINT AS s, 1.5::DECIMAL(10,2) AS d, MAP {'a': 1} AS m, [1, 2] AS l,
        {'x': 1, 'y': ['z']} AS t, interval 3 days AS v, DATE '2020-01-01' AS w, 'x'::BLOB AS b,
        NULL AS n, 'nan'::DOUBLE < 1 AS f FROM range(3) t(i)"""
    found = database.open(filled).sql(query)
    expected = duckdb.connect().execute(query)
    assert [one[0] for one in found.description or ()] == [one[0] for one in expected.description or ()]
    assert repr(found.fetchall()) == repr(expected.fetchall())


TEXTS = {
    "'10101'::BIT": "10101",
    "'10:00:00.5+02:30'::TIMETZ": "10:00:00.5+02:30",
    "'00:00:00-15:59:59'::TIMETZ": "00:00:00-15:59:59",
    "'12345678-1234-1234-1234-123456789012'::UUID": "12345678-1234-1234-1234-123456789012",
    "NULL::BIT": None,
    "['101'::BIT, NULL]": ["101", None],
    "['101'::BIT]::BIT[1]": ("101",),
    "{'a b\"': '10:00:00+02'::TIMETZ, 'n': 1}": {'a b"': "10:00:00+02", "n": 1},
    "union_value(k := '11'::BIT)": "11",
    "[{'a': ['1'::BIT]}]": [{"a": ["1"]}],
}
NUMBERS = {
    "340282366920938463463374607431768211455::UHUGEINT": 340282366920938463463374607431768211455,
    "(-170141183460469231731687303715884105728)::HUGEINT": -170141183460469231731687303715884105728,
    "[170141183460469231731687303715884105727::HUGEINT]": [170141183460469231731687303715884105727],
    "5::DECIMAL(38,0)": Decimal(5),
}


def test_what_arrow_has_no_type_for_is_what_duckdb_prints(filled: Path) -> None:
    wanted = TEXTS | NUMBERS
    found = database.open(filled).sql(f"SELECT {', '.join(wanted)}")
    assert [(value, type(value)) for value in found.fetchall()[0]] == [
        (value, type(value)) for value in wanted.values()
    ]
    again = database.open(filled).sql(f"SELECT {', '.join(TEXTS)}")
    table = (getattr(again, "to_arrow_table", None) or again.fetch_arrow_table)()  # by DuckDB's age
    assert [column.to_pylist()[0] for column in table.columns] == [
        list(value) if isinstance(value, tuple) else value for value in TEXTS.values()
    ]


def test_what_others_take_does_not_count(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("rla_client.database.lake.sql_query.time.monotonic", lambda: now)
    clock = sql_query.Clock(5.0)
    now += 100.0  # a first look at a large database
    found = database.open(filled).sql("SELECT i FROM range(10) t(i)", clock)
    now += 100.0  # whoever reads the first rows
    assert len(sql_query.fetched(found, 0, clock)) == 10


ENDLESS = "SELECT i FROM range(100000000000) t(i) WHERE i < 5000 OR i = 99999999998"


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--csv"], ["--json"], ["--parquet", "x.parquet"]])
def test_rows_that_take_too_long_end(
    filled: Path, tmp_path: Path, rla: Callable[..., subprocess.CompletedProcess[str]], options: list[str]
) -> None:
    done = rla("sql", ENDLESS, "--timeout", "2", "--data-root", str(filled), *options, cwd=tmp_path)
    assert (done.returncode, "longer than 2 s" in done.stderr) == (1, True), done.stderr
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.further
def test_more_rows_than_a_table_holds(
    filled: Path, rla: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """JSON is printed part by part; a table, which needs all rows at once, is refused."""
    words = ["SELECT i, i * 0.5 AS x FROM range(100001) t(i)", "--data-root", str(filled)]
    expected = [{"i": i, "x": i / 2} for i in range(100_001)]
    assert json.loads(rla("sql", *words, "--json").stdout) == expected
    done = rla("sql", *words, "--json", "-n", "2")
    assert json.loads(done.stdout) == expected[:2]
    assert "more than 2 rows" in done.stderr
    done = rla("sql", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert "more than 100000 rows" in done.stderr
    assert json.loads(rla("sql", "SELECT 1 WHERE false", "--json", *words[1:]).stdout) == []


@pytest.mark.slow
def test_columns_with_one_name_are_told_apart(
    filled: Path, tmp_path: Path, rla: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    words = ["SELECT 1 AS v, 2 AS v, 3 AS v_1, 4 AS v", "--data-root", str(filled)]
    expected = {"v": 1, "v_1": 2, "v_1_1": 3, "v_2": 4}
    assert json.loads(rla("sql", *words, "--json").stdout) == [expected]
    assert rla("sql", *words, "--parquet", "x.parquet", cwd=tmp_path).returncode == 0
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT max(opened) - min(opened) AS age FROM runs", "hint: CAST the column to VARCHAR"),
        ("SELECT 340282366920938463463374607431768211455::UHUGEINT AS n", "hint: CAST the column to VARCHAR"),
        (
            "SELECT CAST(CASE WHEN i = 299999 THEN 'x' ELSE '1' END AS INT) FROM range(300000) t(i)",
            "Could not convert string 'x'",
        ),
    ],
)
def test_what_no_parquet_can_hold(
    filled: Path,
    tmp_path: Path,
    rla: Callable[..., subprocess.CompletedProcess[str]],
    query: str,
    told: str,
) -> None:
    done = rla("sql", query, "--parquet", "x.parquet", "--data-root", str(filled), cwd=tmp_path)
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.parquet"))


def test_a_word_that_is_no_text(filled: Path, rla: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = rla("sql", os.fsdecode(b"SELECT '\xff' AS x"), "--csv", "--data-root", str(filled))
    assert done.stdout == "x\n\ufffd\n"


def test_too_much_outside_the_lake_is_refused(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_session, "MAX_FRESH_BYTES", 100)
    db = database.open(filled)
    with pytest.raises(DatabaseError, match="rla lake build"):
        db.sql("SELECT * FROM rows")
    assert db.sql("SELECT count(*) FROM runs").fetchall() == [(7,)]


@pytest.mark.slow
def test_a_damaged_part_is_read_from_files(filled: Path) -> None:
    expected = answers(filled)
    build(filled, now())
    path = Path(database.open(filled).lake_files("rows")[0])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.warns(UserWarning, match="read instead"):
        assert answers(filled) == expected


@pytest.mark.slow
def test_the_command(
    filled: Path, tmp_path: Path, rla: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    words = ["--data-root", str(filled)]
    assert "another" not in rla("lake", "build", *words).stdout
    query = 'SELECT "index", state FROM runs ORDER BY 1 LIMIT 2'
    assert rla("sql", query, *words).stdout.split()[:2] == ["index", "state"]
    csv = rla("sql", query, "--csv", *words).stdout.splitlines()
    assert csv[0] == "index,state"
    assert len(csv) == 3
    assert [one["state"] for one in json.loads(rla("sql", query, "--json", *words).stdout)] == [
        "finished"
    ] * 2
    file = tmp_path / "query.sql"
    file.write_text("SELECT * FROM rows;\n")
    done = rla("sql", "-f", str(file), "--parquet", str(tmp_path / "rows.parquet"), *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "rows.parquet").stat().st_size > 500
    assert "more than 1 rows" in rla("sql", "SELECT * FROM rows", "-n", "1", *words).stderr
    wrong = rla("sql", "SELECT * FROM row", *words)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "hint: did you mean 'rows'?" in wrong.stderr
    assert "one query" in rla("sql", *words).stderr
    assert "part(s)" in rla("lake", "status", *words).stdout
    assert json.loads(rla("lake", "status", "--json", *words).stdout)["parts"] <= 1
    assert rla("lake", "verify", *words).returncode == 0
    assert rla("lake", "drop", "--yes", *words).returncode == 0
    assert not (filled / ".rla" / "lake" / "manifest.json").exists()
