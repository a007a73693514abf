"""One rule for which runs are of the same group, over all that group runs."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.written_runs import MakeRun

from rla_client.database import open as open_database
from rla_client.database.compare.group_key import group_label, group_order, group_text
from rla_client.database.compare.groups import group_runs
from rla_client.mcp.tools import Tools
from rla_client.plot.frames import gather
from rla_client.web import column_values
from rla_client.web.curves import curves as page_curves
from rla_client.web.run_registry import Site


@pytest.mark.parametrize(
    "same",
    [
        [0.1, "0.1"],
        [1, 1.0, "1", "1.0"],
        [[64, 64], "[64, 64]", "{64, 64}", (64, 64)],
        [None, float("nan"), "None"],
        [True, "True"],
        [1e-05, "1e-05"],
        [float("inf"), "inf"],
        [10**400, str(10**400)],
    ],
)
def test_values_that_are_the_same(same: list[object]) -> None:
    assert len({group_text(value) for value in same}) == 1


def test_values_that_are_not() -> None:
    values = [0.1234567, 0.1234568, 0.3, 0.1 + 0.2, 1, True, "a", "A", "", [1, 2], [2, 1], {"a": 1}, "1.0.0"]
    values += [9007199254740993, 9007199254740992, None, "²", "nothing"]
    values += ["1.10", "1.1", "007", "7", "+7", "7.", "1e1", "10"]
    assert len({group_text(value) for value in values}) == len(values)


def test_numbers_come_first_and_nothing_last() -> None:
    texts = [group_text(value) for value in (None, "b", 10, 2, "a", float("-inf"))]
    assert sorted(texts, key=group_order) == ["-inf", "2", "10", "a", "b", "None"]
    assert group_label(["lr", "n"], ["0.1", "None"]) == "lr=0.1, n=None"


def test_labels_tell_all_groups_apart() -> None:
    parts = ["1", "1, b=2", "2, b=3", "3", '"1', '"1, b=2"', ", b=zz", 'zz"', "1, b=", "[1, 2]", "\n", ""]
    labels = {group_label(["a", "b"], [a, b]) for a in parts for b in parts}
    assert len(labels) == len(parts) ** 2
    assert group_label(["net"], ["[64, 64]"]) == "net=[64, 64]"


VALUES: list[object] = [0.1, "0.1", [64, 64], "[64, 64]", 0.1234567, 0.1234568, 1, 1.0, None, "relu"]
LABELS = {"0.1": 2, "0.1234567": 1, "0.1234568": 1, "1": 2, "[64, 64]": 2, "relu": 1, "None": 1}


@pytest.fixture(name="mixed")
def mixed_fixture(root: Path, make_run: MakeRun) -> Path:
    """A run for each of VALUES."""
    for number, value in enumerate(VALUES):
        given = {} if value is None else {"v": value}
        make_run(number=number, info=f"&seed={number}", params={"seed": number, **given})
    return root


def test_all_readers_make_the_same_groups(mixed: Path, rla: Callable[..., Any]) -> None:
    database = open_database(mixed)
    records = database.records()
    groups = group_runs(records, ["v"], "return", 0.0)
    assert {group.texts[0]: group.states.total() for group in groups} == LABELS
    told = json.loads(rla("ls", "--group", "v", "-d", str(mixed), "--json").stdout)
    assert [row["runs"] for row in told] == [group.states.total() for group in groups]
    shown = rla("ls", "--group", "v", "-d", str(mixed)).stdout
    assert all(f" {label} " in f" {' '.join(shown.split())} " for label in LABELS)

    plotted = gather(database.frame(records), "return", group="v").groups
    assert {label: len(runs) for label, runs in plotted.items()} == {
        f"v={label} ({count})": count for label, count in LABELS.items()
    }
    tools = Tools(database)
    listed = list(csv.reader(io.StringIO(tools.compare(by=["v"], metric="return"))))[1:]
    assert {row[0]: int(row[1]) for row in listed if row[0] in LABELS} == LABELS
    columns = next(csv.reader(io.StringIO(tools.curves(metric="return", by=["v"]))))
    assert {name for name in columns if name.startswith("v=")} == {
        f"v={label} ({count})" for label, count in LABELS.items()
    }

    site = Site([mixed])
    site.look_now()
    numbers = [entry.number for entry in site.entries()]
    texts = column_values.column_values(site, ["v"], numbers, ["v"])["texts"][0]
    assert {text: texts.count(text) for text in texts} == LABELS
    body = bytes(
        page_curves(site, {"runs": numbers, "metric": "return", "group": ["v"], "band": "none"}).body
    )
    drawn = json.loads(body[8 : 8 + struct.unpack_from("<I", body)[0]])["curves"]
    assert {curve["label"]: len(curve["numbers"]) for curve in drawn} == {
        f"v={label}": count for label, count in LABELS.items()
    }


def test_all_readers_keep_groups_whose_values_look_like_labels(
    root: Path, make_run: MakeRun, rla: Callable[..., Any]
) -> None:
    pairs = [("1, b=2", "3"), ("1", "2, b=3"), ("1\n", "4"), ("1\t", "4")]
    for number, (a, b) in enumerate(pairs):
        make_run(number=number, info=f"&seed={number}", params={"a": a, "b": b})
    database = open_database(root)
    records = database.records()
    assert len(group_runs(records, ["a", "b"], "return", 0.0)) == len(pairs)
    told = json.loads(rla("ls", "--group", "a,b", "-d", str(root), "--json").stdout)
    assert [row["runs"] for row in told] == [1] * len(pairs)
    plotted = gather(database.frame(records), "return", group=["a", "b"]).groups
    assert [len(runs) for runs in plotted.values()] == [1] * len(pairs)
    columns = next(csv.reader(io.StringIO(Tools(database).curves(metric="return", by=["a", "b"]))))
    drawn_for = [name for name in columns if name.startswith("a=")]
    assert len(set(drawn_for)) == len(pairs), columns
    assert sum(" #2" in name for name in drawn_for) == 1

    site = Site([root])
    site.look_now()
    asked = {"runs": [entry.number for entry in site.entries()], "metric": "return", "group": ["a", "b"]}
    body = bytes(page_curves(site, {**asked, "band": "none"}).body)
    drawn = json.loads(body[8 : 8 + struct.unpack_from("<I", body)[0]])["curves"]
    assert len({curve["label"] for curve in drawn}) == len(pairs)
    assert [len(curve["numbers"]) for curve in drawn] == [1] * len(pairs)


def test_a_parameter_that_is_one_value_or_a_dict(
    root: Path, make_run: MakeRun, rla: Callable[..., Any]
) -> None:
    values = [
        {"name": "adam", "lr": 0.1},
        {"name": "adam", "lr": 0.1},
        {"name": "sgd", "lr": 0.1},
        "adam",
        None,
    ]
    for number, value in enumerate(values):
        given = {} if value is None else {"opt": value, "deep": {"opt": value}}
        make_run(number=number, info=f"&seed={number}", params={"seed": number, **given})
    database = open_database(root)
    records = database.records()
    for name in ("opt", "deep.opt"):
        told = json.loads(rla("ls", "--group", name, "-d", str(root), "--json").stdout)
        assert sorted(row["runs"] for row in told) == [1, 1, 1, 2]
        plotted = gather(database.frame(records), "return", group=name).groups
        assert sorted(map(len, plotted.values())) == [1, 1, 1, 2], "a dict is not None"
