"""The page of runs, clicked in a browser: the list, the panels, what they draw."""

from __future__ import annotations

import csv
import io
import math
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from support.page_lab import PageServer
from support.page_runs import (
    HOSTILE,
    LiveRun,
    write_hostile,
    write_long,
    write_many_metrics,
    write_many_runs,
    write_odd_values,
    write_page_run,
    write_sweep,
)
from support.page_view import View, box_of, read_columns
from support.waiting import wait_until

from rla_client.database.compare.mean_interval import mean_and_interval
from rla_client.database.curves.band_kinds import band_kind
from rla_client.plot.bands import curve_band
from rla_client.plot.smoothing import group_curves, smooth

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from support.page_fixtures import Faults

Serve = Callable[..., PageServer]
Rla = Callable[..., subprocess.CompletedProcess[str]]
CLOSE: dict[str, Any] = {"rel": 1e-6, "abs": 1e-9}  # what float32 holds
slow = pytest.mark.slow


@pytest.fixture
def sweep(page_server: Serve, root: Path, page: Page) -> View:
    """Six runs: seeds 0 to 2 of lr 0.1 in `task`, of lr 0.01 in `other/deep`."""
    write_sweep(root)
    return View(page, page_server(root))


def query(view: View) -> dict[str, str]:
    """What the address remembers."""
    found = view.page.evaluate("() => location.hash.split('?')[1] ?? ''")
    return {name: values[0] for name, values in parse_qs(found).items()}


# The list ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_list_shows_what_is_there_newest_first(sweep: View) -> None:
    sweep.until_numbers([5, 4, 3, 2, 1, 0])
    row = sweep.rows()[1]
    assert "lr=0.01 seed=1 11-21 09:34:00" in row["=run"]
    shown = {
        name: row[f"={name}"] for name in ("table", "state", "step", "host", "lr", "seed", "return", "took")
    }
    assert shown == {
        "table": "other/deep",
        "state": "finished",
        "step": "49",
        "host": "box",
        "lr": "0.01",
        "seed": "1",
        "return": "1.49",
        "took": "50 s",
    }
    assert "6 runs" in sweep.page.locator("#runs").inner_text()
    assert "token" not in sweep.page.url, "not for history or screenshots"


@slow
def test_the_page_opens_again_without_the_token_in_its_address(sweep: View) -> None:
    sweep.page.reload()
    sweep.page.wait_for_selector("#runs-table .row[data-number]")
    sweep.until_numbers([5, 4, 3, 2, 1, 0])


@slow
@pytest.mark.further
def test_sorting(sweep: View) -> None:
    sweep.head("return").click()
    sweep.until_numbers([2, 1, 0, 5, 4, 3])
    assert sweep.head("return").get_attribute("aria-sort") == "descending"
    sweep.head("return").click()
    sweep.until_numbers([3, 4, 5, 0, 1, 2])
    assert sweep.head("return").get_attribute("aria-sort") == "ascending"
    assert query(sweep)["sort"] == "return"
    sweep.head("seed").focus()
    sweep.page.keyboard.press("Enter")
    sweep.until_numbers([5, 2, 4, 1, 3, 0])
    sweep.page.reload()
    sweep.page.wait_for_function("() => window.rla?.names.fields.length")
    sweep.until_numbers([5, 2, 4, 1, 3, 0])


@slow
def test_a_filter_and_its_error(sweep: View, faults: Faults) -> None:
    faults.allow("400")
    sweep.field("where").fill("lr == 0.1 and seed > 0")
    sweep.until_numbers([2, 1])
    assert "2 of 6" in sweep.page.locator("#runs").inner_text()
    assert query(sweep)["where"] == "lr == 0.1 and seed > 0"
    assert sorted(sweep.shown("return", 2)["numbers"]) == [1, 2]
    sweep.field("where").fill("lr ==")
    sweep.page.wait_for_selector("input[name=where][aria-invalid=true]")
    assert "lr ==" in sweep.error()
    sweep.until_numbers([2, 1])
    sweep.field("where").fill("nothing_of_that == 1")
    sweep.page.wait_for_function(
        "() => document.querySelector('[role=alert]').textContent.includes('nothing_of_that')"
    )
    sweep.field("where").fill("")
    sweep.until_numbers([5, 4, 3, 2, 1, 0])
    assert sweep.error() == ""
    assert sweep.field("where").get_attribute("aria-invalid") is None


@slow
def test_a_filter_is_completed(sweep: View, faults: Faults) -> None:
    faults.allow("400")  # a filter that is half typed
    where, offers = sweep.field("where"), sweep.page.locator("ul.offers:visible li")
    where.click()
    sweep.page.keyboard.type("net")
    offers.first.wait_for()
    assert "net.width" in offers.first.inner_text()
    sweep.page.keyboard.press("ArrowDown")
    sweep.page.keyboard.press("Enter")
    assert where.input_value() == "net.width"
    sweep.page.keyboard.type(" == 64 and table == ")
    offers.filter(has_text="other/deep").wait_for()
    offers.filter(has_text="other/deep").click()
    assert where.input_value() == "net.width == 64 and table == 'other/deep'"
    sweep.until_numbers([5, 4, 3])
    sweep.page.keyboard.type(" and s")
    offers.first.wait_for()
    sweep.page.keyboard.press("Escape")
    assert offers.count() == 0
    assert where.input_value().endswith(" and s")


