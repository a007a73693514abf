"""What a browser makes of the front page before any run is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.page_lab import PageServer
from support.page_runs import write_page_run

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from support.page_fixtures import Faults

Serve = Callable[..., PageServer]


@pytest.mark.slow
def test_without_the_token_a_browser_is_told_what_to_do(
    page_server: Serve, root: Path, page: Page, faults: Faults
) -> None:
    write_page_run(root, 0)
    server = page_server(root)
    faults.allow("403")
    page.goto(f"{server.base}/?token=wrong")
    assert "Open the whole address" in page.inner_text("body")
    assert any("403" in fault for fault in faults.found), "the fixture sees what the console says"


@pytest.mark.slow
def test_the_policy_holds_in_a_browser(page_server: Serve, root: Path, page: Page, faults: Faults) -> None:
    """What a run might smuggle into the page is not run, and nothing leaves for another host."""
    write_page_run(root, 0)
    server = page_server(root)
    faults.allow("policy:|Content Security Policy|Failed to fetch|fetch API|Refused to|404")
    page.route("**/*.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page.goto(f"{server.base}/?token={server.token}")
    page.evaluate(
        """async () => {
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.body.append(script);
            const frame = document.createElement("div");
            frame.innerHTML = '<img src="x" onerror="window.hacked = 2">'
                + '<iframe srcdoc="<script>parent.hacked = 3</script>">';
            document.body.append(frame);
            for (const address of ["http://evil.example/", "http://127.0.0.1:1/"])
                await fetch(address).catch(() => {});
        }"""
    )
    assert page.evaluate("() => window.hacked") is None
    assert sum("policy:" in fault for fault in faults.found) >= 3, faults.found
    assert not any(fault.startswith("request to") for fault in faults.found), faults.found
