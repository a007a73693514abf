from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.database import open as open_database
from rla_client.database.records.notes import change_note
from rla_client.plot import curves
from rla_client.plot.frames import draw, gather, notes


def test_one_curve_a_group_in_a_paper_column(seeds: Path) -> None:
    database = open_database(seeds)
    figure = curves(database.runs(), ["return", "loss"], database=database, group="lr")
    assert figure.get_figwidth() == pytest.approx(3.3)
    labels = [line.get_label() for line in figure.axes[0].lines]
    assert labels == ["lr=0.01 (3)", "lr=0.1 (3)"]
    assert figure.axes[0].lines[1].get_ydata().tolist() == [step + 1 for step in range(11)]
    assert [axes.get_ylabel() for axes in figure.axes] == ["return", "loss"]
    assert figure.axes[1].get_xlabel() == "time-step"
    figure.savefig(io.BytesIO(), format="pdf")


@pytest.mark.parametrize("band", ["ci", "iqm", "stderr", "std", "range", "median", "none"])
def test_every_band(seeds: Path, band: str) -> None:
    database = open_database(seeds)
    figure = curves(
        database.runs(), "return", database=database, group=["lr", "net.size"], band=band, smooth=3
    )
    figure.savefig(io.BytesIO(), format="svg")
    assert len(figure.axes[0].collections) == (0 if band == "none" else 2)


def test_wrong_wishes_are_refused_in_words(seeds: Path) -> None:
    database = open_database(seeds)
    frame = database.runs()
    with pytest.raises(ArgumentError, match=r"no column 'sede' to group by\nhint: did you mean 'seed'"):
        curves(frame, "return", database=database, group="sede")
    with pytest.raises(ArgumentError, match=r"the metric 'retrun'\nhint: did you mean 'return'"):
        curves(frame, "retrun", database=database)
    frame.attrs.clear()
    with pytest.raises(ArgumentError, match="database="):
        curves(frame, "return")


def test_rows_know_their_database_also_when_some_are_chosen(seeds: Path) -> None:
    runs = open_database(seeds).runs()
    figure = curves(runs[runs["lr"] > 0.05], "return", group="lr", band="none")
    assert [line.get_label() for line in figure.axes[0].lines] == ["lr=0.1 (3)"]


def test_smoothing_counts_in_logged_points(seeds: Path) -> None:
    database = open_database(seeds)
    figure = curves(database.runs(), "return", database=database, group="lr", smooth=1)
    assert len(figure.axes[0].lines[0].get_xdata()) == 11


def second_table(seeds: Path, *, rows: int = 11, metric: str = "return", state: str = "finished") -> None:
    """A run of another table at the very moment of one of `task`."""
    index = "2026/11/21/09-30-00-123456_noip_&lr=0.1&seed=0"
    folder = seeds / "log" / "other" / index
    folder.mkdir(parents=True)
    lines = [f"{100 + step},{step * 10}" for step in range(rows)]
    (folder / "progress.csv").write_text("\n".join([f"{metric},time-step", *lines]) + "\n")
    (folder / "run.json").write_text(json.dumps({"format": 1, "state": state}))


def test_tables_are_not_averaged_into_one_curve(seeds: Path) -> None:
    second_table(seeds)
    database = open_database(seeds)
    figure = curves(database.runs(), "return", database=database, band="none")
    labels = [line.get_label() for line in figure.axes[0].lines]
    assert labels == ["table=other (1)", "table=task (6)"]
    assert figure.axes[0].lines[0].get_ydata()[0] == 100
    found = gather(database.runs(), "return", database=database)
    assert notes(found) == ["a curve for each of 2 tables"]
    found = gather(database.runs(), "return", database=database, group="lr")
    assert any("2 tables averaged together" in note for note in notes(found))


def test_only_runs_with_the_metric_count(seeds: Path) -> None:
    second_table(seeds, metric="else")
    database = open_database(seeds)
    found = gather(database.runs(), "return", database=database)
    assert list(found.groups) == ["all (6)"]
    assert notes(found) == []


def test_ends_that_show_in_the_mean_are_told(seeds: Path) -> None:
    second_table(seeds, rows=5, state="failed")
    database = open_database(seeds)
    told = notes(gather(database.runs(), "return", database=database, group="lr"))
    assert any("1 failed" in note for note in told)
    assert any("different length" in note for note in told)
    cut = notes(gather(database.runs(), "return", database=database, group="lr", bound=40))
    assert not any("different length" in note for note in cut)


def test_a_group_with_one_of_two_metrics_is_in_the_legend(seeds: Path) -> None:
    second_table(seeds, metric="else")
    database = open_database(seeds)
    figure = curves(database.runs(), ["return", "else"], database=database, band="none")
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["table=other (1)", "table=task (6)"]


def test_a_blank_cell_in_the_last_row_is_no_shorter_run(seeds: Path) -> None:
    file = next((seeds / "log").rglob("progress.csv"))
    lines = file.read_text().splitlines()
    place = lines[0].split(",").index("return")
    kept = lines[-1].split(",")
    kept[place] = ""
    file.write_text("\n".join([*lines[:-1], ",".join(kept)]) + "\n")
    database = open_database(seeds)
    assert notes(gather(database.runs(), "return", database=database)) == []
    file.write_text("\n".join(lines[:-3]) + "\n")
    database = open_database(seeds)
    assert "runs of different length" in notes(gather(database.runs(), "return", database=database))[0]


def test_runs_without_a_number_are_refused_in_words(seeds: Path) -> None:
    database = open_database(seeds)
    with pytest.raises(ArgumentError, match="none of these runs has this metric with numbers"):
        curves(database.runs(), "return", bound=-5)


def test_values_near_the_largest_float_are_not_drawn(seeds: Path) -> None:
    (table,) = seeds.glob("log/task/2026/11/21/*seed=0/progress.csv")
    with table.open("a") as file:
        file.write("1,1e308,110\n1,-1e308,120\n")
    figure = curves(open_database(seeds).runs(), "return")
    figure.savefig(io.BytesIO())
    assert max(figure.axes[0].get_ylim()) < 100


def test_a_curve_for_each_run_is_called_as_people_call_the_run(seeds: Path) -> None:
    database = open_database(seeds)
    records = database.records()
    change_note(seeds, records[0], display_name="costs $5 \\frac")
    df = database.runs()
    groups = gather(df, "return", group="run").groups
    assert len(groups) == len(records) == sum(map(len, groups.values()))
    assert "costs $5 \\frac" in groups
    assert any("=" in label for label in groups)
    draw(gather(df, "return", group="run"), serif=True, height=2.0).savefig(io.BytesIO(), format="pdf")
    for record in records[:2]:
        change_note(seeds, record, display_name="twice")
    assert (
        sum(label.startswith("twice 20") for label in gather(database.runs(), "return", group="run").groups)
        == 2
    )
