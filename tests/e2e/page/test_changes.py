"""A page that stays open while runs come, get metrics, change their state, and have odd names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.page_lab import PageServer
from support.page_runs import write_page_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.further]
Serve = Callable[..., PageServer]


def change(root: Path, index: str, **what: object) -> None:
    """Write run.json as the agent does: a new file."""
    path = root / "log" / "task" / index / "run.json"
    content = {**json.loads(path.read_text()), **what}
    path.with_name("new.json").write_text(json.dumps(content))
    path.with_name("new.json").rename(path)


def test_a_run_appears_in_a_database_that_had_none(page_server: Serve, root: Path, page: Page) -> None:
    (root / "log").mkdir()
    page.goto(page_server(root).url)
    page.get_by_text("No run is here yet").wait_for()
    write_page_run(root, 0)
    page.locator(".row[data-number]").wait_for()
    page.locator("section.panel canvas").wait_for()


def test_a_run_that_had_no_rows_gets_panels(page_server: Serve, root: Path, page: Page) -> None:
    index = write_page_run(root, 0, {}, state="running")
    page.goto(page_server(root).url)
    page.get_by_text("no metrics with numbers yet").wait_for()
    (root / "log" / "task" / index / "progress.csv").write_text(
        "late,time-step,timestamp\n1.0,0,1\n2.0,1,2\n"
    )
    page.locator('section.panel[data-metric="late"] canvas').wait_for()


def test_a_filter_by_state_follows_the_state(page_server: Serve, root: Path, page: Page) -> None:
    index = write_page_run(root, 0, state="running")
    write_page_run(root, 1, state="running")
    page.goto(f"{page_server(root).url}#/runs?where=state+%3D%3D+'running'")
    page.get_by_text("2 runs, 2 drawn").wait_for()
    change(root, index, state="finished")
    page.get_by_text("1 of 2 runs, 1 drawn").wait_for()


def test_a_run_whose_name_holds_commas_is_linked(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0, params={"net": "64, 64"}, tracked=("net",))
    write_page_run(root, 1)
    page.goto(page_server(root).url)
    row = page.locator('.row[data-number="0"]')
    row.locator(".choose").click()
    page.get_by_text("2 runs, 1 drawn").wait_for()
    page.reload()
    page.get_by_text("2 runs, 1 drawn").wait_for()
    page.get_by_role("link", name="Files").last.click()
    page.get_by_text("have no pictures").wait_for()


def test_odd_addresses_show_the_runs(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0)
    url = page_server(root).url
    for odd in ("__proto__", "constructor", "nope"):
        page.goto(f"{url}#/{odd}")
        page.locator(".row[data-number]").wait_for()
        page.goto("about:blank")
