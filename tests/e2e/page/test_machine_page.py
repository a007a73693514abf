"""The page of this machine and the fleet, in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.page_lab import PageServer
from support.page_runs import HOSTILE, write_page_run

from rla_client.database.records.fleet import FLEET_FOLDER

if TYPE_CHECKING:
    from conftest import Agent
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.further]
Serve = Callable[..., PageServer]


def test_without_an_agent_it_says_what_to_do(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0)
    page.goto(f"{page_server(root).url}#/machine")
    page.get_by_text("not running").first.wait_for()
    page.get_by_text("rla-agent start --detach").first.wait_for()
    assert page.get_by_role("link", name="Machine").get_attribute("aria-current") is not None


def test_an_agent_that_starts_and_ends(
    agent: Agent, page_server: Serve, root: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_page_run(root, 0)
    monkeypatch.setenv("RLA_STATE_DIR", str(agent.places.state))
    page.goto(f"{page_server(root).url}#/machine")
    page.get_by_text(f"pid {agent.pid}").wait_for()
    page.get_by_text("serving").first.wait_for()
    settings = page.locator("details[data-name=settings]")
    settings.locator("summary").click()
    assert agent.stop() == 0
    page.get_by_text("not running").first.wait_for()
    assert settings.get_attribute("open") is not None, "it stays open"


def test_hostile_machines_are_text(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0)
    folder = root / FLEET_FOLDER
    folder.mkdir()
    for number, text in enumerate(HOSTILE):
        run = {"item": text, "state": text, "time_step": text}
        status = {"format": 1, "host": f"h{number}", "version": text, "master": text, "runs": [run]}
        status["backlog"] = {"files": number, "bytes": text}
        (folder / f"h{number}.json").write_text(json.dumps(status))
    page.goto(f"{page_server(root).url}#/machine")
    page.get_by_text("h0", exact=True).wait_for()
    page.get_by_text(HOSTILE[0]).first.wait_for()
    for one in page.locator("table details summary").all():
        one.click()
    assert page.evaluate("() => window.hacked") is None
    assert page.evaluate("() => document.querySelectorAll('#page script, #page img, #page svg').length") == 0


def test_a_broken_file_of_a_machine_hides_no_other(page_server: Serve, root: Path, page: Page) -> None:
    write_page_run(root, 0)
    folder = root / FLEET_FOLDER
    folder.mkdir()
    (folder / "bad.json").write_text("{")
    (folder / "good.json").write_text(json.dumps({"format": 1, "host": "good", "version": "1", "runs": []}))
    page.goto(f"{page_server(root).url}#/machine")
    page.get_by_text("good", exact=True).wait_for()
