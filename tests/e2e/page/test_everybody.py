"""The page without a mouse, on a small screen, for a screen reader, in the dark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.page_lab import PageServer
from support.page_runs import write_page_run, write_sweep
from support.page_view import View, box_of

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from support.page_fixtures import Faults

Serve = Callable[..., PageServer]
pytestmark = [pytest.mark.slow, pytest.mark.further]
NAMELESS = """() => [...document.querySelectorAll(
        "button, input, select, textarea, a[href], [role=img], [role=separator], meter")]
    .filter((one) => one.getClientRects().length)
    .filter((one) => !(one.getAttribute("aria-label") || one.labels?.length
        || one.textContent.trim() || one.title
        || one.closest("label")))
    .map((one) => one.outerHTML.slice(0, 200))"""
FAINT = """() => {
    const luminance = (text) => {
        const parts = text.startsWith("#") ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16))
            : text.match(/\\d+/g).slice(0, 3).map(Number);
        const [r, g, b] = parts.map((part) => part / 255)
            .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const back = luminance(getComputedStyle(document.body).backgroundColor);
    const contrast = (text) => {
        const other = luminance(text);
        return (Math.max(back, other) + 0.05) / (Math.min(back, other) + 0.05);
    };
    const texts = ["--text", "--dim", "--accent", "--bad", "--good", "--warn"]
        .map((name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    const curves = document.querySelector("section.panel").chart.curves.map((curve) => curve.colour);
    return [...texts.filter((one) => contrast(one) < 4.5), ...curves.filter((one) => contrast(one) < 2)];
}"""


@pytest.fixture
def sweep(page_server: Serve, root: Path, page: Page) -> View:
    """Six runs."""
    write_sweep(root)
    return View(page, page_server(root))


def test_keys(sweep: View, faults: Faults) -> None:
    faults.allow("400")  # a filter that is none
    page = sweep.page
    sweep.shown("return", 6)
    page.keyboard.press("/")
    assert page.evaluate("() => document.activeElement.name") == "where"
    page.keyboard.type("v?a0")
    assert sweep.field("where").input_value() == "v?a0", "letters go into a field"
    assert page.locator("dialog").count() == 0
    sweep.field("where").fill("")
    page.wait_for_function("() => window.rla.rows().length === 6")
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").get_by_text("go to the filter").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.keyboard.press("a")
    page.wait_for_function("() => window.rla.chosen.size === 6")
    page.keyboard.press("h")
    page.get_by_role("tab", name="Hyper-parameters", selected=True).wait_for()
    page.keyboard.press("c")
    sweep.shown("return", 6)
    page.keyboard.press("3")
    page.get_by_role("heading", name="This machine").wait_for()
    page.keyboard.press("1")
    page.locator("#runs-table .row[data-number]").first.wait_for()


def test_a_panel_is_moved_and_zoomed_by_keys(sweep: View) -> None:
    sweep.shown("return", 6)
    plot = sweep.panel("return").get_by_role("img")
    plot.focus()
    words = plot.get_attribute("aria-label") or ""
    assert words.startswith("return: 6 curves over time-step")
    assert "seed=2" in words
    assert "6.9 at the end" in words
    sweep.page.keyboard.press("+")
    for metric in ("loss", "return"):
        sweep.until(metric, "chart.plot.scales.x.max < 45")
    sweep.panel("return").get_by_role("img").focus()
    low = sweep.shown("return")["x"]["min"]
    sweep.page.keyboard.press("ArrowLeft")
    sweep.until("return", "chart.plot.scales.x.min < arg", low)
    sweep.page.keyboard.press("0")
    sweep.until("return", "chart.plot.scales.x.max > 48 && chart.plot.scales.x.min <= 0")


def test_a_panel_keeps_the_keyboard_when_panels_are_laid_out_anew(sweep: View) -> None:
    sweep.shown("return", 6)
    plot = sweep.panel("return").get_by_role("img")
    plot.focus()
    sweep.page.evaluate("document.querySelector('section.panel').panel.panels.layout()")
    assert plot.evaluate("(node) => node === document.activeElement")


def test_the_list_is_made_wider_by_keys(sweep: View) -> None:
    divider = sweep.page.get_by_role("separator", name="Width of the list")
    before = box_of(divider)
    divider.focus()
    sweep.page.keyboard.press("ArrowRight")
    after = box_of(divider)
    assert after["x"] > before["x"] + 20


@pytest.mark.parametrize("query", ["", "tab=parameters", "group=lr"])
def test_everything_has_a_name(sweep: View, query: str, faults: Faults) -> None:
    faults.allow("400")  # a run that is not there
    page = sweep.page
    page.goto(f"{sweep.server.url}#/runs?{query}")
    page.wait_for_function("() => document.querySelector('section.panel')?.chart")
    assert page.evaluate(NAMELESS) == []
    page.keyboard.press("v")
    page.get_by_role("dialog", name="Views").wait_for()
    assert page.evaluate(NAMELESS) == []
    page.keyboard.press("Escape")
    page.goto(f"{sweep.server.url}#/run/{sweep.server.ask('runs')['place'][0]}/x")
    page.get_by_role("alert").wait_for()


def test_pages_of_a_run_and_of_files_have_names(sweep: View) -> None:
    page = sweep.page
    sweep.row(0).locator("a").click()
    page.get_by_role("tab", name="Overview").wait_for()
    assert page.evaluate(NAMELESS) == []
    page.goto(f"{sweep.server.url}#/compare")
    page.get_by_text("Choose runs").wait_for()
    assert page.evaluate(NAMELESS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_are_told_from_the_ground(page_server: Serve, root: Path, page: Page, scheme: str) -> None:
    for number in range(40):
        write_page_run(root, number)
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    view = View(page, page_server(root), "show=40")
    shown = view.shown("return", 40)
    assert page.evaluate(FAINT) == []
    dashes = page.evaluate(
        "() => document.querySelector('section.panel').chart.curves.map((one) => String(one.dash))"
    )
    assert len(set(zip(shown["colours"], dashes, strict=True))) == 40, "no two look alike"


@pytest.mark.parametrize("query", ["", "tab=parameters"])
def test_a_narrow_screen_needs_no_sideways_scrolling(sweep: View, query: str) -> None:
    page = sweep.page
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{sweep.server.url}#/runs?{query}")
    page.wait_for_selector("#runs-table .row[data-number]")
    panel = page.locator("section.panel").first
    panel.scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('section.panel')?.chart")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    box = box_of(panel)
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (820, 1180), (420, 800)])
def test_the_state_of_a_run_is_seen_at_any_width(
    page_server: Serve, root: Path, page: Page, width: int, height: int
) -> None:
    for number in range(3):
        params = {"lr": 0.0003, "seed": number}
        write_page_run(root, number, {"perf/return": [1.0, 2.0]}, params=params, table=f"t{number}")
    page.set_viewport_size({"width": width, "height": height})
    view = View(page, page_server(root))
    state = box_of(view.row(0).locator(".state"))
    left = box_of(page.locator("#runs-table"))
    assert state["x"] + state["width"] <= left["x"] + left["width"]
    if width > 900:
        heads = [box_of(head) for head in page.locator(".row.head .cell").all()]
        edge = left["x"] + left["width"]
        assert all(not one["x"] < edge - 2 < one["x"] + one["width"] - 2 for one in heads), "no number is cut"
    page.get_by_role("button", name="Columns").click()
    show = box_of(page.locator("dialog").get_by_role("button", name="Show"))
    assert 0 <= show["x"] < show["x"] + show["width"] <= width, "the dialog is not clipped"


@pytest.mark.parametrize(
    ("where", "text"),
    [("#/runs", "Start one"), ("#/compare", "Choose runs"), ("#/runs?tab=parameters", "Start one")],
)
def test_without_a_run_each_page_says_what_to_do(
    page_server: Serve, root: Path, page: Page, where: str, text: str
) -> None:
    (root / "log").mkdir(parents=True)
    page.goto(f"{page_server(root).url}{where}")
    page.get_by_text(text).first.wait_for()


def test_a_menu_lies_in_a_landmark(sweep: View) -> None:
    sweep.row(0).locator(".more-of").click()
    sweep.page.get_by_role("menuitem").first.wait_for()
    assert sweep.page.locator("main [role=menu]").count() == 1


def test_a_legend_is_large_enough_to_click(sweep: View) -> None:
    sweep.shown("return", 6)
    heights = sweep.page.locator(".legend .entry").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert len(heights) >= 6
    assert min(heights) >= 24


@pytest.mark.parametrize("query", ["", "group=lr"])
def test_states_are_on_elements_that_have_them(sweep: View, query: str) -> None:
    page = sweep.page
    page.goto(f"{sweep.server.url}#/runs?{query}")
    page.wait_for_function("() => document.querySelector('section.panel')?.chart")
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.locator("[role=row][aria-expanded]").count() == 0
    assert page.locator("button.fold[aria-expanded=false]").count() == (2 if query else 0)


def test_a_page_that_is_not_there_has_a_heading(
    page_server: Serve, root: Path, page: Page, faults: Faults
) -> None:
    (root / "log").mkdir(parents=True)
    faults.allow("400")
    page.goto(f"{page_server(root).url}#/run/0/nothing")
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("heading", level=1).count() == 1
