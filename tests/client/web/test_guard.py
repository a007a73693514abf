"""Who is let in and who is not, asked over real sockets."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from support.page_lab import Answer, PageServer, read_answer
from support.page_runs import write_page_run
from support.waiting import DEADLINE_S

from rla_client.web.guard import Guard

Serve = Callable[..., PageServer]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    folder = tmp_path_factory.mktemp("guarded")
    write_page_run(folder / "data", 0)
    started = PageServer([folder / "data"], folder)
    yield started
    started.close()


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def bearer(server: PageServer) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}"}


@pytest.mark.slow
def test_the_token_is_long_and_new_at_each_start(page_server: Serve, root: Path) -> None:
    write_page_run(root, 0)
    first, second = page_server(root), page_server(root)
    assert first.token != second.token
    assert len(first.token) >= 43
    assert first.request("GET", f"/?token={second.token}").status == 403


def test_the_query_opens_the_page_and_gives_a_cookie_that_opens_it_too(server: PageServer) -> None:
    front = server.request("GET", f"/?token={server.token}")
    assert front.status == 200
    assert b"<main" in front.body
    given = front.headers["set-cookie"]
    assert re.search(r"; *HttpOnly", given)
    assert re.search(r"; *SameSite=Strict", given)
    assert server.token not in given
    cookie = {"Cookie": cookie_of(front)}
    assert server.request("GET", "/", cookie).status == 200
    assert server.request("GET", "/static/main.js", cookie).status == 200
    assert "set-cookie" not in server.request("GET", "/", cookie).headers


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/static/none", "/none", "/api/runs", "/api/none"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic {token}"},
        {"Authorization": "{token}"},
        {"Cookie": "rla-web-{port}="},
        {"Cookie": "rla-web-{port}={token}"},
        {"Cookie": "rla-web-{port}=\xe4"},
        {"Cookie": "=; ;;==,"},
        {"Cookie": 'rla-web-{port}="' + "\\012" * 10_000 + '"'},
    ],
)
def test_without_it_nothing_opens(server: PageServer, path: str, headers: dict[str, str]) -> None:
    filled = {key: text.format(token=server.token, port=server.port) for key, text in headers.items()}
    for method in ("GET", "HEAD", "POST"):
        answer = server.request(method, path, filled)
        assert answer.status == 403, (method, answer)
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("query", ["token=", "token=x", "token=%ff", "token=%00", "token=é", "nothing=1"])
def test_a_wrong_token_in_the_query_is_refused(server: PageServer, query: str) -> None:
    path = f"/?{query}".encode().decode("latin-1")
    with server.connection() as connection:
        connection._encode_request = lambda text: text.encode("latin-1")  # type: ignore[attr-defined] # not ASCII
        connection.putrequest("GET", path, skip_accept_encoding=True)
        connection.endheaders()
        assert read_answer(connection).status in {400, 403}


def test_our_cookie_is_found_among_others(server: PageServer) -> None:
    """Those of other servers on this host come with it, whatever they hold."""
    ours = cookie_of(server.request("GET", f"/?token={server.token}"))
    for cookie in (
        f"{ours}; other=1",
        f'a="x; y"; {ours}',
        f"é=ü;;=; ;{ours}",
        f"{ours.partition('=')[0]}=stale; {ours}",
    ):
        assert server.request("GET", "/", {"Cookie": cookie}).status == 200, cookie


@pytest.mark.parametrize("piece", ["\\012", '\\"', "a=b; ", ';"', "=", "; "])
def test_a_long_cookie_costs_its_length(piece: str) -> None:
    """Python's own parser takes minutes for a tenth of it, up to 3.13; all others wait meanwhile."""

    def too_long(*_: object) -> None:
        raise TimeoutError

    name = b"rla-web-8000="
    cookie = name + b'"' + piece.encode() * (1_000_000 // len(piece)) + b'"'
    request = Request({"type": "http", "headers": [(b"host", b"localhost:8000"), (b"cookie", cookie)]})
    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        assert not Guard(PlainTextResponse(""), "token")._has_cookie(request)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_cookie_opens_no_answer_of_the_api(server: PageServer) -> None:
    cookie = {"Cookie": cookie_of(server.request("GET", f"/?token={server.token}"))}
    assert server.request("GET", "/api/runs", cookie).status == 403
    assert server.request("POST", "/api/runs", cookie | JSON, b"{}").status == 403


def test_the_api_gives_no_cookie(server: PageServer) -> None:
    assert "set-cookie" not in server.request("GET", f"/api/runs?token={server.token}").headers


def test_the_cookie_of_another_server_is_worth_nothing(page_server: Serve, root: Path) -> None:
    write_page_run(root, 0)
    first, second = page_server(root), page_server(root)
    name, _, value = cookie_of(first.request("GET", f"/?token={first.token}")).partition("=")
    assert first.request("GET", "/", {"Cookie": f"{name}={value}"}).status == 200
    other = name.replace(str(first.port), str(second.port))
    assert other != name, "two servers of one host take each other's cookie away"
    assert second.request("GET", "/", {"Cookie": f"{other}={value}"}).status == 403


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:{port}",
        "localhost:{port}",
        "LOCALHOST",
        "[::1]:{port}",
        "10.1.2.3:{port}",
        "::1",
    ],
)
def test_addresses_and_localhost_are_names_of_this_server(server: PageServer, host: str) -> None:
    answer = server.request("GET", "/", {"Host": host.format(port=server.port), **bearer(server)})
    assert answer.status == 200, answer.body


