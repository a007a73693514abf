"""Sending for real: SMTP with and without TLS, webhooks, commands; and each way it can fail."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.alert_receivers import HookServer, SmtpServer, make_certificate, server_context, serving
from support.descriptors import open_below
from support.ports import free_port
from support.waiting import lives

from rla_agent.alerts.channels import send
from rla_agent.alerts.messages import of_test
from rla_agent.alerts.route import Route, SendError
from rla_client.config.alerts import Channel

ALERTS = [of_test(1763717401.5, "box").to_plain()]
PASSWORD = "hunter2-secret"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path, pair: tuple[Path, Path]) -> Path:
    (tmp_path / "ca.pem").write_bytes(pair[0].read_bytes())
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    return tmp_path


@pytest.fixture
def smtp(pair: tuple[Path, Path]) -> Iterator[SmtpServer]:
    with serving(SmtpServer(server_context(pair), password=PASSWORD)) as server:
        yield server


def mail(receiver: SmtpServer, folder: Path, **more: Any) -> Route:
    login = {"username": "me", "credentials_file": "secret", "ca_file": "ca.pem"} if receiver.password else {}
    settings: dict[str, Any] = {"to": ("you@example.org", "us@example.org"), "sender": "rla@example.org"}
    settings |= {"timeout_s": 60.0, "server": "localhost", "port": receiver.port, **login, **more}
    return Route(Channel("mail", "email", **settings), folder)


def post(url: str, folder: Path, kind: str = "webhook", **more: Any) -> Route:
    return Route(Channel("chat", kind, url=url, timeout_s=60.0, **more), folder)


def refused(route: Route) -> str:
    with pytest.raises(SendError) as caught:
        send(route, ALERTS, "box")
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_mail_by_starttls_with_a_login(smtp: SmtpServer, folder: Path) -> None:
    send(mail(smtp, folder), ALERTS, "box")
    (message,) = smtp.mails
    assert message["Subject"] == "[rla] test message of rla-agent on box"
    assert (message["From"], message["To"]) == ("rla@example.org", "you@example.org, us@example.org")
    assert message["Message-ID"].endswith("@box>")
    assert message["Auto-Submitted"] == "auto-generated"
    assert "alerts reach you" in message.get_content()
    assert (smtp.logins, smtp.encrypted) == ([("me", PASSWORD)], [True])


def test_mail_by_tls_with_the_password_in_the_environment(
    pair: tuple[Path, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SMTP", PASSWORD)
    with serving(SmtpServer(server_context(pair), implicit=True, password=PASSWORD)) as server:
        send(mail(server, folder, security="tls", credentials_file="", password_env="MY_SMTP"), ALERTS, "box")
        assert server.encrypted == [True]
        monkeypatch.delenv("MY_SMTP")
        gone = mail(server, folder, security="tls", credentials_file="", password_env="MY_SMTP")
        assert "no MY_SMTP" in refused(gone)


def test_mail_in_the_open_on_the_own_machine(folder: Path) -> None:
    with serving(SmtpServer()) as server:
        send(mail(server, folder, security="none"), ALERTS, "box")
        assert server.encrypted == [False]
        assert "STARTTLS" in refused(mail(server, folder, security="starttls")), "never in the open instead"


def test_a_certificate_that_nobody_vouches_for(smtp: SmtpServer, folder: Path) -> None:
    assert "certificate" in refused(mail(smtp, folder, ca_file="")).lower()
    assert smtp.logins == [], "the password was not sent"


def test_a_wrong_password(smtp: SmtpServer, folder: Path) -> None:
    (folder / "secret").write_text("wrong-one")
    text = refused(mail(smtp, folder))
    assert "the login was refused: 535" in text
    assert "wrong-one" not in text


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (PASSWORD, 0o644, "chmod 600"),
        (None, 0o600, "No such file"),
        ("", 0o600, "one line"),
        ("a\nb", 0o600, "one line"),
    ],
)
def test_a_credentials_file_that_is_not_right(
    smtp: SmtpServer, folder: Path, content: str | None, mode: int, told: str
) -> None:
    path = folder / "secret"
    path.unlink()
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    assert told in refused(mail(smtp, folder))
    assert smtp.connections == 0


@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA"])
def test_a_server_that_refuses(smtp: SmtpServer, folder: Path, verb: str) -> None:
    smtp.refuse[verb] = "550 no such user"
    assert "550" in refused(mail(smtp, folder))
    del smtp.refuse[verb]
    send(mail(smtp, folder), ALERTS, "box")


def test_a_server_that_hangs_costs_its_timeout(smtp: SmtpServer, folder: Path) -> None:
    smtp.hang.set()
    assert "timed out" in refused(mail(smtp, folder, timeout_s=1.0)), "and it hangs still"
    smtp.hang.clear()


def test_nobody_there(folder: Path, smtp: SmtpServer) -> None:
    assert "refused" in refused(mail(smtp, folder, port=free_port())).lower()
    assert refused(mail(smtp, folder, server="nowhere.invalid")) != ""


@pytest.mark.parametrize(("kind", "key"), [("webhook", "alerts"), ("slack", "text"), ("discord", "content")])
def test_webhooks(hook: HookServer, folder: Path, kind: str, key: str) -> None:
    send(post(hook.url, folder, kind), ALERTS, "box")
    ((path, headers, body),) = hook.posts
    assert (path, headers["Content-Type"], key in body) == ("/hook", "application/json", True)
    assert len(headers["Idempotency-Key"]) == 32


def test_ntfy_gets_plain_text(hook: HookServer, folder: Path) -> None:
    send(post(hook.url, folder, "ntfy"), ALERTS * 200, "box")
    ((path, headers, body),) = hook.posts
    assert (path, headers["Content-Type"]) == ("/hook", "text/plain; charset=utf-8")
    assert body.startswith("[rla] 200 alerts: test message of rla-agent on box …\n")
    assert len(body.encode()) <= 4096  # more would be an attachment


@pytest.mark.parametrize(("chat", "sent"), [("-100123", -100123), ("@channel", "@channel")])
def test_telegram_gets_its_chat_in_the_body(hook: HookServer, folder: Path, chat: str, sent: object) -> None:
    send(post(f"{hook.url}/bot1:token/sendMessage?chat_id={chat}", folder, "telegram"), ALERTS * 99, "box")
    ((path, _, body),) = hook.posts
    assert path == "/hook/bot1:token/sendMessage"
    assert set(body) == {"chat_id", "text"}
    assert body["chat_id"] == sent
    assert 0 < len(body["text"]) <= 4096


def test_teams_gets_an_adaptive_card(hook: HookServer, folder: Path) -> None:
    send(post(hook.url, folder, "teams"), ALERTS, "box")
    ((_, _, body),) = hook.posts
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert (attachment["content"]["type"], attachment["content"]["version"]) == ("AdaptiveCard", "1.2")
    texts = [block["inlines"][0]["text"] for block in attachment["content"]["body"]]
    assert texts[0] == "[rla] test message of rla-agent on box"
    assert all(texts)


def test_matrix_gets_an_event_that_counts_once(hook: HookServer, folder: Path) -> None:
    room = f"{hook.url}/_matrix/client/v3/rooms/!a:example.org/send/m.room.message"
    for _ in range(2):
        send(post(f"{room}?access_token=syt_secret", folder, "matrix"), ALERTS, "box")
    (path, headers, body), (again, _, _) = hook.posts
    assert path.startswith("/hook/_matrix/client/v3/rooms/!a:example.org/send/m.room.message/")
    assert path == again  # the transaction's name: the server keeps one of them
    assert headers["Authorization"] == "Bearer syt_secret"
    assert (body["msgtype"], body["body"].startswith("[rla] test message")) == ("m.text", True)


@pytest.mark.parametrize("kind", ["telegram", "matrix"])
def test_an_address_without_its_secret_says_what_it_lacks(hook: HookServer, folder: Path, kind: str) -> None:
    said = refused(post(f"{hook.url}/s3cret-part", folder, kind))
    assert "the address must end in ?" in said
    assert "s3cret" not in said


def test_the_address_from_a_file_or_a_variable(
    hook: HookServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "url").write_text(hook.url + "/tok3n\n")
    (folder / "url").chmod(0o600)
    send(Route(Channel("c", "webhook", url_file="url"), folder), ALERTS, "box")
    monkeypatch.setenv("HOOK", hook.url)
    send(Route(Channel("c", "webhook", url_env="HOOK"), folder), ALERTS, "box")
    assert [path for path, _, _ in hook.posts] == ["/hook/tok3n", "/hook"]
    (folder / "url").write_text("ftp://x")
    assert "http" in refused(Route(Channel("c", "webhook", url_file="url"), folder))


@pytest.mark.parametrize("code", [400, 403, 404, 500, 503])
def test_an_error_of_the_server(hook: HookServer, folder: Path, code: int) -> None:
    hook.answers.append((code, {}))
    text = refused(post(hook.url + "/t0ken", folder))
    assert f"HTTP {code}: no, thank you" in text
    assert "t0ken" not in text


def test_an_answer_that_repeats_the_address(hook: HookServer, folder: Path) -> None:
    hook.answers.append((404, {}))
    hook.says = "Cannot POST /hook/t0ken-s3cret?key=an0ther"
    text = refused(post(hook.url + "/t0ken-s3cret?key=an0ther", folder))
    assert "Cannot POST /hook/…?key=…" in text


@pytest.mark.parametrize(
    "address",
    ["http://h/s3cret x", "http://h:s3cret/", "http://[s3cret/", "http://h/s3cret\x7f", "http:///s3cret"],
)
def test_an_address_that_is_none_is_not_shown(folder: Path, address: str) -> None:
    text = refused(post(address, folder))
    assert "is not a URL" in text
    assert "s3cret" not in text


def test_too_many_requests_say_when(hook: HookServer, folder: Path) -> None:
    hook.answers.append((429, {"Retry-After": "7"}))
    with pytest.raises(SendError) as caught:
        send(post(hook.url, folder), ALERTS, "box")
    assert caught.value.retry_after_s == 7
    hook.answers.append((429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}))
    with pytest.raises(SendError) as caught:
        send(post(hook.url, folder), ALERTS, "box")
    assert caught.value.retry_after_s is None


def test_a_redirect_is_not_followed(hook: HookServer, folder: Path) -> None:
    hook.answers.append((302, {"Location": hook.url}))
    assert "302" in refused(post(hook.url, folder))
    assert hook.posts == []


def test_https(pair: tuple[Path, Path], folder: Path) -> None:
    with serving(HookServer(context=server_context(pair))) as server:
        url = server.url.replace("http:", "https:")
        send(post(url, folder, ca_file="ca.pem"), ALERTS, "box")
        assert len(server.posts) == 1
        assert "certificate" in refused(post(url, folder)).lower()
        assert "ca_file" in refused(post(url, folder, ca_file="missing.pem"))
        assert len(server.posts) == 1


def test_an_answer_is_told_by_its_head(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def answer() -> None:
            held.append(server.accept()[0])
            held[0].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")  # and never the rest

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        send(Route(Channel("c", "webhook", url=url, timeout_s=10.0), folder), ALERTS, "box")
        thread.join()
        held[0].close()


def test_no_web_server_there(folder: Path) -> None:
    assert "127.0.0.1" in refused(post(f"http://127.0.0.1:{free_port()}/", folder))


def script(folder: Path, text: str, timeout_s: float = 60.0, *arguments: str) -> Route:
    (folder / "script.py").write_text(text)
    command = (sys.executable, "script.py", *arguments)
    return Route(Channel("run", "command", command=command, timeout_s=timeout_s), folder)


def test_a_command_gets_json_on_stdin_and_no_shell(folder: Path) -> None:
    text = (
        "import sys; open('got','w').write(sys.stdin.read()); open('arguments','w').write(repr(sys.argv[1:]))"
    )
    send(script(folder, text, 60.0, "a b", "$(touch x); `touch y`"), ALERTS, "box")
    assert json.loads((folder / "got").read_text())["alerts"] == ALERTS
    assert (folder / "arguments").read_text() == repr(["a b", "$(touch x); `touch y`"])
    assert not (folder / "x").exists()


def test_a_command_sees_little_of_the_agents_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No password that the agent has for something else; what is meant for it, and what it is about."""
    monkeypatch.setenv("RLA_SFTP_PASSWORD", PASSWORD)
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("RLA_ALERT_PAGER", "7")
    send(script(folder, "import json, os; json.dump(dict(os.environ), open('got', 'w'))"), ALERTS * 2, "box")
    found = json.loads((folder / "got").read_text())
    known = {"PATH", "HOME", "USER", "LANG", "TZ"}
    assert {name for name in found if not name.startswith(("RLA_ALERT_", "LC_"))} <= known
    assert (found["PATH"], found["TZ"], found["LC_TIME"]) == (os.environ["PATH"], "UTC", "C")
    assert found["RLA_ALERT_PAGER"] == "7"
    assert (found["RLA_ALERT_CHANNEL"], found["RLA_ALERT_EVENTS"]) == ("run", "test")
    assert found["RLA_ALERT_SUBJECT"].startswith("[rla] 2 alerts: test message")


