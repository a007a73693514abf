"""Panels: several metrics, order, size, outliers, smoothing, what hangs at the mouse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.page_lab import PageServer
from support.page_runs import LiveRun, write_page_run, write_sweep
from support.page_view import View, box_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

Serve = Callable[..., PageServer]
pytestmark = [pytest.mark.slow, pytest.mark.further]


@pytest.fixture
def sweep(page_server: Serve, root: Path, page: Page) -> View:
    """Six runs."""
    write_sweep(root)
    return View(page, page_server(root))


def order(view: View) -> list[str]:
    found: list[str] = view.page.evaluate(
        "() => [...document.querySelectorAll('section.panel')].map((one) => one.dataset.metric)"
    )
    return found


def test_the_recorded_values_stand_behind_the_smoothed_ones(sweep: View) -> None:
    sweep.field("smooth").fill("5")
    sweep.until("loss", "chart.data.length === 13")
    shown = sweep.shown("loss", 6)
    place = shown["numbers"].index(1)
    raw = [value for value in shown["data"][7 + place] if value is not None]
    assert raw == pytest.approx([1 / (2 + step) for step in range(50)], rel=1e-5)
    assert sweep.page.locator("output.smooth").inner_text() == "5 points"
    sweep.until("loss", "chart.plot.series[7].alpha < 0.5")


def test_a_smoothed_constant_is_that_constant_at_the_left_edge(
    page_server: Serve, root: Path, page: Page
) -> None:
    write_page_run(root, 0, {"return": [7.0] * 40})
    view = View(page, page_server(root), "smooth=20")
    view.until("return", "chart.data.length === 3")
    smoothed = [value for value in view.shown("return")["data"][1] if value is not None]
    assert smoothed == pytest.approx([7.0] * len(smoothed))


def test_the_mean_of_equal_values_does_not_seem_to_jump(page_server: Serve, root: Path, page: Page) -> None:
    for number in range(3):
        write_page_run(root, number, {"return": [1000.1] * 200}, params={"lr": 0.1, "seed": number})
    view = View(page, page_server(root), "group=lr&smooth=5")
    view.until("return", "chart.curves.length === 1")
    y = view.shown("return")["y"]
    assert y["min"] < 950
    assert y["max"] > 1050


def test_outliers_are_clipped_on_request(page_server: Serve, root: Path, page: Page) -> None:
    values = [float(step % 10) for step in range(500)]
    values[250] = 1e9
    write_page_run(root, 0, {"return": values})
    view = View(page, page_server(root))
    view.until("return", "chart.plot.scales.y.max > 1e8")
    page.check("input[name=clip]")
    view.until("return", "chart.plot.scales.y.max < 20")
    assert "outliers are clipped" in view.panel("return").inner_text()
    assert "clip=1" in page.url


def test_several_metrics_in_one_panel(sweep: View) -> None:
    sweep.shown("return", 6)
    sweep.panel("return").get_by_role("button", name="More metrics in this panel").click()
    sweep.page.get_by_role("checkbox", name="loss").check()
    sweep.page.get_by_role("button", name="Show", exact=True).click()
    shown = sweep.shown("return", 12)
    assert sorted({label.split()[0] for label in shown["labels"]}) == ["loss", "return"]
    loss = shown["data"][1 + next(at for at, label in enumerate(shown["labels"]) if label.startswith("loss"))]
    assert max(loss) <= 1
    sweep.page.reload()
    sweep.shown("return", 12)


def test_panels_are_put_in_another_order_which_the_view_keeps(sweep: View) -> None:
    sweep.shown("return", 6)
    assert order(sweep) == ["return", "loss"]
    sweep.panel("loss").get_by_role("button", name="Move to the front").click()
    sweep.page.wait_for_function("() => document.querySelector('section.panel').dataset.metric === 'loss'")
    sweep.page.reload()
    sweep.shown("return", 6)
    assert order(sweep) == ["loss", "return"]
    sweep.panel("return").locator("header").drag_to(sweep.panel("loss"))
    sweep.page.wait_for_function("() => document.querySelector('section.panel').dataset.metric === 'return'")


def test_metrics_are_found_by_a_part_or_a_pattern(sweep: View) -> None:
    sweep.shown("return", 6)
    for text, left in (("ETU", ["return"]), ("^lo|nothing", ["loss"]), ("[", [])):
        sweep.field("metrics").fill(text)
        sweep.page.wait_for_function(
            "(left) => [...document.querySelectorAll('section.panel')]"
            ".map((one) => one.dataset.metric).join() === left",
            arg=",".join(left),
        )


def test_panels_fill_the_width(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0, {f"m{number}": [1.0, 2.0] for number in range(5)} | {"alone/one": [1.0, 2.0]})
    view = View(page, page_server(root), "list=folded")
    view.shown("m0", 1)
    widest = box_of(page.locator("#panels"))
    rows: dict[float, float] = {}
    for panel in page.locator("section.panel").all():
        box = box_of(panel)
        rows[box["y"]] = max(rows.get(box["y"], 0), box["x"] + box["width"])
    assert all(end >= widest["x"] + widest["width"] - 14 for end in rows.values()), rows
    page.locator("select[name=size]").select_option("large")
    page.wait_for_function("() => document.querySelector('section.panel .plot').clientHeight === 400")
    assert "size=large" in page.url


def test_the_ranks_of_a_run_as_their_mean_or_one_alone(page_server: Serve, root: Path, page: Page) -> None:
    index = write_page_run(root, 0, {"return": [1.0, 2.0]})
    rank = root / "log" / "task" / index / "progress.rank3.csv"
    rank.write_text("return,time-step,timestamp\n5.0,0,1.0\n6.0,1,2.0\n")
    view = View(page, page_server(root))
    view.shown("return@rank3", 1)
    page.locator("select[name=ranks]").select_option("mean")
    view.until("return", "chart.data[1][0] === 3 && chart.data[1][1] === 4")
    page.wait_for_function("() => document.querySelectorAll('section.panel').length === 1")
    assert "mean of 2 ranks at each time-step" in view.panel("return").inner_text()
    assert "ranks=mean" in page.url
    page.locator("select[name=ranks]").select_option("rank 3")
    view.until("return", "chart.data[1][0] === 5")
    page.locator("select[name=ranks]").select_option("each apart")
    view.shown("return@rank3", 1)


def test_what_hangs_at_the_mouse_tells_all_runs_sorted(sweep: View) -> None:
    sweep.shown("return", 6)
    over = sweep.panel("return").locator(".u-over")
    box = box_of(over)
    sweep.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    sweep.page.mouse.move(box["x"] + box["width"] * 0.51, box["y"] + 20)
    tip = sweep.panel("return").locator(".tip")
    tip.wait_for()
    values = [float(text) for text in tip.locator(".value").all_inner_texts()]
    assert len(values) == 6
    assert values == sorted(values, reverse=True)


def test_groups_have_dashes(page_server: Serve, root: Path, page: Page) -> None:
    write_sweep(root)
    view = View(page, page_server(root), "group=lr")
    view.shown("return", 2)
    dashes = page.evaluate(
        "() => document.querySelector('section.panel').chart.curves.map((curve) => String(curve.dash))"
    )
    assert len(set(dashes)) == 2


def test_names_of_many_curves_are_folded_where_the_list_has_their_colours(
    page_server: Serve, root: Path, page: Page
) -> None:
    for number in range(10):
        write_page_run(root, number, {"return": [number, number + 1.0]}, params={"lr": 0.1, "seed": number})
    view = View(page, page_server(root))
    view.shown("return", 10)
    panel = view.panel("return")
    names = panel.locator(".entry.name")
    assert names.count() == 0
    dashed = page.locator(".row .colour").evaluate_all(
        "(all) => all.filter((one) => one.style.maskImage.includes('repeating')).length"
    )
    assert dashed == 2  # the ninth and the tenth have the colours of the first two
    panel.locator("summary", has_text="10 curves").click()
    assert names.count() == 10
    assert "names=open" in page.url
    view.field("list").click()  # where the list is folded, the names stand there unasked
    panel.locator("summary").click()
    assert "names=folded" in page.url
    page.goto(f"{view.server.url}#/runs?list=folded")
    view.shown("return", 10)
    assert names.count() == 10
    names.nth(3).click()
    page.locator("#top .brand").hover()
    view.until("return", "chart.focused === 3")


def test_the_fields_above_the_panels_fold_where_there_is_little_room(sweep: View) -> None:
    page = sweep.page
    page.set_viewport_size({"width": 420, "height": 800})
    sweep.shown("return", 6)
    bar = page.locator(".tools.bar")
    assert not sweep.field("x").is_visible()
    bar.get_by_role("button", name="Axes, smoothing…").click()
    assert sweep.field("x").is_visible()
    assert sweep.field("smooth").is_visible()
    assert bar.evaluate("(bar) => bar.scrollWidth <= bar.clientWidth")


@pytest.mark.parametrize("query", ["", "smooth=2", "group=seed"])
def test_a_marked_curve_stays_marked_while_more_comes(
    page_server: Serve, root: Path, page: Page, query: str
) -> None:
    for number in range(2):
        write_page_run(root, number)
    live = LiveRun(root, 2)
    view = View(page, page_server(root), query)
    view.shown("return", 3)
    entries = view.panel("return").locator(".legend .entry.name")
    entries.nth(1).click()
    faint = "chart.plot.series.filter((series) => series.alpha < 0.2).map((series) => series.label)"
    others = [view.shown("return")["labels"][place] for place in (0, 2)]
    assert entries.nth(1).get_attribute("aria-pressed") == "true"

    def marked() -> bool:
        view.until("return", f"arg.every((label) => {faint}.includes(label))", others)
        entries.nth(1).and_(page.locator(".on[aria-pressed=true]")).wait_for()
        return page.locator("#runs-table .row.near").count() == 1

    assert marked()
    for _ in range(2):
        before = page.evaluate("() => Number(document.documentElement.dataset.painted)")
        live.append()
        page.wait_for_function(
            "(before) => Number(document.documentElement.dataset.painted) > before", arg=before
        )
        assert marked()
    page.evaluate("() => window.rla.table.update()")
    assert marked()
    box = box_of(view.panel("return").locator(".u-over"))
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=8)
    page.mouse.move(5, 5)
    assert marked()
    entries.nth(1).click()
    page.mouse.move(5, 5)
    page.evaluate("() => document.activeElement.blur()")
    view.until("return", f"{faint}.length === 0")


def test_the_tip_stays_while_panels_are_drawn_anew(page_server: Serve, root: Path, page: Page) -> None:
    for number in range(2):
        write_page_run(root, number)
    view = View(page, page_server(root), "smooth=2")
    view.shown("return", 2)
    box = box_of(view.panel("return").locator(".u-over"))
    page.mouse.move(box["x"] + box["width"] / 2 - 9, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = view.panel("return").locator(".tip:visible")
    tip.wait_for()
    said = tip.inner_text()
    page.evaluate("() => window.rla.panels.change()")
    page.wait_for_function("(old) => document.documentElement.dataset.painted > old", arg="1")
    tip.wait_for()
    assert tip.inner_text() == said