@slow
@pytest.mark.further
def test_grouping_the_list(sweep: View) -> None:
    sweep.group("lr")
    sweep.page.wait_for_selector("#runs-table .row.group")
    assert [row["group"] for row in sweep.rows()] == ["lr=0.01", "lr=0.1"]
    last = [0.01 * 49 + seed for seed in range(3)]
    mean, spread = sweep.column("return")[0].split(" ± ")
    expected, interval = mean_and_interval(last)  # as `rla ls --group` has them
    assert float(mean) == pytest.approx(expected, rel=1e-3)
    assert spread.endswith(" (95 %)")
    assert float(spread.split()[0]) == pytest.approx(interval, rel=0.06)
    sweep.page.locator("[data-group='lr=0.1'] button.fold").click()
    assert [row["number"] for row in sweep.rows()] == [-1, -1, 2, 1, 0]
    sweep.page.locator("[data-group='lr=0.1'] button.fold").click()
    assert [row["number"] for row in sweep.rows()] == [-1, -1]
    sweep.group("lr, table")
    sweep.page.wait_for_selector("[data-group='lr=0.1, table=task']")
    sweep.group("nothing")
    sweep.page.wait_for_function(
        "() => document.querySelector('[role=alert]').textContent.includes('nothing')"
    )
    sweep.group("")
    sweep.until_numbers([5, 4, 3, 2, 1, 0])


@slow
def test_hiding_and_choosing(sweep: View) -> None:
    assert sorted(sweep.shown("return", 6)["numbers"]) == list(range(6))
    sweep.row(3).locator("button.eye").click()
    assert sorted(sweep.shown("return", 5)["numbers"]) == [0, 1, 2, 4, 5]
    assert sweep.row(3).locator("button.eye").get_attribute("aria-pressed") == "true"
    sweep.row(3).locator("button.eye").click()
    sweep.shown("return", 6)
    sweep.row(4).locator("input.choose").click()
    assert sweep.shown("return", 1)["numbers"] == [4]
    assert query(sweep)["run"].startswith("0/other/deep/")
    sweep.row(1).locator("input.choose").click(modifiers=["Shift"])
    assert sorted(sweep.shown("return", 4)["numbers"]) == [1, 2, 3, 4]
    sweep.page.reload()
    sweep.page.wait_for_function("() => window.rla?.names.fields.length")
    assert sorted(sweep.shown("return", 4)["numbers"]) == [1, 2, 3, 4]
    choose_all = sweep.page.locator("#runs-table .head input[type=checkbox]")
    choose_all.click()
    sweep.shown("return", 6)
    assert sweep.page.locator("#runs-table .row.chosen").count() == 6
    choose_all.click()
    sweep.page.wait_for_function("() => !document.querySelector('#runs-table .row.chosen')")


@slow
def test_colours_are_the_same_everywhere_and_stay(sweep: View) -> None:
    shown = sweep.shown("return", 6)
    for number, colour in zip(shown["numbers"], shown["colours"], strict=True):
        assert sweep.row(number).locator("input.colour").input_value().lower() == colour.lower()
    assert len(set(shown["colours"])) == 6
    sweep.row(2).locator("input.colour").fill("#123456")
    sweep.until("return", "chart.curves.some((curve) => curve.colour === '#123456')")
    sweep.until("loss", "chart.curves.some((curve) => curve.colour === '#123456')")
    drawn = sweep.page.evaluate(
        "() => { const {plot} = document.querySelector('section.panel').chart;"
        " return plot.series.map((one) => one.stroke?.()).includes('#123456'); }"
    )
    assert drawn
    sweep.page.reload()
    sweep.until("return", "chart.curves.some((curve) => curve.colour === '#123456')")
    assert sweep.row(2).locator("input.colour").input_value() == "#123456"


@slow
@pytest.mark.further
def test_columns_that_differ_and_columns_that_were_chosen(sweep: View) -> None:
    assert "net.width" not in sweep.columns()
    sweep.page.click("button[name=columns]")
    dialog = sweep.page.locator("dialog.columns")
    dialog.locator("input[type=search]").fill("loss")
    dialog.get_by_label("min(loss)").check()
    dialog.locator("input[type=search]").fill("net")
    dialog.get_by_label("net.width").check()
    dialog.get_by_role("button", name="Show").click()
    sweep.head("net.width").wait_for()
    assert set(sweep.column("net.width")) == {"64"}
    lowest = [min(1 / (1 + step + seed) for step in range(50)) for seed in (2, 1, 0, 2, 1, 0)]
    assert [float(text) for text in sweep.column("min(loss)")] == pytest.approx(lowest, rel=1e-4)
    assert sweep.page.locator("dialog").count() == 0
    sweep.page.click("button[name=differs]")
    sweep.page.wait_for_function("() => !document.querySelector(\".row.head [data-column='net.width']\")")
    assert {"lr", "seed"} <= set(sweep.columns())
    sweep.page.click("button[name=differs]")


