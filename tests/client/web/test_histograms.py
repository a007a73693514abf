"""Histograms of a run over time-steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.page_lab import PageServer
from support.page_runs import write_page_run

from rla_client.web.histograms import BINS, MAX_STEPS, histograms
from rla_client.web.run_registry import Site

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def results(root: Path) -> Path:
    """The results of one run."""
    folder = root / "results" / "task" / write_page_run(root, 0)
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, step: int, counts: Any, edges: Any, name: str = "actions") -> None:
    (folder / f"{step}-{name}.histogram.json").write_text(json.dumps({"counts": counts, "edges": edges}))


def ask(root: Path) -> dict[str, Any]:
    site = Site([root])
    site.look_now()
    return histograms(site, {"run": f"0/task/{site.entries()[0].record.index}"})


def test_other_edges_share_bins(root: Path, results: Path) -> None:
    write(results, 0, [10, 30], [0, 1, 2])
    write(results, 5, [4], [-2, 2])
    (found,) = ask(root)["found"]
    assert (found["name"], found["low"], found["high"], found["steps"]) == ("actions", -2, 2, [0, 5])
    first, second = found["shares"]
    assert len(first) == BINS
    assert sum(first) == pytest.approx(1, abs=1e-3)
    assert sum(first[: BINS // 2]) == 0
    assert sum(first[BINS // 2 : BINS * 3 // 4]) == pytest.approx(0.25, abs=1e-3)
    assert second == pytest.approx([1 / BINS] * BINS, abs=1e-4)


def test_values_that_are_one(root: Path, results: Path) -> None:
    write(results, 0, [7], [3, 3])
    (found,) = ask(root)["found"]
    assert sum(found["shares"][0]) == 1


@pytest.mark.parametrize(
    ("counts", "edges"),
    [
        ([1, 2], [0, 1]),
        ("x", [0, 1]),
        ([1], [1, 0]),
        ([float("nan")], [0, 1]),
        ([1], [0, float("inf")]),
        ([1], [-1.7e308, 1.7e308]),
        ([[1]], [[0], [1]]),
        (None, None),
    ],
)
def test_what_is_none_is_left_out(root: Path, results: Path, counts: Any, edges: Any) -> None:
    write(results, 0, counts, edges)
    assert ask(root) == {"names": 1, "found": []}


def test_many_steps_are_thinned_both_ends_stay(root: Path, results: Path) -> None:
    for step in range(300):
        write(results, step, [1, 1], [0, 1, 2])
    (found,) = ask(root)["found"]
    assert len(found["steps"]) == MAX_STEPS
    assert (found["steps"][0], found["steps"][-1]) == (0, 299)


@pytest.mark.slow
def test_they_are_seen_on_the_page_of_the_run(
    page_server: Callable[..., PageServer], root: Path, results: Path, page: Page
) -> None:
    for step in range(20):
        write(results, step * 10, [1, 5, 1], [-1 - step, -1, 1, 1 + step])
    page.goto(page_server(root).url)
    page.locator("#runs-table .row[data-number] a").first.click()
    heat = page.get_by_role("img", name="actions: values from -20 to 20, steps 0 to 190")
    heat.wait_for()
    heat.locator("canvas").hover()
    page.wait_for_function("() => document.querySelector('.heat h2').textContent.includes('% from')")
