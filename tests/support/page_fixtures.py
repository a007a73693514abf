"""A real page, a real browser; each tells at its end what went wrong in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from support.page_lab import LOCAL_SCHEMES, PageServer, chromium, find_chromium
from support.waiting import DEADLINE_S, TIME_FACTOR

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

PATIENCE_MS = DEADLINE_S * TIME_FACTOR * 1000


@pytest.fixture
def page_server(tmp_path: Path, own_state: None) -> Iterator[Callable[..., PageServer]]:
    """`page_server(*roots, words=())`: a started `rla web`; its output may tell of no fault."""
    made: list[PageServer] = []

    def make(*roots: Path, words: tuple[str, ...] = ()) -> PageServer:
        made.append(PageServer(roots, tmp_path / f"web-{len(made)}", *words))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium a file of tests, not longer: with it, this thread has a running event loop."""
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    with chromium() as started:
        yield started


class Faults:
    """What went wrong in a page; `allow` names what a test brings about itself.

    Attributes:
        hosts: that were asked, by name and port; requests that a policy ends count, too.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self.allowed: list[str] = []
        self.hosts: set[str] = set()

    def allow(self, pattern: str) -> None:
        self.allowed.append(pattern)

    @property
    def left(self) -> list[str]:
        return [text for text in self.found if not any(re.search(one, text) for one in self.allowed)]


@pytest.fixture
def faults() -> Faults:
    """Of the page of this test."""
    return Faults()


@pytest.fixture
def page(browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page of a fresh profile. Its console shows no error, nothing is refused, no other host is asked."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(
        "addEventListener('securitypolicyviolation', (e) =>"
        " console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`));"
    )
    found = faults.found
    shown = context.new_page()
    hosts = faults.hosts

    def see_request(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in LOCAL_SCHEMES:
            return
        hosts.add(parts.netloc)
        if parts.hostname not in {"127.0.0.1", "localhost", "::1"}:
            found.append(f"request to {url}")

    def see_dialog(dialog: Dialog) -> None:
        found.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    context.on("request", lambda request: see_request(request.url))
    shown.on("pageerror", lambda error: found.append(f"page error: {error}"))
    shown.on("console", lambda said: found.append(f"console: {said.text}") if said.type == "error" else None)
    shown.on("dialog", see_dialog)
    shown.on("crash", lambda _: found.append("the page crashed"))
    yield shown
    context.close()
    assert faults.left == [], faults.left
    assert len(hosts) <= 1, hosts