@slow
@pytest.mark.further
def test_ten_thousand_rows_scroll(page_server: Serve, root: Path, page: Page) -> None:
    write_many_runs(root)
    view = View(page, page_server(root))
    assert "10000 runs" in page.locator("#runs").inner_text()
    assert len(view.rows()) < 120
    assert view.rows()[0]["place"] == 0
    box = page.locator("#runs-table")
    box.evaluate("(box) => { box.scrollTop = box.scrollHeight / 2; }")
    page.wait_for_selector("#runs-table .row[aria-rowindex='5002']")
    middle = next(row for row in view.rows() if row["place"] == 5000)
    assert middle["=return"] == f"{9999 - 5000}.5"
    at = box_of(page.locator("#runs-table .row[aria-rowindex='5002']"))
    frame = box_of(box)
    assert abs(at["y"] - frame["y"]) < frame["height"], "the row is where the scroll bar says"
    box.evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    page.wait_for_selector("#runs-table .row[aria-rowindex='10001']")
    assert view.rows()[-1]["=return"] == "0.5"
    assert len(view.rows()) < 120
    view.field("where").fill("seed == 3 and lr == 0.1")
    page.wait_for_function("() => window.rla.rows().length === 334")
    assert 0 < len(view.rows()) < 120
    assert view.rows()[-1]["place"] <= 334
    view.field("where").fill("seed == 3 and lr == 0.1 and number == 63")
    page.wait_for_function("() => window.rla.rows().length === 1")
    assert view.column("return") == ["63.5"]


@pytest.mark.further
@slow
def test_keys_move_through_the_list(sweep: View) -> None:
    sweep.row(5).locator("input.choose").focus()
    sweep.page.keyboard.press("ArrowDown")
    sweep.page.keyboard.press("ArrowDown")
    sweep.page.keyboard.press("Space")
    assert sweep.shown("return", 1)["numbers"] == [3]


@slow
def test_an_empty_database_says_what_to_do(page_server: Serve, root: Path, page: Page) -> None:
    (root / "log").mkdir()
    page.goto(page_server(root).url)
    page.get_by_text("No run is here yet").wait_for()


# What is drawn -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.further
def test_a_panel_draws_the_values_of_the_tables(sweep: View, root: Path) -> None:
    told = sweep.server.ask("runs")
    for metric in ("return", "loss"):
        shown = sweep.shown(metric, 6)
        assert shown["kind"] == "exact"
        for number, table, index in zip(told["number"], told["table"], told["index"], strict=True):
            columns = read_columns(root, table, index)
            xs, ys = sweep.curve(metric, number)
            assert xs == columns["time-step"]
            assert ys == pytest.approx(columns[metric], **CLOSE)


