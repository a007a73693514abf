"""The panels of a metric over hyper-parameters, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.page_runs import HOSTILE, write_hostile, write_page_run
from support.page_view import View, box_of
from support.parameter_search import RATES, Serve, write_search

if TYPE_CHECKING:
    from playwright.sync_api import Page


slow = pytest.mark.slow


@slow
def test_the_panels_of_hyper_parameters(page_server: Serve, root: Path, page: Page) -> None:
    write_search(root)
    view = View(page, page_server(root), "target=score")
    page.click("button[name=tab-parameters]")
    lines = view.shown("parallel", 24)
    assert lines["kind"] == "runs"
    xs, *series = lines["data"]
    assert xs == [0, 1, 2, 3]
    names = page.evaluate(
        "() => document.querySelector('section.panel').chart.options.xTicks.map((t) => t[1])"
    )
    assert names[0] == "lr"
    assert names[-1] == "score"
    for number, ys in zip(lines["numbers"], series, strict=True):
        assert ys[0] == pytest.approx((number % 4) / 3, abs=1e-6), "a logarithmic axis"
        assert ys[-1] == pytest.approx((100 * (number % 4) + 10 * (number // 4 % 3)) / 320, abs=1e-6)
    points = view.shown("scatter lr", 24)
    assert points["data"][0] == pytest.approx(RATES)
    assert points["x"]["distr"] == 3
    for number, ys in zip(points["numbers"], points["data"][1:], strict=True):
        assert [at for at, y in enumerate(ys) if y is not None] == [number % 4]
    view.panel("scatter net").scroll_into_view_if_needed()  # drawn once it is in sight
    assert view.shown("scatter net", 24)["data"][0] == [0, 1, 2]
    heads = page.locator("#panels table.list tbody tr")
    assert heads.count() == 3
    assert heads.first.inner_text().startswith("lr")


@pytest.mark.further
@slow
def test_a_part_of_a_scatter_selects_its_runs(page_server: Serve, root: Path, page: Page) -> None:
    write_search(root)
    view = View(page, page_server(root), "target=score&tab=parameters")
    page.wait_for_selector(
        "#panels table.list tbody tr"
    )  # what matters most comes last, and sorts the panels
    view.shown("scatter seed", 24)
    view.shown("scatter lr", 24)
    view.drag("scatter lr", 0.6, 1.0)
    page.wait_for_function("() => window.rla.chosen.size === 12")
    chosen = page.evaluate("() => [...window.rla.chosen]")
    assert {RATES[number % 4] for number in chosen} == {1e-2, 1e-1}
    page.click("button[name=tab-curves]")
    view.shown("score", 12)


@slow
def test_without_anything_to_compare_it_says_so(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0)
    View(page, page_server(root), "tab=parameters")
    page.get_by_text("at least 3 are needed").wait_for()
    page.fill("input[name=target]", "no such metric")
    page.press("input[name=target]", "Enter")
    page.get_by_text("0 of these runs have no such metric").wait_for()


@slow
def test_hostile_hyper_parameters_are_text(page_server: Serve, root: Path, page: Page) -> None:
    write_hostile(root)
    for number, text in enumerate(HOSTILE):
        write_page_run(root, 20 + number, params={"lr": number, HOSTILE[0]: text}, tracked=())
    View(page, page_server(root), "tab=parameters&target=return")
    page.wait_for_function("() => document.querySelector('section.panel[data-metric=parallel]')?.chart")
    assert HOSTILE[0] in page.locator("#panels table.list").inner_text()
    assert page.evaluate("() => window.hacked") is None
    assert page.locator("#panels script, #panels img, #panels svg").count() == 0


@slow
def test_parts_of_axes_that_are_dragged_over_select_runs(page_server: Serve, root: Path, page: Page) -> None:
    write_search(root)
    View(page, page_server(root), "tab=parameters")
    page.wait_for_function("() => document.querySelector('[data-metric=parallel]')?.chart")
    assert "95 % interval" in page.locator("#panels").inner_text()
    box = box_of(page.locator("[data-metric=parallel] .u-over"))
    place = page.evaluate(
        "() => { const {plot} = document.querySelector('[data-metric=parallel]').chart;"
        " return [plot.valToPos(0, 'x'), plot.valToPos(1.02, 'y'), plot.valToPos(0.9, 'y')]; }"
    )
    page.mouse.move(box["x"] + place[0], box["y"] + max(place[1], 1))
    page.mouse.down()
    page.mouse.move(box["x"] + place[0], box["y"] + place[2])
    page.mouse.up()
    page.wait_for_function("() => window.rla.chosen.size === 6")  # the highest lr of four
    values = page.evaluate("() => [...window.rla.chosen].map((n) => window.rla.store.rows.get(n).tracked.lr)")
    assert set(values) == {"0.1"}
    page.wait_for_function("() => document.querySelector('[data-metric=parallel]').chart.curves.length === 6")
    page.locator("[data-metric=parallel] .u-over").dblclick()
    page.wait_for_function("() => window.rla.chosen.size === 0")
