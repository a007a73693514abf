"""Curves of a panel: few points, columns of x, ranks, chains; wrong requests."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.panel_curves import asked, decoded, table_of, write_rows
from support.written_runs import write_run

from rla_client.contract.errors import ArgumentError
from rla_client.database.database import Database
from rla_client.web import curves, plot_command
from rla_client.web.offered_names import metric_names
from rla_client.web.run_registry import Site


def test_ranks_of_runs_as_their_mean_or_one_alone(root: Path) -> None:
    index = write_run(root)
    write_rows(root, index, table_of([0, 1, 2], [1.0, 2.0, 3.0]))
    (root / "log" / "task" / index / "progress.rank1.csv").write_text(table_of([0, 1], [3.0, 4.0]))
    site = Site([root])
    head, xs, series = asked(site, ranks="mean")
    assert (xs.tolist(), series[0].tolist()) == ([0.0, 1.0, 2.0], [2.0, 3.0, 3.0])
    assert head["said"] == (
        "mean of 2 ranks at each time-step; return: 1 of 3 points lack ranks (as few as 1 of 2)"
    )
    assert head["cursors"] == {"0": None}, "rows of a mean are no rows of a table"
    head, _, series = asked(site, ranks="1")
    assert (head["said"], series[0].tolist()) == ("rank 1 alone", [3.0, 4.0])
    assert asked(site, ranks="")[2][0].tolist() == [1.0, 2.0, 3.0]
    assert asked(site, ranks="7")[0]["lacking"] == 1
    command = plot_command.command(site, {"runs": [0], "metric": "return", "ranks": "mean"})
    assert "--ranks=mean" in shlex.split(command)
    assert metric_names(site.entries()) == {"return": 1, "return@rank1": 1, "time-step": 1, "timestamp": 1}
    assert metric_names(site.entries(), "mean") == {"return": 1, "time-step": 1, "timestamp": 1}


def test_runs_without_the_metric_are_counted(root: Path) -> None:
    write_run(root, number=0)
    write_rows(root, write_run(root, number=1), "loss,time-step\n1,1\n")
    head, _, series = asked(Site([root]))
    assert head["lacking"] == 1
    assert len(series) == 1


def test_x_of_other_columns(root: Path) -> None:
    write_rows(root, write_run(root), table_of([0, 10, 20], [3, 1, 2]))
    site = Site([root])
    assert asked(site, x="elapsed")[1].tolist() == [0.0, 20.0, 40.0]
    assert asked(site, x="row")[1].tolist() == [0.0, 1.0, 2.0]
    assert asked(site, x="timestamp")[1].tolist() == [1000.0, 1020.0, 1040.0]
    _head, xs, series = asked(site, x="return")
    assert (xs.tolist(), series[0].tolist()) == ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert asked(site, x="nope")[0]["lacking"] == 1


def test_rows_without_a_time_step_are_numbered(root: Path) -> None:
    write_rows(root, write_run(root, number=0), "return\n5\n6\n7\n")
    write_rows(root, write_run(root, number=1), "return,time-step\n5,0\n6,0\n7,0\n")
    _, xs, series = asked(Site([root]))
    assert xs.tolist() == [0.0, 1.0, 2.0]
    assert [one.tolist() for one in series] == [[5.0, 6.0, 7.0]] * 2


def test_a_broken_table_is_left_out(root: Path) -> None:
    write_run(root, number=0)
    index = write_run(root, number=1)
    (root / "log" / "task" / index / "progress.csv").write_bytes(b"return,time-step\n\0\0\0\n")
    head, _, _ = asked(Site([root]))
    assert head["lacking"] == 1


def test_a_table_that_vanishes_while_it_is_shown(root: Path) -> None:
    index = write_run(root)
    site = Site([root])
    site.look(wait=True)
    (root / "log" / "task" / index / "progress.csv").unlink()
    head, _, _ = decoded(bytes(curves.curves(site, {"runs": [0], "metric": "return"}).body))
    assert head["lacking"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"runs": "all"},
        {"runs": [1.5]},
        {"width": "wide"},
        {"width": math.inf},
        {"range": [1]},
        {"range": [2, 1]},
        {"range": [math.nan, 1]},
        {"smooth": None},
        {"group": "lr"},
        {"group": [["lr"]]},
        {"group": ["lr"], "band": "no such"},
    ],
)
def test_a_bad_question_is_told(root: Path, wrong: dict[str, Any]) -> None:
    write_run(root)
    with pytest.raises(ArgumentError):
        asked(Site([root]), **wrong)


def test_a_chain_is_one_curve(root: Path) -> None:
    first = write_run(root, number=0, rows=10)
    second = write_run(root, number=1, rows=5)
    path = root / "log" / "task" / second / "run.json"
    content = json.loads(path.read_text())
    content["parent"] = {"run": first, "table": "task", "time_step": 6, "rows": 7, "chain": True}
    path.write_text(json.dumps(content))
    write_rows(root, second, table_of(range(7, 12), range(7, 12)))
    site = Site([root])
    site.look(wait=True)
    assert len(site.entries()) == 1
    head, xs, _ = asked(site)
    assert xs.tolist() == list(range(12))
    assert list(head["cursors"].values()) == [None]
    assert len(Database(root).curves([("task", second)], "return")) == 12