@slow
def test_of_many_points_no_extreme_is_lost(page_server: Serve, root: Path, page: Page) -> None:
    write_long(root)
    view = View(page, page_server(root))
    shown = view.shown("spike", 1)
    assert shown["kind"] == "buckets"
    xs, ys = shown["data"]
    assert len(xs) < 10_000
    assert max(y for y in ys if y is not None) == 1e6
    at = next(x for x, y in zip(xs, ys, strict=True) if y == 1e6)
    assert abs(at - 1_000_000 // 3) < 1_000_000 / 100
    line = view.shown("return", 1)["data"][1]
    assert (line[0], line[-1]) == (0, pytest.approx(499_999.5, rel=1e-6))


@pytest.mark.further
@slow
def test_zooming_asks_for_the_part(page_server: Serve, root: Path, page: Page) -> None:
    write_long(root, 100_000)
    view = View(page, page_server(root))
    assert view.shown("return", 1)["kind"] == "buckets"
    place = 100_000 // 3
    share = place / 100_000
    with page.expect_response(lambda answer: answer.url.endswith("/api/curves")):
        view.drag("spike", share - 0.02, share + 0.02)
    view.until("spike", "chart.plot.scales.x.max - chart.plot.scales.x.min < 10000")
    low, high = (float(one) for one in query(view)["zoom"].split(","))
    assert low < place < high
    for _ in range(2):
        view.drag("spike", 0.45, 0.55)
        width = high - low
        view.until("spike", "chart.plot.scales.x.max - chart.plot.scales.x.min < arg / 5", width)
        low, high = (float(one) for one in query(view)["zoom"].split(","))
        if not low < place < high:
            break
    view.until("return", "chart.plot.scales.x.max - chart.plot.scales.x.min < 1000")
    xs, ys = view.curve("return", 0)
    assert ys == pytest.approx([x * 0.5 for x in xs], rel=1e-6)
    assert np.diff(xs).tolist() == [1] * (len(xs) - 1), "now each point is there"
    page.click("button[name=unzoom]")
    view.until("return", "chart.plot.scales.x.max > 99000")
    assert "zoom" not in query(view)
    view.drag("return", 0.2, 0.4)
    view.until("return", "chart.plot.scales.x.max < 45000")
    view.panel("return").locator(".u-over").dblclick()
    view.until("return", "chart.plot.scales.x.max > 99000")


@slow
def test_logarithmic_axes(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0, {"return": [-1.0, 0.0, 1.0, 10.0, 100.0]}, steps=[0, 1, 10, 100, 1000])
    view = View(page, page_server(root))
    assert view.shown("return", 1)["data"] == [[0, 1, 10, 100, 1000], [-1, 0, 1, 10, 100]]
    page.check("input[name=logY]")
    view.until("return", "chart.plot.scales.y.distr === 3")
    assert view.curve("return", 0) == ([10, 100, 1000], [1, 10, 100])
    assert "values of 0 and below are left out" in view.panel("return").inner_text()
    page.check("input[name=logX]")
    view.until("return", "chart.plot.scales.x.distr === 3")
    assert view.curve("return", 0) == ([10, 100, 1000], [1, 10, 100])
    assert view.shown("return")["x"]["min"] > 0
    page.uncheck("input[name=logY]")
    view.until("return", "chart.plot.scales.y.distr === 1")
    assert view.curve("return", 0) == ([1, 10, 100, 1000], [0, 1, 10, 100])
    assert "left out" not in view.panel("return").inner_text()
    page.uncheck("input[name=logX]")
    view.until("return", "chart.plot.scales.x.distr === 1 && chart.data[0].length === 5")


@pytest.mark.further
@slow
def test_keys_zoom_a_logarithmic_axis(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0, {"return": [float(x) for x in range(1, 101)]}, steps=range(1, 101))
    view = View(page, page_server(root), "logx=1")
    view.shown("return", 1)
    view.panel("return").locator(".plot").focus()
    page.keyboard.press("-")
    view.until("return", "chart.plot.scales.x.min < 0.5")
    low, high = (float(one) for one in query(view)["zoom"].split(","))
    assert low == pytest.approx(10**-0.4)
    assert high == pytest.approx(10**2.4)
    page.keyboard.press("+")
    view.until("return", "chart.plot.scales.x.min > 0.9")
    for power in range(1, 16):  # down to 10 to the -130th
        page.keyboard.press("-")
        view.until("return", f"chart.plot.scales.x.min < 10 ** {1.1 - 0.84 * 1.4**power}")


@pytest.mark.further
@slow
def test_a_zoom_that_a_logarithmic_axis_cannot_show(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0)
    view = View(page, page_server(root), "logx=1&zoom=-5,8")
    assert view.shown("return", 1)["x"]["min"] == 1


@slow
@pytest.mark.further
def test_another_x(sweep: View, root: Path) -> None:
    sweep.field("x").fill("loss")
    sweep.field("x").press("Enter")
    sweep.until("return", "chart.options.x === 'loss'")
    told = sweep.server.ask("runs")
    columns = read_columns(root, told["table"][0], told["index"][0])
    points = sorted(zip(columns["loss"], columns["return"], strict=True))
    xs, ys = sweep.curve("return", 0)
    assert xs == pytest.approx([x for x, _ in points], **CLOSE)
    assert ys == pytest.approx([y for _, y in points], **CLOSE)
    sweep.field("x").fill("elapsed")
    sweep.field("x").press("Enter")
    sweep.until("return", "chart.options.x === 'elapsed'")
    assert sweep.curve("return", 0)[0] == pytest.approx(list(range(50)), abs=1e-3)


@pytest.mark.further
@slow
def test_an_x_that_no_run_has_is_named(sweep: View) -> None:
    sweep.field("x").fill("tiem-step")
    sweep.field("x").press("Enter")
    sweep.panel("return").get_by_text("none of these runs has numbers for return and tiem-step").wait_for()


@slow
def test_smoothing_is_that_of_rla_plot(sweep: View, root: Path) -> None:
    slider = sweep.field("smooth")
    slider.focus()
    for _ in range(5):
        sweep.page.keyboard.press("ArrowRight")
    assert slider.input_value() == "5"
    sweep.page.wait_for_function(
        "() => document.querySelector('section.panel[data-metric=loss]')?.panel.asked?.smooth === 5"
    )
    told = sweep.server.ask("runs")
    columns = read_columns(root, told["table"][1], told["index"][1])
    xs, ys = sweep.curve("loss", 1)
    grid = np.array(xs)
    expected = smooth((np.array(columns["time-step"]), np.array(columns["loss"])), grid, 5.0)
    assert ys == pytest.approx(expected.tolist(), **CLOSE)
    assert ys[0] != pytest.approx(columns["loss"][0], rel=0.01), "it was smoothed"


@slow
@pytest.mark.parametrize("band", ["ci", "iqm", "stderr", "std", "median", "range"])
def test_bands_are_those_of_rla_plot(page_server: Serve, root: Path, page: Page, band: str) -> None:
    write_sweep(root, seeds=5)
    view = View(page, page_server(root), f"group=lr&band={band}")
    shown = view.shown("return", 2)
    assert shown["kind"] == "bands"
    assert [label.partition(" (")[0] for label in shown["labels"]] == ["lr=0.01", "lr=0.1"]
    told = view.server.ask("runs")
    for place, lr in enumerate(("0.01", "0.1")):
        members = []
        for table, index, tracked in zip(told["table"], told["index"], told["tracked"], strict=True):
            if tracked["lr"] == lr:
                columns = read_columns(root, table, index)
                members.append((np.array(columns["time-step"]), np.array(columns["return"])))
        assert len(members) == 5
        xs, values = group_curves(members, 256, 0.0)
        assert shown["data"][0] == pytest.approx(xs.tolist())
        for expected, drawn in zip(
            curve_band(values, band_kind(band)), shown["data"][1 + 3 * place : 4 + 3 * place], strict=True
        ):
            assert drawn == pytest.approx(np.asarray(expected).tolist(), rel=1e-5, abs=1e-6)


@slow
@pytest.mark.further
def test_a_group_has_one_name_and_colour_and_loses_no_run(page_server: Serve, root: Path, page: Page) -> None:
    """Values that are spelled in many ways, or are no numbers; a panel whose runs have no such parameter."""
    values = [1e-5, 1e-6, 1e-7, 1e6, 1.0, "1.0", 1, None, True, "text", 0.1 + 0.2, 2.5e22, "1e-5"]
    for number, value in enumerate(values):
        write_page_run(root, number, params={"lr": value, "seed": number}, tracked=("seed",))
    write_page_run(root, 20, {"other": [1.0, 2.0]}, params={"seed": 20})
    view = View(page, page_server(root), "group=lr")
    shown = view.shown("return")
    assert sorted(number for numbers in shown["numbers"] for number in numbers) == list(range(len(values)))
    heads = page.locator("#runs-table .row.group")
    listed = heads.evaluate_all(
        "(rows) => rows.map((row) => [row.dataset.group, row.querySelector('.colour').value.toLowerCase()])"
    )
    drawn = [
        [label.rpartition(" (")[0], colour.lower()]
        for label, colour in zip(shown["labels"], shown["colours"], strict=True)
    ]
    assert sorted(drawn) == sorted(listed)
    assert view.shown("other", 1)["labels"] == ["lr=None (1)"]


@pytest.mark.further
@slow
def test_groups_whose_values_look_like_labels_are_listed_each(
    page_server: Serve, root: Path, page: Page
) -> None:
    pairs = [("1, b=2", "3"), ("1", "2, b=3"), ('"é', "4")]
    for number, (a, b) in enumerate(pairs):
        write_page_run(root, number, params={"a": a, "b": b, "seed": number}, tracked=("seed",))
    shown = View(page, page_server(root), "group=a,b").shown("return")
    heads = page.locator("#runs-table .row.group").evaluate_all(
        "(rows) => rows.map((row) => row.dataset.group)"
    )
    texts = [("1", '"2, b=3"'), ('"1, b=2"', "3"), (r'"\"é"', "4")]
    assert sorted(heads) == sorted(f"a={a}, b={b}" for a, b in texts)
    assert sorted(shown["labels"]) == sorted(f"{head} (1)" for head in heads)


@pytest.mark.further
@slow
def test_a_band_does_not_depend_on_the_order_of_the_list(page_server: Serve, root: Path, page: Page) -> None:
    write_sweep(root, seeds=5)
    view = View(page, page_server(root), "group=lr")
    first = view.shown("return", 2)["data"]
    asked = "document.querySelector('section.panel[data-metric=return]').panel.asked.runs.join()"
    before = page.evaluate(f"() => {asked}")
    view.head("seed").click()
    view.head("seed").click()
    first_run = before.split(",")[0]
    page.wait_for_function(f"(run) => {asked}.split(',')[0] !== run", arg=first_run)
    assert view.shown("return", 2)["data"] == first


@slow
def test_what_is_no_number_is_marked(page_server: Serve, root: Path, page: Page) -> None:
    write_odd_values(root)
    view = View(page, page_server(root))
    assert view.curve("return", 0) == ([0, 2, 4, 6, 8], [1, 2, 3, 4, 5])
    shown = view.shown("return")
    assert sorted(map(tuple, shown["marks"][0])) == [(1, "nan"), (3, "inf"), (5, "-inf"), (9, "nan")]
    for text in ("2 nan", "1 inf", "1 -inf"):
        assert text in shown["legend"]
    assert view.shown("big")["data"][1] == [10.0**307] * 10
    never = view.panel("never")
    never.scroll_into_view_if_needed()
    page.wait_for_function(
        "() => { const p = document.querySelector('section.panel[data-metric=never]');"
        " return p.querySelector('.said').textContent || p.querySelector('.legend').textContent; }"
    )
    assert "10 nan" in never.inner_text()


@pytest.mark.further
@slow
def test_where_a_run_became_nan_is_seen(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0, {"return": [1.0, 2.0, 3.0, *[math.nan] * 7]})
    live = LiveRun(root, 3)
    view = View(page, page_server(root))
    assert view.shown("return", 2)["x"] == {"min": 0, "max": 9, "distr": 1}
    for _ in range(9):
        live.append(math.nan)
    view.until("return", "chart.curves.some((curve) => curve.marks.some(([x]) => x === 11))")
    assert view.shown("return")["x"]["max"] == 11
    view.field("logY").check()
    view.field("logY").uncheck()
    view.until("return", "chart.plot.scales.y.distr === 1")
    page.click("#theme")
    view.until("return", "chart.curves.some((curve) => curve.marks.some(([x]) => x === 11))")


@slow
def test_pointing_at_a_curve_names_it_in_the_list(sweep: View) -> None:
    sweep.shown("return", 6)
    number, share = 2, 0.8
    highest = sweep.page.evaluate(
        """([number, share]) => {
            const panel = document.querySelector("section.panel[data-metric=return]");
            const {plot} = panel.chart;
            const at = Math.round(plot.data[0].length * share);
            const place = panel.panel.head.curves.findIndex((curve) => curve.number === number) + 1;
            return [plot.valToPos(plot.data[0][at], "x"), plot.valToPos(plot.data[place][at], "y")];
        }""",
        [number, share],
    )
    over = sweep.panel("return").locator(".u-over")
    over.scroll_into_view_if_needed()
    box = box_of(over)
    sweep.page.mouse.move(box["x"] + highest[0] - 3, box["y"] + highest[1] + 3)
    sweep.page.mouse.move(box["x"] + highest[0], box["y"] + highest[1])
    sweep.page.wait_for_selector(f"#runs-table .row.near[data-number='{number}']")
    tip = sweep.panel("return").locator(".tip")
    tip.wait_for()
    assert "seed=2" in tip.inner_text()


@slow
@pytest.mark.further
def test_metrics_are_found_by_name(sweep: View) -> None:
    sweep.page.wait_for_function("() => document.querySelectorAll('section.panel').length === 2")
    sweep.field("metrics").fill("LOS")
    sweep.page.wait_for_function("() => document.querySelectorAll('section.panel').length === 1")
    sweep.shown("loss", 6)
    sweep.field("metrics").fill("none of it")
    sweep.page.get_by_text("No metric has this in its name").wait_for()
    sweep.field("metrics").fill("")
    sweep.page.wait_for_function("() => document.querySelectorAll('section.panel').length === 2")


@pytest.mark.further
@slow
def test_ten_thousand_metrics_make_few_panels(page_server: Serve, root: Path, page: Page) -> None:
    write_many_metrics(root)
    view = View(page, page_server(root))
    page.wait_for_selector("section.panel")
    assert page.locator("section.panel").count() < 1500
    assert page.locator("section.panel canvas").count() < 100
    view.field("metrics").fill("group7/metric9907")
    assert view.shown("group7/metric9907", 1)["data"][1] == [9907.0] * 3


# What leaves the page ------------------------------------------------------------------------------


def saved(view: View, metric: str, button: str) -> bytes:
    with view.page.expect_download() as waiting:
        view.panel(metric).get_by_role("button", name=f"Save as {button}").click()
    assert waiting.value.suggested_filename == f"{metric}.{button.lower()}"
    return Path(waiting.value.path()).read_bytes()


@pytest.mark.further
@slow
def test_a_panel_is_saved_as_table_and_pictures(sweep: View, root: Path) -> None:
    sweep.shown("loss", 6)
    rows = list(csv.DictReader(io.StringIO(saved(sweep, "loss", "CSV").decode())))
    told = sweep.server.ask("runs")
    for table, index in zip(told["table"], told["index"], strict=True):
        columns = read_columns(root, table, index)
        own = [row for row in rows if (row["table"], row["index"]) == (table, index)]
        assert [float(row["value"]) for row in own] == columns["loss"]
        assert [float(row["time-step"]) for row in own] == columns["time-step"]
    assert {row["metric"] for row in rows} == {"loss"}
    assert len(rows) == 300
    picture = saved(sweep, "loss", "PNG")
    assert picture.startswith(b"\x89PNG\r\n")
    assert len(picture) > 3000
    drawing = ET.fromstring(saved(sweep, "loss", "SVG"))
    lines = drawing.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 6
    assert {len(line.attrib["points"].split()) for line in lines} == {50}


@pytest.mark.further
@slow
@pytest.mark.parametrize("asked", ["", "group=lr&band=std", "where=lr == 0.1&group=lr&smooth=3"])
def test_a_panel_as_a_command_draws_the_same_runs(
    page_server: Serve, root: Path, page: Page, rla: Rla, tmp_path: Path, asked: str
) -> None:
    write_sweep(root)
    view = View(page, page_server(root), asked)
    view.shown("loss")
    view.panel("loss").get_by_role("button", name="Command line").click()
    command = page.get_by_label("Command", exact=True).input_value()
    page.get_by_role("button", name="Close").click()
    words = shlex.split(command, comments=True)
    assert words[:3] == ["rla", "plot", f"--data-root={root}"]
    assert words[-2:] == ["--", "loss"]
    picture = tmp_path / "out.png"
    done = rla("plot", "-o", str(picture), *words[2:], cwd=tmp_path)
    assert done.returncode == 0, (command, done.stderr)
    assert picture.stat().st_size > 1000


# What is new ---------------------------------------------------------------------------------------


@slow
def test_a_new_row_appears(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 5)
    live = LiveRun(root)
    view = View(page, page_server(root))
    number = view.number_of(live.index)
    view.shown("return", 2)
    live.append(77.0)
    view.until("return", "chart.data.slice(1).some((ys) => ys.includes(77))")
    live.append(math.nan)
    live.append(78.0)
    view.until("return", "chart.data.slice(1).some((ys) => ys.includes(78))")
    assert view.curve("return", number) == ([0, 1, 2, 3, 5], [0, 0.5, 1, 77, 78])
    page.wait_for_function(
        "(number) => document.querySelector(`.row[data-number='${number}']`)?.textContent.includes('78')",
        arg=number,
    )
    live.close()
    view.row(number).get_by_text("finished").wait_for()


@pytest.mark.further
@slow
def test_the_first_rows_of_a_run_appear(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0)
    view = View(page, page_server(root))
    view.shown("return", 1)
    live = LiveRun(root, 3, rows=0)
    table = live.folder / "progress.csv"
    header = table.read_text()
    table.unlink()  # an agent writes it with the first row
    view.row(1).wait_for()
    page.wait_for_function(  # the panel has asked for the run, too, and got nothing
        "() => document.querySelector('section.panel[data-metric=return]').panel.head.lacking === 1"
    )
    table.write_text(header)
    live.append(55.0)
    view.shown("return", 2)
    live.append(56.0)
    view.until("return", "chart.data.slice(1).some((ys) => ys.includes(56))")


@pytest.mark.further
@slow
def test_a_metric_that_a_run_has_later_than_others_appears(
    page_server: Serve, root: Path, page: Page
) -> None:
    write_page_run(root, 0, {"return": [1.0, 2.0], "eval": [1.0, 2.0]})
    live = LiveRun(root, 3)
    view = View(page, page_server(root))
    view.shown("return", 2)
    view.shown("eval", 1)
    table = live.folder / "progress.csv"
    head, *rows = table.read_text().splitlines()
    lines = [f"{head},eval", *(f"{row}," for row in rows), f"1.5,3,{live._begin + 3},77.0"]
    wider = table.with_name("progress.csv.tmp")  # as the agent adds a column
    wider.write_text("\n".join([*lines, ""]))
    wider.replace(table)
    view.shown("eval", 2)
    assert view.curve("eval", view.number_of(live.index)) == ([3], [77])
    table.unlink()
    view.shown("eval", 1)
    view.shown("return", 1)


@slow
def test_news_take_no_click_away(page_server: Serve, root: Path, page: Page) -> None:
    live = LiveRun(root)
    view = View(page, page_server(root))
    view.shown("return", 1)
    box = view.row(0).locator("input.choose")
    where = box_of(box)
    page.mouse.move(where["x"] + 5, where["y"] + 5)
    page.mouse.down()
    live.append(77.0)
    page.wait_for_function("() => window.rla.store.rows.get(0).value === 77")  # the list has been told of it
    assert "77" not in view.row(0).inner_text()
    page.mouse.up()
    view.row(0).get_by_text("77").wait_for()
    assert box.is_checked()


@slow
@pytest.mark.further
def test_a_new_run_appears_and_one_that_went_goes(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0)
    view = View(page, page_server(root))
    view.shown("return", 1)
    live = LiveRun(root, 3)
    view.row(1).wait_for()
    view.shown("return", 2)
    live.append(55.0)
    view.until("return", "chart.data.slice(1).some((ys) => ys.includes(55))")
    for kind in ("log", "hyperparameter"):
        (root / kind / "task" / live.index).rename(root / f"away-{kind}")
    view.row(1).wait_for(state="detached")
    view.shown("return", 1)


@pytest.mark.further
@slow
def test_a_live_run_in_a_zoomed_or_banded_panel_goes_on(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 5, params={"lr": 0.1, "seed": 5})
    live = LiveRun(root, params={"lr": 0.1, "seed": 0})
    view = View(page, page_server(root), "group=lr&band=range")
    view.shown("return", 1)
    live.append(1000.0)
    view.until("return", "chart.data.slice(1).some((ys) => ys.some((y) => y > 900))")


@pytest.mark.further
@slow
def test_many_rows_while_it_is_looked_at(page_server: Serve, root: Path, page: Page) -> None:
    live = LiveRun(root)
    view = View(page, page_server(root))
    view.shown("return", 1)
    live.start(0.005)
    try:
        view.until("return", "chart.data[0].length > 100")
    finally:
        live.stop()
    last = live.append()
    view.until("return", "chart.data[1].includes(arg)", last)
    xs, ys = view.curve("return", 0)
    assert xs == list(range(live.rows))
    assert ys == pytest.approx([x * 0.5 for x in xs], **CLOSE)


@slow
def test_a_server_that_ended_is_told_and_one_that_is_back_goes_on(
    page_server: Serve, root: Path, page: Page, faults: Faults
) -> None:
    faults.allow("ERR_CONNECTION|ERR_INTERNET|network error|ERR_INCOMPLETE|Failed to fetch|403")
    write_sweep(root)
    server = page_server(root)
    View(page, server)
    lost = "() => document.getElementById('news').textContent.includes('does not answer')"
    page.context.set_offline(offline=True)
    page.evaluate("() => { window.rla.panels.watch(); }")
    page.wait_for_function(lost)
    page.context.set_offline(offline=False)
    page.wait_for_function("() => document.getElementById('news').textContent === ''")
    assert server.interrupt() == 0
    page.wait_for_function(lost)
    assert page.locator("#runs-table .row[data-number]").count() == 6


@slow
def test_a_connection_that_died_silently_is_made_anew(page_server: Serve, root: Path, page: Page) -> None:
    page.clock.install()
    live = LiveRun(root)
    server = page_server(root)
    view = View(page, server)
    view.shown("return", 1)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/live" in request.url else None)

    def asked_later() -> bool:
        page.clock.fast_forward(4_000)
        return bool(asked)

    server.process.send_signal(signal.SIGSTOP)
    try:
        page.clock.fast_forward(60_000)
        wait_until(asked_later)
    finally:
        server.process.send_signal(signal.SIGCONT)
    last = live.append(99.0)
    view.until("return", "chart.data[1].includes(arg)", last)


# What runs wrote -----------------------------------------------------------------------------------


@slow
@pytest.mark.further
def test_what_a_hostile_run_wrote_is_text(page_server: Serve, root: Path, page: Page, faults: Faults) -> None:
    faults.allow("400")  # a filter that is half typed
    write_hostile(root)
    view = View(page, page_server(root))
    page.wait_for_function("() => document.documentElement.dataset.painted > 0")
    text = page.locator("#runs").inner_text()
    for hostile in HOSTILE[:5]:
        assert hostile in text
    view.page.evaluate("(names) => window.rla.setColumns(names)", [*HOSTILE, "nested." + HOSTILE[0]])
    page.wait_for_function(
        "(count) => document.querySelectorAll('.row.head [data-column]').length >= count", arg=len(HOSTILE)
    )
    heads = page.locator("#runs-table .row.head [data-column]").all_text_contents()
    assert {"__proto__", "constructor"} <= set(heads)
    for name in HOSTILE:
        view.page.evaluate("(name) => window.rla.regroup(name)", name)
    view.group("table")
    page.wait_for_selector("#runs-table .row.group")
    view.shown("return")
    view.group("")
    page.evaluate("() => { for (const row of window.rla.store.rows.values()) window.rla.hover(row); }")
    page.evaluate(
        "() => { for (const panel of window.rla.panels.panels.values()) panel.node.scrollIntoView(); }"
    )
    where = view.field("where")
    where.click()
    page.keyboard.type("table == ")
    page.wait_for_selector("ul.offers:visible li")
    drawing = ET.fromstring(saved(view, "return", "SVG"))
    names = {element.tag.rpartition("}")[2] for element in drawing.iter()}
    assert names <= {"svg", "rect", "text", "line", "polyline", "polygon"}
    assert page.evaluate("() => window.hacked") is None
    assert (
        page.evaluate("() => document.querySelectorAll('#page script, #page iframe, #page img').length") == 0
    )
    assert page.evaluate("() => ({}).polluted") is None
    assert "title" not in page.title()


@pytest.mark.further
@slow
def test_dark_and_light(sweep: View) -> None:
    sweep.shown("return", 6)
    before = sweep.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    sweep.page.click("#theme")
    assert sweep.page.evaluate("() => getComputedStyle(document.body).backgroundColor") != before
    sweep.page.reload()
    sweep.shown("return", 6)
    assert sweep.page.evaluate("() => getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.further
@slow
def test_several_databases(page_server: Serve, tmp_path: Path, page: Page) -> None:
    write_page_run(tmp_path / "one", 0, {"return": [1.0, 2.0]})
    write_page_run(tmp_path / "two", 0, {"return": [3.0, 4.0]})
    view = View(page, page_server(tmp_path / "one", tmp_path / "two"))
    shown = view.shown("return", 2)
    assert sorted(shown["data"][1:]) == [[1, 2], [3, 4]]
    assert str(tmp_path / "two") in page.locator("#where").inner_text()
    view.panel("return").get_by_role("button", name="Command line").click()
    command = page.get_by_label("Command", exact=True).input_value()
    drawn = shlex.split(command, comments=True)[2].removeprefix("--data-root=")
    (other,) = {str(tmp_path / "one"), str(tmp_path / "two")} - {drawn}
    assert f"# without: the runs of {other}" in command


@pytest.mark.further
@slow
def test_a_panel_that_is_out_of_sight_asks_for_nothing(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0, {f"m{number}": [1.0, 2.0] for number in range(25)})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/curves" in request.url else None)
    view = View(page, page_server(root))
    view.shown("m0", 1)
    wait_until(lambda: page.evaluate("() => document.documentElement.dataset.painted") and len(asked) >= 3)
    assert len(asked) < 25
    view.panel("m24").scroll_into_view_if_needed()
    view.shown("m24", 1)
