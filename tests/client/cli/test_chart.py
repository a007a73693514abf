"""Charts for a terminal: what is drawn, what is counted, whose rows."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.cli.chart import CHART_ROWS, chart_text
from rla_client.contract.text.terminal_text import text_width
from rla_client.database.curves.chart_points import chart_points

MakeRun = Callable[..., str]
Rla = Callable[..., subprocess.CompletedProcess[str]]
NUMBERS = st.floats() | st.sampled_from([1e308, -1e308, 5e-324, math.inf, math.nan])


def write(root: Path, name: str, content: str, parent: object = None) -> str:
    index = f"2026/11/21/09-30-{name}-000001_noip_&"
    folder = root / "log" / "t" / index
    folder.mkdir(parents=True)
    (folder / "progress.csv").write_text(content)
    (folder / "run.json").write_text(json.dumps({"state": "killed", "opened": 1.0, "parent": parent}))
    return index


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20), st.integers(20, 100))
def test_whatever_the_numbers_a_chart_fits(points: list[tuple[float, float]], room: int) -> None:
    lines = chart_text("loss", points, room).split("\n")
    finite = [point for point in points if all(map(math.isfinite, point))]
    flat = len({y for _, y in finite}) == 1
    assert len(lines) == (3 if flat else CHART_ROWS + 2 if finite else 1)
    assert max(map(text_width, lines[1:]), default=0) <= max(room, 40)


def test_values_that_are_no_numbers_are_counted_and_the_rest_drawn() -> None:
    points = [(float(step), float(step)) for step in range(8)]
    whole = chart_text("loss", points, 40)
    torn = chart_text("loss", [*points, (3.5, math.nan), (9.0, math.inf)], 40)
    assert torn.split("\n")[0] == "loss  (2 of 10 values not drawn: nan or inf)"
    assert torn.split("\n")[1:] == whole.split("\n")[1:]
    assert whole.split("\n")[0] == "loss"
    assert "█" in whole
    assert "2 of the 10 values sampled" in chart_text(
        "loss", [*points, *[(1.0, math.inf)] * 2], 60, sampled=True
    )


def test_a_metric_of_nan_alone_is_one_line() -> None:
    assert chart_text("loss", [(1.0, math.nan)] * 3, 60) == "loss: all 3 values are nan or inf"
    assert chart_text("loss", [], 60) == "loss: no numbers yet"


def test_cells_that_were_not_recorded_are_not_counted(tmp_path: Path) -> None:
    index = write(tmp_path, "01", "loss,time-step\n1.5,1\n,2\nnan,3\nhello,4\ninf,5\n")
    points, sampled = chart_points(tmp_path, "t", index, ["loss"])
    assert repr(points) == "{'loss': [(1.0, 1.5), (3.0, nan), (5.0, inf)]}"
    assert not sampled


def test_rla_show_draws_finite_values(rla: Rla, root: Path, make_run: MakeRun) -> None:
    index = make_run(rows=3)
    path = root / "log" / "task" / index / "progress.csv"
    path.write_text(path.read_text() + "nan,3,1\n-inf,4,1\n")
    done = rla("show", "-d", str(root))
    assert "return  (2 of 5 values not drawn: nan or inf)" in done.stdout
    assert "█" in done.stdout
    path.write_text("return,time-step\nnan,1\nnan,2\n")
    done = rla("show", "-m", "return", "-d", str(root))
    assert "return: all 2 values are nan or inf" in done.stdout
    assert done.returncode == 0


@pytest.fixture
def chain(tmp_path: Path) -> tuple[Path, list[str]]:
    """A chain of three, of which the first two recorded more than counts."""
    root = tmp_path / "data"

    def rows(steps: range) -> str:
        return "loss,time-step\n" + "".join(f"{step / 2},{step}\n" for step in steps)

    def link(index: str, count: int | None, step: int) -> dict[str, object]:
        return {"run": index, "table": "t", "time_step": step, "rows": count, "chain": True}

    first = write(root, "01", rows(range(1, 16)))
    second = write(root, "02", rows(range(11, 36)), link(first, 10, 10))
    third = write(root, "03", "late,loss,time-step\n" + "7,20,40\n", link(second, None, 30))
    return root, [first, second, third]


def test_the_curve_of_a_chain_begins_with_its_first_item(chain: tuple[Path, list[str]]) -> None:
    root, (first, second, third) = chain
    points, _ = chart_points(root, "t", third, ["loss", "late"])
    assert points["loss"] == [(float(step), step / 2) for step in [*range(1, 31), 40]]
    assert points["late"] == [(40.0, 7.0)]
    assert len(chart_points(root, "t", second, ["loss"])[0]["loss"]) == 35
    assert len(chart_points(root, "t", first, ["loss"])[0]["loss"]) == 15


def test_rla_show_draws_the_whole_chain(rla: Rla, chain: tuple[Path, list[str]]) -> None:
    root, (_, _, third) = chain
    axis = rla("show", "@last", "-d", str(root)).stdout.splitlines()[-1].split()
    assert axis == ["1", "40"]
    (root / "log" / "t" / third / "progress.csv").unlink()  # it has not come to its first row yet
    done = rla("show", "@last", "-d", str(root))
    assert done.stdout.splitlines()[-1].split() == ["1", "30"], done.stderr


def test_a_large_item_is_cut_by_its_time_step(chain: tuple[Path, list[str]]) -> None:
    root, (first, second, _) = chain
    path = root / "log" / "t" / first / "progress.csv"
    path.write_text(
        "loss,time-step\n" + "".join(f"{step / 1000},{step / 10000}\n" for step in range(150_000))
    )
    points, sampled = chart_points(root, "t", second, ["loss"])
    assert sampled
    assert max(x for x, y in points["loss"] if y == x * 10) <= 10
    assert points["loss"][-1] == (35.0, 17.5)


def test_equal_values_are_a_line_with_the_value_once() -> None:
    assert chart_text("loss", [(1.0, 0.5)], 40).split("\n") == ["loss", "0.5 │─", "     1"]
    title, line, axis = chart_text("loss", [(1.0, 0.5), (9.0, 0.5)], 40).split("\n")
    assert (title, line) == ("loss", "0.5 │" + "─" * 35)
    assert axis.split() == ["1", "9"]
