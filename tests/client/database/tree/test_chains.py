"""Runs that were continued elsewhere are shown as one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rla_client import database
from rla_client.database.tree.chains import ChainLink, chain_of, link_of

DAY = "2026/11/21/"
FIRST, SECOND, THIRD = (f"{DAY}09-30-0{n}-000001_10.0.0.{n}_&" for n in (1, 2, 3))


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "state"))


def write(root: Path, index: str, steps: range, parent: Any = None, extra: str = "") -> Path:
    """A run with rows `steps`; returns its log folder."""
    log = root / "log" / "t" / index
    log.mkdir(parents=True)
    rows = "".join(f"{step / 2},{step}{',7' if extra else ''}\n" for step in steps)
    (log / "progress.csv").write_text(f"loss,time-step{',' + extra if extra else ''}\n{rows}")
    opened = 1_700_000_000.0 + int(index[18])
    about = {"state": "killed", "opened": opened, "last_row": opened + 10, "closed": opened + 10}
    (log / "run.json").write_text(json.dumps({**about, "parent": parent}))
    return log


def link(index: str, rows: int | None, step: float, **more: Any) -> dict[str, Any]:
    return {"run": index, "table": "t", "time_step": step, "rows": rows, "chain": True, **more}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A chain of three, of which the first two recorded more than counts."""
    base = tmp_path / "data"
    write(base, FIRST, range(1, 16))
    write(base, SECOND, range(11, 36), link(FIRST, 10, 10))
    write(base, THIRD, range(31, 41), link(SECOND, None, 30), "late")
    return base


def test_listed_once_with_the_time_of_all(root: Path) -> None:
    found = database.open(root)
    assert [record.index for record in found.records()] == [THIRD]
    assert [record.index for record in found.records(limit=5)] == [THIRD]
    assert found.count() == 1
    (record,) = found.records()
    assert record.duration_s == 30
    assert record.parent == SECOND
    assert found.find(FIRST[:26]).index == FIRST  # each item can still be named
    assert found.find("@last").index == THIRD


def test_curves_and_scalars_are_those_of_one_run(root: Path) -> None:
    found = database.open(root)
    for _ in range(2):  # the second time from the cache
        curve = found.curves(found.runs("t"), ["loss", "late"])
        loss = curve[curve["metric"] == "loss"]
        assert list(loss["x"]) == list(range(1, 41))
        assert list(loss["value"]) == [step / 2 for step in range(1, 41)]
        assert list(curve[curve["metric"] == "late"]["x"]) == list(range(31, 41))
    (run,) = list(found)
    table = run.scalars()
    assert list(table["time-step"]) == list(range(1, 41))
    assert table["late"].notna().sum() == 10


def test_without_its_end_the_chain_ends_earlier(root: Path) -> None:
    found = database.open(root)
    assert len(found.records()) == 1
    os.rename(root / "log" / "t" / THIRD, root / "moved")
    assert [record.index for record in found.records()] == [SECOND]


def test_a_parent_that_is_not_here_is_left_out(root: Path) -> None:
    os.rename(root / "log" / "t" / FIRST, root / "moved")
    found = database.open(root)
    assert list(found.curves(found.runs("t"), "loss")["x"]) == list(range(11, 41))


def test_a_fork_is_no_chain(tmp_path: Path) -> None:
    base = tmp_path / "data"
    write(base, FIRST, range(1, 4))
    write(base, SECOND, range(1, 6), {"run": FIRST, "table": "t", "time_step": 3})
    found = database.open(base)
    assert len(found.records()) == 2
    assert len(found.curves(found.runs("t"), "loss")) == 8


@pytest.mark.parametrize(
    "parent",
    [None, "x", {"chain": True}, link("../../../etc/x", 1, 1), link(FIRST, 1, 1, table="other")],
)
def test_what_is_no_link(parent: Any) -> None:
    assert link_of({"parent": parent}, "t") is None


def test_a_circle_ends(tmp_path: Path) -> None:
    base = tmp_path / "data"
    write(base, FIRST, range(1, 4), link(SECOND, 1, 1))
    write(base, SECOND, range(1, 4), link(FIRST, 2, 1))
    assert chain_of(base, "t", FIRST) == [ChainLink(SECOND, 1, 1.0), ChainLink(FIRST)]
    assert link_of({"parent": link(FIRST, -1, 2)}, "t") == ChainLink(FIRST, None, 2.0)


def test_plot_func_draws_one_curve(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rla_client import plot_func

    plot_func(
        data_root=root,
        task_table_name="t",
        regs=["*"],
        split_keys=["seed"],
        metrics=["loss"],
        verbose=False,
        save_name="chain.png",
        resample=0,
    )
    assert "*: 1 run(s)" in capsys.readouterr().out
    assert (root / "results" / "easy_plot" / "chain.png").exists()
