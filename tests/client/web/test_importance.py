"""Hyper-parameters against a metric: their importance, and what the panels draw of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.page_lab import PageServer
from support.page_runs import HOSTILE, write_hostile, write_page_run
from support.page_view import View, box_of

from rla_client.web.importance import _Axis, ranks, uncertainty, weigh

if TYPE_CHECKING:
    from playwright.sync_api import Page

Serve = Callable[..., PageServer]
slow = pytest.mark.slow
RATES = (1e-4, 1e-3, 1e-2, 1e-1)
NETS = ("big", "small", "tiny")


def write_search(root: Path) -> None:
    """24 runs: `score` follows lr, `net` moves it a little, `seed` and `env` do nothing."""
    for number in range(24):
        lr, net = RATES[number % 4], NETS[number // 4 % 3]
        score = 100.0 * (number % 4) + 10.0 * NETS.index(net)
        params = {"lr": lr, "net": net, "seed": number * 7 % 24, "env": "Hopper"}
        write_page_run(root, number, {"score": [0.0, score], "other": [1.0, -score]}, params=params)


def test_ranks_share_the_mean_where_values_are_equal() -> None:
    assert ranks(np.array([10.0, 30.0, 20.0, 20.0])).tolist() == [1.0, 4.0, 2.5, 2.5]


def test_spearman_sees_order_alone() -> None:
    ys = np.arange(10.0)
    assert list(weigh([2.0**n for n in range(10)], ys)) == pytest.approx([1.0, 1.0])
    assert list(weigh([-(n**3) for n in range(10)], ys)) == pytest.approx([-1.0, 1.0])
    assert weigh([1.0, 2.0, 3.0], np.array([5.0, 5.0, 5.0])) == (0.0, 0.0)
    scipy = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    random = np.random.default_rng(3)
    xs, ys = random.integers(0, 30, 80).astype(float), random.normal(size=80).round(1)
    assert weigh(xs.tolist(), ys)[0] == pytest.approx(scipy.spearmanr(xs, ys).statistic)


def test_importance_sees_what_goes_up_and_down_and_what_has_no_order() -> None:
    values = [0.1, 0.2, 0.3] * 5
    ys = np.array([0.0, 10.0, 0.5] * 5) + np.arange(15) * 0.01
    rho, importance = weigh(values, ys)
    assert abs(rho or 0) < 0.5
    assert importance > 0.9
    none, same = weigh(["b", "a", "c"] * 5, ys)
    assert none is None
    assert same == pytest.approx(importance)
    chance = [
        weigh(values, np.random.default_rng(n).permutation(15.0 + np.arange(15)))[1] for n in range(200)
    ]
    assert np.mean(chance) < 0.35, "chance is taken off"
    assert weigh([f"own{n}" for n in range(15)], ys) == (None, 0.0)


def test_an_importance_has_an_interval_and_chance_is_told() -> None:
    random = np.random.default_rng(1)
    values = [0.1, 0.2, 0.3, 0.4] * 10
    clear = np.array(values) + random.normal(0, 0.02, 40)
    (low, high), chance = uncertainty(values, clear)
    assert chance < low <= weigh(values, clear)[1] <= high <= 1
    assert chance < 0.5
    noise = [weigh(values, ys)[1] <= uncertainty(values, ys)[1] for ys in random.normal(size=(100, 40))]
    assert 0.85 <= np.mean(noise) <= 1.0, "of noise one in twenty is above"
    few = uncertainty(values[:8], clear[:8])
    assert few[0][1] - few[0][0] > high - low


@pytest.mark.parametrize("values", [["sac", None, "sac"], [0.5, 0.5, None]])
def test_an_axis_of_one_value_names_it_where_its_runs_are(values: list[Any]) -> None:
    axis = _Axis(values)
    assert np.nanmin(axis.scaled()) == np.nanmax(axis.scaled()) == 0.5
    assert axis.ruler() == [[0.5, str(values[0])]]


def test_the_most_important_comes_first(page_server: Serve, root: Path) -> None:
    write_search(root)
    server = page_server(root)
    server.ask("runs")  # gives the numbers
    found = server.ask("importance", {"runs": list(range(24)), "metric": "score"})
    assert found["names"][0]["name"] == "lr"
    assert {one["name"] for one in found["names"]} == {"lr", "net", "seed"}, "env is the same in all"
    rho = {one["name"]: one["rho"] for one in found["names"]}
    assert rho["lr"] > 0.9
    assert rho["net"] is None
    assert found["runs"] == 24
    assert "at least 3" in server.ask("importance", {"runs": [0, 1], "metric": "score"})["problem"]
    for body in ({"runs": "x", "metric": "a"}, {"runs": [1]}, {"runs": [0], "metric": 3}):
        assert server.refused("importance", body)
    assert server.refused("parallel", {"runs": [0], "metric": "score", "parameters": [3]})


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
