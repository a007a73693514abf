"""A real `rla web` process and a Chromium that looks at it, for tests and benchmarks."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from support.waiting import DEADLINE_S, TIME_FACTOR, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

REPOSITORY: Final = Path(__file__).resolve().parents[2]
ADDRESS: Final = re.compile(r"http://\S+/\?token=\S+")
LAST_LINE: Final = "Ctrl-C ends it\n"  # of what it says when it starts
CHROMIUM_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_OPTIONS: Final = (
    "--no-sandbox",  # tests run as root, and in containers without user namespaces; it sees our page alone
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",  # a container's /dev/shm has 64 MiB
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOCAL_SCHEMES: Final = frozenset({"data", "blob", "about"})


class Answer(NamedTuple):
    """What a server answered; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class PageServer:
    """`rla web` on some databases, in a process of its own.

    Args:
        roots: data roots.
        folder: for its output and, if the environment names none, its state.
        words: further words of its command line.
        python: words of Python before the module's name.
    """

    def __init__(
        self, roots: Sequence[Path], folder: Path, *words: str, python: Sequence[str] = ("-m",)
    ) -> None:
        self.output = folder / "web.out"
        self.errors = folder / "web.err"
        folder.mkdir(parents=True, exist_ok=True)
        environment = {"RLA_STATE_DIR": str(folder / "state"), "PYTHONPATH": str(REPOSITORY), **os.environ}
        environment.pop("PYTHONUNBUFFERED", None)  # the address must be seen at once without it, too
        chosen = [word for root in roots for word in ("-d", str(root))]
        command = [sys.executable, *python, "rla_client.cli.app", "web", "--no-browser", *chosen]
        port = [] if "--port" in words else ["--port", "0"]
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*command, *port, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        try:
            self.url = wait_until(self._address, DEADLINE_S, lambda: f"the page's address; {self.told()}")
        except AssertionError:
            self.process.kill()
            self.process.wait()
            raise
        parts = urlsplit(self.url)
        self.base = f"http://{parts.netloc}"
        self.host = parts.hostname or ""
        self.port = parts.port or 80
        self.token = parts.query.removeprefix("token=")

    @property
    def pid(self) -> int:
        return self.process.pid

    def told(self) -> str:
        """All that it has printed."""
        return self.output.read_text(errors="replace") + self.errors.read_text(errors="replace")

    def ask(self, name: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer of `/api/NAME`, which must be a good one."""
        answer = self.post(name, body)
        assert answer.status == 200, (name, body, answer.status, answer.body[:2000])
        return answer.json

    def refused(self, name: str, body: Mapping[str, Any] | None = None, status: int = 400) -> str:
        """The words of a refusal of `/api/NAME`."""
        answer = self.post(name, body)
        assert answer.status == status, (name, body, answer.status, answer.body[:2000])
        return str(answer.json["error"])

    def post(self, name: str, body: Mapping[str, Any] | None = None) -> Answer:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return self.request("POST", f"/api/{name}", headers, json.dumps(body or {}).encode())

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """As a page asks, with the token in the header; `path` goes out as it is."""
        return self.request("GET", path, {"Authorization": f"Bearer {self.token}", **(headers or {})})

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """A request with these headers and no others but `Host` (unless given) and the body's length."""
        with self.connection() as connection:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": f"{self.host}:{self.port}", **(headers or {})}.items():
                connection.putheader(name, value)
            if body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            return read_answer(connection)

    @contextmanager
    def connection(self) -> Iterator[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=DEADLINE_S * TIME_FACTOR)
        try:
            yield connection
        finally:
            connection.close()

    def interrupt(self) -> int:
        """Ctrl-C; its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S * TIME_FACTOR)

    def close(self) -> None:
        """End it and look that nothing broke in it.

        Raises:
            AssertionError: it printed a traceback, or had ended by itself.
        """
        alive = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        assert "Traceback" not in self.told(), self.told()
        assert alive or self.process.returncode == 0, (self.process.returncode, self.told())

    def _address(self) -> str | None:
        ended = self.process.poll() is not None
        said = self.output.read_text()
        found = ADDRESS.search(said) if LAST_LINE in said else None
        if found is None and ended:
            message = f"rla web ended with {self.process.returncode}: {self.told()}"
            raise AssertionError(message)
        return found and found.group()


def read_answer(connection: http.client.HTTPConnection) -> Answer:
    """Of the request that was sent."""
    response = connection.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


def find_chromium() -> str | None:
    """The program, None where there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium; while it runs this thread has a running event loop (Playwright's)."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(CHROMIUM_OPTIONS))
        yield browser
        browser.close()
