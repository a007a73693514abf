"""Views: what the address holds, and names for it that are stored beside the database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.page_lab import PageServer
from support.page_runs import HOSTILE, write_page_run, write_sweep
from support.page_view import View

from rla_client.contract.errors import ArgumentError
from rla_client.database import views

if TYPE_CHECKING:
    from playwright.sync_api import Page

Serve = Callable[..., PageServer]
slow = pytest.mark.slow


def test_views_are_stored_and_removed(root: Path) -> None:
    root.mkdir(exist_ok=True)
    assert views.read_views(root) == {}
    views.write_view(root, "b", "where=x")
    assert views.write_view(root, "a", "group=lr") == {"a": "group=lr", "b": "where=x"}
    assert views.read_views(root) == {"a": "group=lr", "b": "where=x"}
    assert views.write_view(root, "b", None) == {"a": "group=lr"}
    told = json.loads((root / ".rla" / "views.json").read_text())
    assert told == {"format": 1, "views": {"a": "group=lr"}}


@pytest.mark.parametrize(
    ("name", "query"),
    [("", "x"), ("a" * 101, "x"), ("a\nb", "x"), (3, "x"), ("a", 3), ("a", "x" * 50_001), (None, "x")],
)
def test_what_is_no_view_is_refused(root: Path, name: object, query: object) -> None:
    root.mkdir(exist_ok=True)
    with pytest.raises(ArgumentError):
        views.write_view(root, name, query)
    assert views.read_views(root) == {}


def test_a_broken_file_has_no_views(root: Path) -> None:
    (root / ".rla").mkdir(parents=True)
    file = root / ".rla" / "views.json"
    for text in ("{", "[]", '{"views": 3}', '{"views": {"a": 3, "": "x", "ok": "y"}}'):
        file.write_text(text)
        assert views.read_views(root) == ({"ok": "y"} if "ok" in text else {})
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert views.read_views(root) == {}


def test_the_server_writes_with_the_token_alone(page_server: Serve, root: Path) -> None:
    write_page_run(root, 0)
    server = page_server(root)
    body = json.dumps({"name": "mine", "query": "group=lr"}).encode()
    refused = server.request("POST", "/api/view", {"Content-Type": "application/json"}, body)
    assert refused.status == 403
    assert server.ask("views") == {}
    assert server.ask("view", {"name": "mine", "query": "group=lr"}) == {"mine": "group=lr"}
    assert server.ask("views") == {"mine": "group=lr"}
    assert "1 to 100" in server.refused("view", {"name": "", "query": "x"})
    assert len(server.ask("runs")["number"]) == 1, "the file is no run"


@slow
def test_a_view_is_a_link(page_server: Serve, root: Path, page: Page) -> None:
    write_sweep(root)
    view = View(page, page_server(root))
    view.shown("return", 6)
    view.row(5).locator("button.eye").click()
    view.shown("return", 5)
    view.field("group").fill("lr")
    view.field("group").press("Enter")
    view.shown("return", 2)  # else the panels are laid out anew while they are clicked
    page.check("input[name=logY]")
    view.panel("loss").get_by_role("button", name="Wide").click()
    page.locator("#panels summary").first.click()
    page.wait_for_function("() => location.hash.includes('fold=')")
    link = page.url
    for part in ("hide=", "group=lr", "logy=1", "wide=loss"):
        assert part in link
    other = page.context.new_page()
    other.goto(link)
    other.wait_for_function("() => window.rla?.drawn().length === 5")
    assert other.input_value("input[name=group]") == "lr"
    assert other.is_checked("input[name=logY]")
    assert other.locator("#panels details").first.get_attribute("open") is None
    assert "wide" in (other.locator("section.panel[aria-label=loss]").get_attribute("class") or "")
    other.wait_for_function("() => location.hash.includes('fold=')")


@slow
def test_a_view_gets_a_name_and_is_opened_by_it(page_server: Serve, root: Path, page: Page) -> None:
    write_sweep(root)
    view = View(page, page_server(root), "where=lr == 0.1&smooth=3")
    view.shown("return", 3)
    page.click("button[name=views]")
    page.get_by_text("none yet").wait_for()
    for name in ("high lr", HOSTILE[0]):
        page.get_by_label("Name of this view", exact=True).fill(name)
        page.get_by_role("button", name="Store this view").click()
        page.locator("ul.views a", has_text=name).wait_for()
    assert set(views.read_views(root)) == {"high lr", HOSTILE[0]}
    page.goto(view.server.url)
    view.shown("return", 6)
    page.keyboard.press("v")
    page.locator("ul.views a", has_text="high lr").click()
    page.wait_for_function("() => window.rla?.drawn().length === 3")
    assert page.input_value("input[name=where]") == "lr == 0.1"
    assert page.input_value("input[name=smooth]") == "3"
    page.click("button[name=views]")
    page.get_by_label(f"Remove the view {HOSTILE[0]}").click()
    page.locator("ul.views a", has_text=HOSTILE[0]).wait_for(state="detached")
    assert set(views.read_views(root)) == {"high lr"}
    assert page.evaluate("() => window.hacked") is None


@slow
def test_a_hostile_address_is_only_an_address(page_server: Serve, root: Path, page: Page) -> None:
    write_sweep(root)
    server = page_server(root)
    query = (
        "sort=__proto__&x=constructor&band=<b>&tab=<svg onload=window.hacked=1>&zoom=2,1&smooth=x&show=-3"
        "&column=__proto__&hide=nothing&run=../../x&wide=toString&fold=<script>window.hacked=1</script>"
    )
    page.goto(f"{server.url}#/runs?{query}")
    page.wait_for_function("() => window.rla?.names.fields.length")
    page.locator("#runs-table .row[data-number]").first.wait_for()
    assert page.evaluate("() => window.hacked") is None