def test_its_exit_code_and_last_words(folder: Path) -> None:
    text = "import sys; print('x' * 300_000); print('broken thing', file=sys.stderr, flush=True); sys.exit(3)"
    found = refused(script(folder, text))
    assert "exit code 3" in found
    assert found.endswith("broken thing")
    assert len(found) < 500
    assert "signal 9" in refused(script(folder, "import os; os.kill(os.getpid(), 9)"))


def test_a_large_alert_and_a_command_that_reads_nothing(folder: Path) -> None:
    many = [{**ALERTS[0], "text": "y" * 2000} for _ in range(200)]
    send(script(folder, "pass"), many, "box")


@pytest.mark.slow
def test_a_command_that_hangs_is_killed_with_its_children(
    folder: Path, wait_until: Callable[..., Any]
) -> None:
    text = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "3600"])
open("pids", "w").write(f"{os.getpid()} {child.pid}")
time.sleep(3600)
"""
    timeout_s = 1.5
    while True:
        assert f"timed out after {timeout_s:g} s" in refused(script(folder, text, timeout_s))
        if (folder / "pids").exists() and (folder / "pids").read_text():
            break
        timeout_s *= 4  # it had not begun yet
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    wait_until(lambda: not any(lives(pid) for pid in pids))


def test_a_command_whose_child_keeps_the_output_open(folder: Path) -> None:
    text = 'import subprocess; print(subprocess.Popen(["sleep", "3600"]).pid, file=open("pid", "w"))'
    send(script(folder, text), ALERTS, "box")
    child = psutil.Process(int((folder / "pid").read_text()))
    assert child.is_running(), "nobody waited for its end"
    child.kill()


def test_a_command_that_is_not_there(folder: Path) -> None:
    assert "No such file" in refused(Route(Channel("c", "command", command=("./nothing",)), folder))


def test_a_route_that_may_not_be_used(folder: Path) -> None:
    route = Route(Channel("c", "command", command=("touch", str(folder / "ran"))), folder, "not yours")
    assert refused(route) == "not yours"
    assert not (folder / "ran").exists()


def test_a_command_that_somebody_else_can_exchange(folder: Path) -> None:
    program = folder / "bin" / "tell"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    program.chmod(0o755)
    route = Route(Channel("c", "command", command=("bin/tell",)), folder)
    program.parent.chmod(0o777)
    assert "can be written by everybody" in refused(route)
    program.parent.chmod(0o755)
    program.chmod(0o777)
    assert "can be written by everybody" in refused(route)
    assert not (folder / "ran").exists()


def test_no_memory_file_is_left_open(folder: Path) -> None:
    for _ in range(3):
        send(script(folder, "pass"), ALERTS, "box")
        refused(Route(Channel("c", "command", command=("./nothing",)), folder))
    assert open_below("/memfd:rla-alert") == []
