from __future__ import annotations

import io
from pathlib import Path

import pytest

from rla_client.database import open as open_database
from rla_client.errors import ArgumentError
from rla_client.plot import curves


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
    with pytest.raises(ArgumentError, match="no column nope"):
        curves(frame, "return", database=database, group="nope")
    with pytest.raises(ArgumentError, match="none of these runs"):
        curves(frame, "nope", database=database)
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
