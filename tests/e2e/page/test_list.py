"""The list of runs: names, columns, widths, what is done with runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.page_lab import PageServer
from support.page_runs import HOSTILE, write_page_run, write_sweep
from support.page_view import View, box_of
from support.waiting import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

Serve = Callable[..., PageServer]
pytestmark = [pytest.mark.slow, pytest.mark.further]


@pytest.fixture
def sweep(page_server: Serve, root: Path, page: Page) -> View:
    """Six runs: seeds 0 to 2 of lr 0.1 in `task`, of lr 0.01 in `other/deep`."""
    write_sweep(root)
    return View(page, page_server(root))


def act(view: View, number: int, action: str) -> None:
    """Choose an action in the menu of a run."""
    view.row(number).locator(".more-of").click()
    view.page.get_by_role("menuitem", name=action).click()


def note_of(root: Path, index: str) -> dict[str, object]:
    (file,) = root.glob(f"log/**/{index}/note.json")
    found: dict[str, object] = json.loads(file.read_text())
    return found


def test_what_differs_names_a_run_and_its_date_stands_beside(sweep: View) -> None:
    name = sweep.row(4).locator(".name")
    assert name.locator("a").inner_text() == "lr=0.01 seed=1"
    assert name.locator(".date").inner_text().strip() == "11-21 09:34:00"
    assert min(sweep.shown("return", 6)["labels"]) == "lr=0.01 seed=0 other/deep"


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (420, 800)])
def test_a_long_name_is_read_to_its_end_before_its_date(
    page_server: Serve, root: Path, page: Page, width: int, height: int
) -> None:
    for number in range(4):
        params = {"learning_rate": (3e-4, 1e-3)[number % 2], "seed": number // 2, "clip_coefficient": number}
        write_page_run(root, number, params=params, tracked=tuple(params))
    page.set_viewport_size({"width": width, "height": height})
    view = View(page, page_server(root))
    view.shown("return", 4)
    state, name = view.row(3).locator(".state"), view.row(3).locator(".name a")
    assert not view.row(3).locator(".date").is_visible()
    assert "11/21/09-33" in (name.get_attribute("title") or "")
    assert box_of(state)["x"] + box_of(state)["width"] <= min(
        width, box_of(page.locator("#runs-table"))["width"]
    )
    if width > 900:
        assert name.evaluate("(one) => one.scrollWidth <= one.clientWidth"), "nothing of it is cut off"


def test_runs_without_anything_that_differs_are_named_by_date(
    page_server: Serve, root: Path, page: Page
) -> None:
    for number in range(3):
        write_page_run(root, number, params={"gamma": 0.9}, tracked=())
    view = View(page, page_server(root))
    assert [text.split()[1] for text in view.column("run")] == ["09:32:00⋯", "09:31:00⋯", "09:30:00⋯"]
    assert len(set(view.shown("return", 3)["labels"])) == 3


def test_a_run_gets_a_name(sweep: View, root: Path) -> None:
    index = sweep.server.ask("runs")["index"][4]
    act(sweep, 4, "Rename…")
    sweep.page.get_by_label("Name of the run", exact=True).last.fill("the good one")
    sweep.page.keyboard.press("Enter")
    sweep.row(4).get_by_role("link", name="the good one").wait_for()
    assert note_of(root, index)["display_name"] == "the good one"
    sweep.until("return", "chart.labels.some((label) => label.startsWith('the good one'))")
    sweep.row(4).locator("a").click()
    sweep.page.get_by_role("heading", name="the good one").wait_for()
    sweep.page.get_by_role("button", name="Rename…").click()
    sweep.page.get_by_label("Name of the run", exact=True).last.fill(HOSTILE[0])
    sweep.page.keyboard.press("Enter")
    sweep.page.locator("h1", has_text=HOSTILE[0]).wait_for()
    assert sweep.page.evaluate("() => window.hacked") is None


def test_tags_of_several_runs_may_hold_blanks(sweep: View, root: Path) -> None:
    told = sweep.server.ask("runs")
    for number in (1, 2):
        sweep.row(number).locator("input.choose").click()
    sweep.page.get_by_role("button", name="Selected: 2").click()
    sweep.page.get_by_role("menuitem", name="Tags…").click()
    sweep.page.get_by_label("Tags to add").fill("for the paper, best")
    sweep.page.keyboard.press("Enter")
    sweep.row(2).get_by_text("for the paper, best").wait_for()
    wait_until(lambda: note_of(root, told["index"][2])["tags"] == ["for the paper", "best"])
    assert note_of(root, told["index"][1])["tags"] == ["for the paper", "best"]
    act(sweep, 1, "Tags…")
    sweep.page.get_by_label("Take the tag best away").click()
    sweep.row(1).get_by_text("for the paper", exact=True).wait_for()
    assert note_of(root, told["index"][1])["tags"] == ["for the paper"]


def test_pinned_runs_stand_first_and_the_link_says_so(sweep: View) -> None:
    act(sweep, 0, "Pin to the top")
    sweep.until_numbers([0, 5, 4, 3, 2, 1])
    sweep.head("return").click()
    sweep.until_numbers([0, 2, 1, 5, 4, 3])
    sweep.page.reload()
    sweep.page.wait_for_function("() => window.rla?.names.fields.length")
    sweep.until_numbers([0, 2, 1, 5, 4, 3])
    act(sweep, 0, "Unpin")
    sweep.until_numbers([2, 1, 0, 5, 4, 3])


def test_archived_runs_leave_the_list_and_come_back(sweep: View) -> None:
    act(sweep, 3, "Archive")
    sweep.until_numbers([5, 4, 2, 1, 0])
    sweep.shown("return", 5)
    assert "5 runs" in sweep.page.locator("#runs").inner_text()
    sweep.page.get_by_role("button", name="1 archived").click()
    sweep.until_numbers([5, 4, 3, 2, 1, 0])
    act(sweep, 3, "Bring back from the archive")
    sweep.page.get_by_role("button", name="Leave out archived").wait_for(state="hidden")
    sweep.until_numbers([5, 4, 3, 2, 1, 0])


def test_the_box_in_the_head_has_three_states(sweep: View) -> None:
    box = sweep.page.locator("#runs-table .head input[type=checkbox]")
    states = "(box) => [box.checked, box.indeterminate]"
    assert box.evaluate(states) == [False, False]
    sweep.row(2).locator("input.choose").click()
    sweep.page.wait_for_function("() => document.querySelector('#runs-table .head input').indeterminate")
    assert box.evaluate(states) == [False, True]
    box.click()
    sweep.page.wait_for_function("() => document.querySelector('#runs-table .head input').checked")
    assert box.evaluate(states) == [True, False]
    assert sweep.page.evaluate("() => window.rla.chosen.size") == 6


def test_a_column_is_made_wider_and_stays_so(sweep: View) -> None:
    grip = sweep.page.get_by_role("separator", name="Width of lr", exact=True)
    before = box_of(sweep.head("lr"))
    grip.focus()
    sweep.page.keyboard.press("ArrowRight")
    after = box_of(sweep.head("lr"))
    assert after["width"] == pytest.approx(before["width"] + 40)
    assert sweep.head("lr").get_attribute("aria-sort") == "none", "it is not sorted by that"
    sweep.page.reload()
    sweep.page.wait_for_function("() => window.rla?.names.fields.length")
    again = box_of(sweep.head("lr"))
    assert again["width"] == pytest.approx(after["width"])


def test_the_list_is_as_wide_as_its_columns_and_folds(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0, {"r": [1.0, 2.0]}, params={"seed": 1}, tracked=("seed",))
    page.set_viewport_size({"width": 1900, "height": 900})
    view = View(page, page_server(root))
    view.shown("r", 1)
    left = page.locator(".left")
    wide = left.evaluate("(one) => [one.clientWidth, one.querySelector('.row').scrollWidth]")
    assert wide[0] - 20 <= wide[1] <= wide[0], "no white space beside the columns"
    page.keyboard.press("l")
    left.wait_for(state="hidden")
    assert "list=folded" in page.url
    page.reload()
    view.shown("r", 1)
    assert not left.is_visible()
    page.get_by_role("button", name="List of runs").click()
    left.wait_for()


def test_the_trend_of_each_run_is_seen(sweep: View) -> None:
    sweep.page.wait_for_function("() => document.querySelectorAll('.rows .spark polyline').length === 6")
    points = sweep.row(0).locator("polyline").get_attribute("points") or ""
    heights = [float(pair.split(",")[1]) for pair in points.split()]
    assert heights == sorted(heights, reverse=True), "the return grows"


def test_parameters_that_differ_become_columns_though_nobody_tracks_them(
    page_server: Serve, root: Path, page: Page
) -> None:
    for number in range(3):
        write_page_run(
            root,
            number,
            params={"seed": number, "net": {"width": 64 * number, "depth": 2}},
            tracked=("seed",),
        )
    view = View(page, page_server(root))
    view.head("net.width").wait_for()
    assert view.column("net.width") == ["128", "64", "0"]
    assert "net.depth" not in view.columns()


def test_groups_of_runs_that_ended_apart_say_so(page_server: Serve, root: Path, page: Page) -> None:
    for number, rows in enumerate((50, 100, 100, 100)):
        params = {"lr": number // 2, "seed": number % 2}
        write_page_run(root, number, {"return": [float(row) for row in range(rows)]}, params=params)
    view = View(page, page_server(root), "group=lr")
    view.shown("return", 2)
    assert page.locator("[data-group='lr=0'] .warn").get_attribute("title") == (
        "These runs ended at different steps, from 49 to 99: their last values are averaged as they are"
    )
    assert page.locator("[data-group='lr=1'] .warn").count() == 0
    said = view.panel("return").locator(".said").inner_text()
    assert said == "mean, 95 % CI; the mean may jump where runs end, from 49 to 99: lr=0"


def test_the_menu_by_keys(sweep: View) -> None:
    more = sweep.row(4).locator(".more-of")
    more.focus()
    sweep.page.keyboard.press("Enter")
    menu = sweep.page.get_by_role("menu")
    menu.wait_for()
    assert sweep.page.evaluate("() => document.activeElement.textContent") == "Rename…"
    sweep.page.keyboard.press("ArrowDown")
    assert sweep.page.evaluate("() => document.activeElement.textContent") == "Tags…"
    sweep.page.keyboard.press("Escape")
    menu.wait_for(state="detached")
    label = "() => document.activeElement.getAttribute('aria-label')"
    assert sweep.page.evaluate(label) == "Actions for lr=0.01 seed=1"