def test_the_name_of_this_machine_is_one(server: PageServer) -> None:
    host = f"{socket.gethostname()}:{server.port}"
    assert server.request("GET", "/", {"Host": host, **bearer(server)}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example:{port}",
        "localhost.evil.example",
        "evil.localhost",
        "localhost@evil.example",
        "evil.example:80:{port}",
        "[evil]",
        "[::1].evil.example",
        "",
        "{long}",
    ],
)
def test_a_name_that_is_not_ours_is_refused_even_with_the_token(server: PageServer, host: str) -> None:
    """DNS rebinding: the name is somebody else's, the address it resolves to is ours."""
    given = host.format(port=server.port, long="x" * 5000)
    answer = server.request("GET", f"/?token={server.token}", {"Host": given, **bearer(server)})
    assert answer.status == 403
    assert "set-cookie" not in answer.headers
    assert len(answer.body) < 300


def test_two_hosts_or_none_are_refused(server: PageServer) -> None:
    token = f"Authorization: Bearer {server.token}\r\n"
    ours = f"Host: 127.0.0.1:{server.port}\r\n"
    for hosts in ("", f"{ours}Host: evil.example\r\n", f"Host: evil.example\r\n{ours}"):
        with socket.create_connection((server.host, server.port), 30) as raw:
            raw.sendall(f"GET /api/names HTTP/1.1\r\n{hosts}{token}Connection: close\r\n\r\n".encode())
            response = http.client.HTTPResponse(raw)
            response.begin()
            assert response.status in {400, 403}, hosts


def test_a_name_that_was_allowed_is_known(page_server: Serve, root: Path) -> None:
    write_page_run(root, 0)
    server = page_server(root, words=("--allow-host", "Lab.Example", "--allow-host", "two.example"))
    for name, status in (("lab.example", 200), ("two.example:99", 200), ("x.lab.example", 403)):
        assert server.request("GET", "/", {"Host": name, **bearer(server)}).status == status


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "https://{host}", "http://{host}.evil.example", "http://localhost:1", ""],
)
def test_another_origin_is_refused(server: PageServer, origin: str) -> None:
    host = f"127.0.0.1:{server.port}"
    theirs = bearer(server) | {"Host": host, "Origin": origin.format(host=host)}
    assert server.request("GET", "/", theirs).status == 403
    assert server.request("POST", "/api/runs", theirs | JSON, b"{}").status == 403
    ours = bearer(server) | {"Host": host, "Origin": f"http://{host}"}
    assert server.request("POST", "/api/runs", ours | JSON, b"{}").status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_other_methods_are_refused(server: PageServer, method: str) -> None:
    answer = server.request(method, "/api/runs", bearer(server) | JSON, b"{}")
    assert answer.status == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_post_needs_the_token_in_its_header_and_json(server: PageServer) -> None:
    good = bearer(server) | JSON
    assert server.request("POST", "/api/runs", good, b"{}").status == 200
    assert server.request("POST", "/api/runs", JSON, b"{}").status == 403
    assert server.request("POST", f"/api/runs?token={server.token}", JSON, b"{}").status == 403
    assert server.request("POST", "/api/runs", bearer(server), b"{}").status == 403
    for form in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonp",
    ):
        answer = server.request("POST", "/api/runs", bearer(server) | {"Content-Type": form}, b"{}")
        assert answer.status == 403, form
    typed = bearer(server) | {"Content-Type": "application/json; charset=utf-8"}
    assert server.request("POST", "/api/runs", typed, b"{}").status == 200


