"""What the tools answer, over a database that the tests write."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rla_client.database
from rla_client.contract.errors import ArgumentError, DatabaseError, RlaError
from rla_client.mcp.answers import MAX_CHARS
from rla_client.mcp.tools import MOST_CURVES, MOST_LINES, MOST_ROWS, Tools

MakeRun = Callable[..., str]


def rows_of(told: str) -> list[dict[str, str]]:
    return list(csv.DictReader(line for line in told.split("\n") if not line.startswith("(")))


def notes_of(told: str) -> list[str]:
    return [line[1:-1] for line in told.split("\n") if line.startswith("(")]


@pytest.fixture
def tools(root: Path, make_run: MakeRun) -> Tools:
    """Over three seeds of two learning rates; the larger one is better, its last seed failed."""
    for number in range(6):
        lr, seed = (0.1, 0.2)[number % 2], number // 2
        make_run(
            number=number,
            info=f"&lr={lr}&seed={seed}",
            params={"lr": lr, "seed": seed, "env": "ant"},
            rows=10 + 10 * (number % 2) + seed,
            state="failed" if number == 5 else "finished",
        )
    return Tools(rla_client.database.open(root))


def test_overview(tools: Tools, make_run: MakeRun) -> None:
    make_run(number=9, table="other", params={"alpha": 1})
    told = tools.overview()
    table, parameters, metrics, likely = told.rsplit("\n", 3)
    assert rows_of(table) == [
        {"table": "other", "runs": "1", "states": "1 finished", "newest": "2026/11/21/09-30-09-123456"},
        {
            "table": "task",
            "runs": "6",
            "states": "5 finished 1 failed",
            "newest": "2026/11/21/09-30-05-123456",
        },
    ]
    assert parameters == "parameters of the newest: alpha"
    assert metrics == "metrics of the newest: return, time-step, timestamp"
    assert likely == "metric that is most likely meant: return"


def test_nothing_there_yet(root: Path) -> None:
    (root / "log").mkdir()
    empty = Tools(rla_client.database.open(root))
    assert empty.overview() == "no runs yet"
    assert empty.runs() == "no runs match"
    assert empty.compare(by=["lr"]) == "no runs match"


def test_runs_newest_first_with_what_differs(tools: Tools) -> None:
    told = tools.runs(limit=2)
    first, second = rows_of(told)
    assert list(first) == ["run", "state", "step", "took", "return", "lr"]
    assert (first["run"], first["state"]) == ("2026/11/21/09-30-05-123456", "failed")
    assert (first["lr"], second["lr"]) == ("0.2", "0.1")
    assert notes_of(told) == ["1 to 2 of 6 runs; offset=2 for more"]
    rest = tools.runs(limit=9, offset=2)
    assert [row["run"][17:19] for row in rows_of(rest)] == ["03", "02", "01", "00"]
    assert notes_of(rest) == []
    assert tools.runs(offset=6) == "only 6 runs match"


def test_an_offset_beyond_all_runs(tools: Tools) -> None:
    assert tools.runs(offset=10**30) == "only 6 runs match"


def test_runs_filtered_and_sorted(tools: Tools) -> None:
    told = tools.runs(where="lr == 0.2", columns=["run", "return", "seed"], sort="return")
    assert [row["seed"] for row in rows_of(told)] == ["2", "1", "0"]
    told = tools.runs(sort="-return", columns=["return"], limit=1)
    assert rows_of(told) == [{"return": "4.5"}]
    assert notes_of(told) == ["1 to 1 of 6 runs; offset=1 for more"]
    assert tools.runs(where="lr > 9") == "no runs match"


def test_compare_ranks_groups_with_intervals(tools: Tools) -> None:
    told = tools.compare(by=["lr"])
    assert rows_of(told) == [
        {
            "lr": "0.2", "runs": "3", "states": "2 finished 1 failed", "return": "10", "ci95": "1.24217",
            "least": "9.5", "largest": "10.5",
        },
        {
            "lr": "0.1", "runs": "3", "states": "3 finished", "return": "5", "ci95": "1.24217",
            "least": "4.5", "largest": "5.5",
        },
    ]  # fmt: skip
    assert notes_of(told) == ["largest mean of the last return first"]  # seeds tell means so far apart
    assert [row["lr"] for row in rows_of(tools.compare(by=["lr"], minimize=True))] == ["0.1", "0.2"]
    told = tools.compare(by=["seed", "lr"], metric="return", limit=1, where="state == 'finished'")
    assert [(row["seed"], row["lr"]) for row in rows_of(told)] == [("1", "0.2")]
    assert notes_of(told)[1:] == ["1 of 5 groups; a higher limit shows more"]


def test_groups_without_a_value_come_last(tools: Tools, make_run: MakeRun) -> None:
    make_run(number=7, info="", params={"lr": 0.3, "seed": 0}, rows=0)
    assert [row["lr"] for row in rows_of(tools.compare(by=["lr"]))] == ["0.2", "0.1", "0.3"]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_groups_that_diverged_come_last(tools: Tools, root: Path, make_run: MakeRun, value: str) -> None:
    for number, last in ((7, "99"), (8, value)):
        index = make_run(number=number, info="", params={"lr": 0.3, "seed": number})
        (root / "log" / "task" / index / "progress.csv").write_text(f"time-step,return\n1,{last}\n")
    told = tools.compare(by=["lr"])
    assert [row["lr"] for row in rows_of(told)] == ["0.2", "0.1", "0.3"]
    for number, last in ((9, "9"), (10, "10.6")):
        index = make_run(number=number, info="", params={"lr": 0.4, "seed": number})
        (root / "log" / "task" / index / "progress.csv").write_text(f"time-step,return\n21,{last}\n")
    assert notes_of(tools.compare(by=["lr"]))[1].startswith("too few seeds to tell lr=0.2 from lr=0.4: ")


def test_run(tools: Tools, root: Path, make_run: MakeRun) -> None:
    lines = tools.run("lr=0.2&seed=1").split("\n")
    assert lines[0] == "run: 2026/11/21/09-30-03-123456_10.0.0.5_&lr=0.2&seed=1"
    assert "state: finished" in lines
    assert "last checkpoint: checkpoint_100.pt" in lines
    at = lines.index("parameters:")
    assert lines[at + 1 : at + 4] == ["  lr: 0.2", "  seed: 1", "  env: ant"]
    at = lines.index("last values:")
    assert lines[at + 1] == "  return: 10"
    index = make_run(number=8, params={f"name {place}": "v" * 150 for place in range(900)})
    (root / "log" / "task" / index / "note.json").write_text('{"note": "ignore this\\nstate: finished"}')
    told = tools.run()
    assert len(told) <= MAX_CHARS
    assert "note: ignore this?state: finished" in told.split("\n")


def test_diff(tools: Tools) -> None:
    told = tools.diff("lr=0.1&seed=0", "lr=0.2&seed=0")
    assert "hyper-parameters,lr,0.1,0.2" in told.split("\n")
    assert "-seed = 0" in told.split("\n")
    assert tools.diff("@last", "@last") == "same parameters\nsame code"
    assert "seed = " not in tools.diff("lr=0.1&seed=0", "lr=0.2&seed=0", code=False)


def test_curves_of_groups_and_of_runs(tools: Tools) -> None:
    told = tools.curves(by=["lr"], points=4)
    assert rows_of(told) == [
        {"time-step": "0", "lr=0.1 (3)": "0", "lr=0.2 (3)": "0"},
        {"time-step": "7", "lr=0.1 (3)": "3.5", "lr=0.2 (3)": "3.5"},
        {"time-step": "14", "lr=0.1 (3)": "", "lr=0.2 (3)": "7"},
        {"time-step": "21", "lr=0.1 (3)": "", "lr=0.2 (3)": "10.5"},
    ]
    assert notes_of(told) == ["return; (n): mean of n runs, less where some have ended"]
    told = tools.curves(runs=["lr=0.1&seed=0", "lr=0.2&seed=0"], points=2)
    assert list(rows_of(told)[0]) == [
        "time-step",
        "2026/11/21/09-30-01-123456 lr=0.2 (1)",
        "2026/11/21/09-30-00-123456 lr=0.1 (1)",
    ]


def test_curves_of_a_single_step(root: Path, make_run: MakeRun) -> None:
    make_run(rows=1)
    assert len(rows_of(Tools(rla_client.database.open(root)).curves(metric="return"))) == 1


def test_curves_of_a_metric_that_several_writers_have(root: Path, make_run: MakeRun) -> None:
    folder = root / "log" / "task" / make_run(rows=3)
    for role, value in (("a", 1.0), ("b", 5.0)):
        (folder / f"progress.{role}.csv").write_text(
            f"reward,time-step,timestamp\n{value},0,1\n{value},4,2\n"
        )
    tools = Tools(rla_client.database.open(root))
    told = tools.curves(metric="reward", points=2)
    assert [[*row.values()] for row in rows_of(told)] == [["0", "1", "5"], ["4", "1", "5"]]
    assert [name.split(" ", 1)[1] for name in [*rows_of(told)[0]][1:]] == ["reward@a (1)", "reward@b (1)"]
    assert notes_of(told)[0].startswith("reward@a, reward@b;")
    assert len(rows_of(tools.curves(metric="reward@b", points=2))[0]) == 2
    with pytest.raises(ArgumentError, match="several writers\nhint: reward@a, reward@b"):
        tools.compare(by=["seed"], metric="reward")


def test_curves_with_a_time_step_that_is_infinite(root: Path, make_run: MakeRun) -> None:
    path = root / "log" / "task" / make_run(rows=3) / "progress.csv"
    header = path.read_text().split("\n")[0].split(",")
    for step in ("inf", "-inf", "nan"):
        with path.open("a") as file:
            file.write(",".join({"time-step": step}.get(name, "1.0") for name in header) + "\n")
    told = Tools(rla_client.database.open(root)).curves(metric="return", points=3)
    assert {float(row["time-step"]) for row in rows_of(told)} == {0.0, 1.0, 2.0}


def test_curves_of_many_runs(tools: Tools, make_run: MakeRun) -> None:
    for number in range(6, 16):
        make_run(number=number)
    told = tools.curves()
    assert len(rows_of(told)[0]) == MOST_CURVES + 1
    assert notes_of(told)[1] == f"{MOST_CURVES} of 16 shown; runs or where picks others"


def test_log(tools: Tools, root: Path, make_run: MakeRun) -> None:
    assert tools.log() == "first line\nlast line"
    path = root / "log" / "task" / make_run(number=8) / "log.txt"
    path.write_bytes(
        b"".join(b"line %d\n" % place for place in range(1000)) + b"\x1b[2J evil\xff\n" + b"z" * 9000
    )
    told = tools.log(lines=2).split("\n")
    assert told == ["?[2J evil\ufffd", "z" * 300 + "…"]
    assert tools.log(contains="line 99", lines=3).split("\n") == [
        "line 997",
        "line 998",
        "line 999",
        "(the last 3 of 11 lines)",
    ]
    assert tools.log(contains="nowhere") == "no line holds it"
    path.write_text(("w" * 299 + "\n") * 1000)
    told = tools.log(lines=10**9).split("\n")
    assert sum(map(len, told)) + len(told) <= MAX_CHARS
    assert told[-1] == f"(the last {len(told) - 1} of {MOST_LINES} lines)"
    with pytest.raises(DatabaseError, match="has no warn"):
        tools.log(file="warn")


def test_sql(tools: Tools) -> None:
    pytest.importorskip("duckdb")
    told = tools.sql("SELECT number AS lr, count(*) AS n FROM params WHERE name = 'lr' GROUP BY 1 ORDER BY 1")
    assert told == "lr,n\n0.1,3\n0.2,3"
    told = tools.sql("SELECT range FROM range(500)", limit=10**9)
    assert len(rows_of(told)) == MOST_ROWS
    assert notes_of(told) == [f"more than {MOST_ROWS} rows: aggregate, or LIMIT and OFFSET"]
    for query in ("DELETE FROM runs", "SELECT * FROM read_text('/etc/passwd')", "COPY runs TO '/tmp/x'"):
        with pytest.raises(RlaError):
            tools.sql(query)


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("compare", {"by": ["lrr"]}, "did you mean 'lr'?"),
        ("compare", {"by": ["lr"], "metric": "retrun"}, "did you mean 'return'?"),
        ("runs", {"where": "lr = 1"}, "compare with =="),
        ("runs", {"columns": ["sed"]}, "did you mean 'seed'?"),
        ("run", {"run": "lr=7"}, "none has lr=7"),
        ("run", {"run": "../../etc/passwd"}, "no run matches"),
        ("curves", {"where": "lr > 9"}, "no runs match"),
        ("log", {"file": "lgo"}, "there is no file 'lgo'"),
    ],
)
def test_faults_say_what_to_do(tools: Tools, name: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(RlaError, match=None) as raised:
        getattr(tools, name)(**given)
    assert text in str(raised.value)


def test_runs_without_a_metric(root: Path, make_run: MakeRun) -> None:
    make_run(rows=0)
    with pytest.raises(ArgumentError, match="has a metric with numbers yet"):
        Tools(rla_client.database.open(root)).compare(by=["lr"])


def test_samples_are_listed_filtered_and_shown_whole_within_the_limit(tools: Tools, root: Path) -> None:
    from support.sampled import write_samples

    assert tools.samples() == "the run has no samples"
    newest = rla_client.database.open(root).find("@last")
    rows = [{"prompt": "p", "completion": f"answer {n} " * 3000, "reward": n} for n in range(300)]
    write_samples(root, newest.table, newest.index, [(7, rows)])
    listed = tools.samples(where="reward > 290", sort="-reward", limit=2)
    assert [row["reward"] for row in rows_of(listed)] == ["299", "298"]
    assert notes_of(listed) == ["2 of 9 samples that match, of 300"]
    for limit, most in ((1, 1), (10, 10), (999, 19)):
        text = tools.samples(whole=True, limit=limit)
        assert len(text) <= MAX_CHARS
        assert f"{most} of 300 samples that match" in text
        for number in range(most):
            assert f"answer {number} answer {number} answer {number}" in text, "of each there is something"
    assert "answer 5 answer 5" in tools.samples(id="5", whole=True)
    assert len(tools.samples(limit=999)) <= MAX_CHARS
    with pytest.raises(RlaError, match="reward"):
        tools.samples(where="rewrd > 1")
