"""Servers that never come to an end hold a channel for `timeout_s`, and not for ever."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.alert_receivers import SmtpServer, make_certificate, server_context, serving
from support.waiting import TIME_FACTOR

from rla_agent.alerts import deadline as module
from rla_agent.alerts.channels import send
from rla_agent.alerts.deadline import Deadline
from rla_agent.alerts.messages import of_test
from rla_agent.alerts.route import Route, SendError
from rla_client.config.alerts import Channel

ALERTS = [of_test(1763717401.5, "box").to_plain()]
TIMEOUT_S = 1.5
PESTER_S = 60.0 * TIME_FACTOR  # a client that is still there then has no limit
PAUSE_S = 0.1
Talk = Callable[[socket.socket], None]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def pestering(talk: Talk) -> Iterator[int]:
    """A server that talks so to each that connects, until they are gone; its port."""
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            with suppress(OSError), server.accept()[0] as client:
                client.settimeout(PESTER_S)
                talk(client)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            ended.set()
            thread.join()


def say(*pieces: bytes, again: bool = True, pause_s: float = PAUSE_S) -> Talk:
    """Send the pieces in turn, the last one again and again."""

    def talk(client: socket.socket) -> None:
        end = time.monotonic() + PESTER_S
        endless = itertools.chain(pieces, itertools.repeat(pieces[-1]) if again else ())
        for piece in endless:
            client.sendall(piece)
            time.sleep(pause_s)
            if time.monotonic() > end:
                return
        client.recv(1 << 20)
        while client.recv(1 << 20):
            pass

    return talk


def in_tls(pair: tuple[Path, Path], talk: Talk) -> Talk:
    context = server_context(pair)

    def talk_in_tls(client: socket.socket) -> None:
        with suppress(ssl.SSLError), context.wrap_socket(client, server_side=True) as wrapped:
            talk(wrapped)

    return talk_in_tls


def refused(route: Route) -> str:
    """Why it was not sent; long before the server gives up."""
    began = time.monotonic()
    with pytest.raises(SendError) as caught:
        send(route, ALERTS, "box")
    assert time.monotonic() - began < PESTER_S / 3
    return str(caught.value)


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BYTES = [bytes([one]) for one in b"HTTP/1.1 200 OK\r\nX: y"]


@pytest.mark.parametrize(
    "talk",
    [
        say(CONTINUE),
        say(*BYTES),
        say(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        say(b"", again=False),
    ],
    ids=["100 Continue", "byte by byte", "headers", "silence"],
)
@pytest.mark.parametrize("tls", [False, True])
def test_a_webhook_takes_its_time_and_no_more(
    tmp_path: Path, pair: tuple[Path, Path], talk: Talk, *, tls: bool
) -> None:
    with pestering(in_tls(pair, talk) if tls else talk) as port:
        url = f"{'https' if tls else 'http'}://localhost:{port}/"
        more: dict[str, Any] = {"ca_file": str(pair[0])} if tls else {}
        route = Route(Channel("c", "webhook", url=url, timeout_s=TIMEOUT_S, **more), tmp_path)
        assert "no answer in time" in refused(route)


@pytest.mark.parametrize("kind", ["webhook", "email"])
@pytest.mark.parametrize(
    "talk", [say(b"", again=False), say(*(bytes([one]) for one in b"\x16\x03\x03\x40\x00"), b"\x00")]
)
def test_a_handshake_takes_its_time_and_no_more(
    tmp_path: Path, pair: tuple[Path, Path], kind: str, talk: Talk
) -> None:
    with pestering(talk) as port:
        common: dict[str, Any] = {"ca_file": str(pair[0]), "timeout_s": TIMEOUT_S}
        if kind == "webhook":
            channel = Channel("c", kind, url=f"https://localhost:{port}/", **common)
        else:
            where: dict[str, Any] = {"server": "localhost", "port": port, "security": "tls"}
            channel = Channel("c", kind, to=("me@example.org",), **where, **common)
        assert refused(Route(channel, tmp_path))


def mail_to(port: int, folder: Path, **more: Any) -> Route:
    settings: dict[str, Any] = {"server": "localhost", "port": port, "security": "none", **more}
    channel = Channel("mail", "email", to=("me@example.org",), timeout_s=TIMEOUT_S, **settings)
    return Route(channel, folder)


@pytest.mark.parametrize(
    "talk",
    [
        say(*(bytes([one]) for one in b"220 localhost ready and")),
        say(b"220-and more\r\n"),
        say(b"220 here\r\n", b"250-and more\r\n"),
        say(b"220 here\r\n250 ok\r\n", b"250 ok\r\n250 ok\r\n354 go on\r\n", b"2"),
        say(b"", again=False),
    ],
    ids=["byte by byte", "greeting", "offers", "the last answer", "silence"],
)
def test_a_mail_takes_its_time_and_no_more(tmp_path: Path, talk: Talk) -> None:
    with pestering(talk) as port:
        assert "timed out" in refused(mail_to(port, tmp_path))


@pytest.mark.parametrize("pieces", [[b"220-and more\r\n" * 1000], [b"HTTP/1.1 100 Continue\r\n\r\n" * 1000]])
def test_what_a_server_says_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]
) -> None:
    """It must not fill the agent's memory meanwhile."""
    monkeypatch.setattr(module, "MAX_RECEIVED_BYTES", 1 << 16)
    with pestering(say(*pieces, pause_s=0.0)) as port:
        channel = Channel("c", "webhook", url=f"http://localhost:{port}/", timeout_s=PESTER_S)
        route = mail_to(port, tmp_path) if pieces[0].startswith(b"220") else Route(channel, tmp_path)
        assert "more than 65536 bytes" in refused(route)


@pytest.mark.parametrize("farewell", ["421 too late", "silence"])
def test_a_mail_that_was_accepted_is_sent_however_the_farewell_goes(tmp_path: Path, farewell: str) -> None:
    """Else it would go out again."""
    with serving(SmtpServer()) as server:
        if farewell == "silence":
            server.refuse["QUIT"] = "221-"
        else:
            server.refuse["QUIT"] = farewell
        send(mail_to(server.port, tmp_path), ALERTS, "box")
        assert len(server.mails) == 1


@pytest.mark.slow
def test_each_address_of_a_host_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer (IPv6 behind a firewall) leaves time for the next."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.2", 0)) as full:
        full.listen(0)
        waiting = [socket.socket() for _ in range(8)]  # beyond the backlog, Linux answers nobody
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", full.getsockname()),
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", server.getsockname()),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        with Deadline(3.0 * TIME_FACTOR).connect(("box", 1)) as made:
            assert made.getpeername() == server.getsockname()
        for one in waiting:
            one.close()