def test_a_question_is_no_get(server: PageServer) -> None:
    assert server.get("/api/runs").status == 405


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b"\xff",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b'{"since": NaN}',
    ],
)
def test_a_body_that_is_no_json_object_is_the_askers_fault(server: PageServer, body: bytes) -> None:
    answer = server.request("POST", "/api/runs", bearer(server) | JSON, body)
    assert answer.status == (200 if body == b"" else 400), answer.body
    assert body == b"" or set(answer.json) == {"error"}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("runs", {"since": -1}),
        ("runs", {"since": True}),
        ("runs", {"since": "1"}),
        ("columns", {}),
        ("columns", {"names": "lr"}),
        ("columns", {"names": [1]}),
        ("columns", {"names": ["lr"] * 201}),
        ("columns", {"names": ["lr"], "numbers": {}}),
        ("columns", {"names": ["lr"], "numbers": ["0"]}),
        ("columns", {"names": ["lr"], "numbers": [[0]]}),
        ("fitting", {"where": "lr =="}),
        ("fitting", {"where": "__import__('os').system('x')"}),
        ("fitting", {"where": ["lr"]}),
        ("fitting", {"where": "(" * 9000}),
        ("differing", {}),
        ("differing", {"numbers": "all"}),
        ("metrics", {"numbers": None}),
    ],
)
def test_wrong_questions_are_answered_with_what_is_wrong(
    server: PageServer, name: str, body: dict[str, Any]
) -> None:
    assert server.refused(name, body)


def every_kind_of_answer(server: PageServer) -> list[Answer]:
    token = bearer(server)
    return [
        server.get("/"),
        server.get("/static/main.js"),
        server.get("/static/none"),
        server.get("/none"),
        server.get("/api/runs"),
        server.get("/api/none"),
        server.post("runs"),
        server.post("fitting", {"where": "=="}),
        server.request("GET", "/"),
        server.request("POST", "/api/runs", token, b"{}"),
        server.request("GET", "/", token | {"Host": "evil.example"}),
        server.request("GET", "/", token | {"Origin": "null"}),
        server.request("PUT", "/", token),
    ]


def test_each_answer_has_the_policy(server: PageServer) -> None:
    answers = every_kind_of_answer(server)
    assert {answer.status for answer in answers} == {200, 400, 403, 404, 405}
    for answer in answers:
        policy = dict(
            part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] in {
            "no-store",
            "no-cache",
        }  # kept, if at all, to be asked about
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("declared", [True, False])
def test_a_large_body_is_ended_before_it_is_in_memory(server: PageServer, declared: bool) -> None:
    """20 MB: the answer is an error or a closed connection, and the server goes on."""
    piece = b" " * (1 << 20)
    with server.connection() as connection:
        connection.putrequest("POST", "/api/runs")
        for name, value in (bearer(server) | JSON).items():
            connection.putheader(name, value)
        if declared:
            connection.putheader("Content-Length", str(20 << 20))
        else:
            connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        try:
            for _ in range(20):
                connection.send(piece if declared else b"%x\r\n%s\r\n" % (len(piece), piece))
            if not declared:
                connection.send(b"0\r\n\r\n")
            assert read_answer(connection).status >= 400
        except (OSError, http.client.HTTPException):
            pass  # it closed the connection
    assert server.ask("runs")["number"] == [0]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/../../contract/errors.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e%2f%2e%2e%2f%2e%2e%2fpyproject.toml",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/vendor/..\\..\\app.py",
        "/static/%5c..%5capp.py",
        "/static/main.js%00.css",
        "/static/",
        "/static/vendor",
        "/static/" + "x" * 5000,
        "/../app.py",
        "//evil.example/",
        "/%2e%2e/%2e%2e/etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_static_files(server: PageServer, path: str) -> None:
    answer = server.get(path)
    assert answer.status in {400, 403, 404, 405}, (answer.status, answer.body[:200])
    assert b"import" not in answer.body
    assert b"root:" not in answer.body


def test_many_connections_that_say_nothing_do_not_stop_it(server: PageServer) -> None:
    silent = [socket.create_connection((server.host, server.port), 30) for _ in range(60)]
    try:
        assert server.ask("runs")["number"] == [0]
    finally:
        for one in silent:
            one.close()


def test_an_address_of_ours_in_full_is_understood(server: PageServer) -> None:
    """As proxies send it: the target is a whole address."""
    answer = server.request("GET", f"http://127.0.0.1:{server.port}/?token=wrong")
    assert answer.status in {400, 403, 404}


def test_a_websocket_is_no_way_around(server: PageServer) -> None:
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    assert server.request("GET", "/api/runs", headers).status == 403


def test_errors_do_not_tell_the_token(server: PageServer) -> None:
    asked = json.dumps({"where": "x =="})
    answer = server.request("POST", "/api/fitting", bearer(server) | JSON, asked.encode())
    assert server.token not in answer.text
    assert server.token not in str(answer.headers)
