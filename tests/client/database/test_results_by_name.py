"""Results are grouped by name, in the order of their time-steps."""

from __future__ import annotations

import pytest

from rla_client.database.results_by_name import grouped, in_order, stepped


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("100-sine.png", (100, "sine.png")),
        ("a/b/2.5-x.svg", (2.5, "a/b/x.svg")),
        ("itr_7.png", (7, "itr.png")),
        ("12-layer-1.png", (12, "layer-1.png")),
        ("sine.png", (None, "sine.png")),
        (".png", (None, ".png")),
        ("2026-11-21.png", (2026, "11-21.png")),
    ],
)
def test_a_name_says_its_step(path: str, expected: tuple[float | None, str]) -> None:
    assert stepped(path) == expected


def test_files_of_a_name_are_in_the_order_of_their_steps() -> None:
    found = grouped(["10-a.png", "9-a.png", "b.png", "100-a.png"])
    assert found == {
        "a.png": [(9, "9-a.png"), (10, "10-a.png"), (100, "100-a.png")],
        "b.png": [(None, "b.png")],
    }


def test_films_of_episodes_are_one_and_layers_are_not() -> None:
    assert list(grouped(["10-run-0.mp4", "20-run-1.mp4"])) == ["run.mp4"]
    assert set(grouped(["10-layer-0.png", "10-layer-1.png"])) == {"layer-0.png", "layer-1.png"}


def test_files_of_one_name_are_in_the_order_of_their_steps() -> None:
    names = ["b/10-t.csv", "b/9-t.csv", "b/100-t.csv", "a.png", "2-loss.png", "10-loss.png", "1.5-loss.png"]
    assert in_order(names) == [
        "a.png",
        "b/9-t.csv",
        "b/10-t.csv",
        "b/100-t.csv",
        "1.5-loss.png",
        "2-loss.png",
        "10-loss.png",
    ]
