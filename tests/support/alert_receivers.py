"""Alerts in tests: a training process they are about, and where they arrive.

These are a real SMTP server and a real HTTP server on loopback, and their key.

Both note what they accepted. `SmtpServer` speaks EHLO, STARTTLS, AUTH PLAIN and LOGIN, MAIL, RCPT, DATA;
`hang` makes it accept connections and say nothing, `refuse` answers a command with a code.
"""

from __future__ import annotations

import base64
import json
import socketserver
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """(certificate, key) for localhost, signed by itself."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", str(key), "-out", str(certificate),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return certificate, key


def server_context(pair: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    return context


class SmtpServer(socketserver.ThreadingTCPServer):
    """An SMTP server; `mails` are the accepted messages, `logins` the accepted (user, password)."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(
        self,
        context: ssl.SSLContext | None = None,
        *,
        implicit: bool = False,
        password: str = "",
        port: int = 0,
    ) -> None:
        self.context = context
        self.implicit = implicit
        self.password = password
        self.mails: list[EmailMessage] = []
        self.raw: list[bytes] = []
        self.logins: list[tuple[str, str]] = []
        self.encrypted: list[bool] = []
        self.connections = 0
        self.hang = threading.Event()
        self.refuse: dict[str, str] = {}
        super().__init__(("127.0.0.1", port), _SmtpSession)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _SmtpSession(socketserver.BaseRequestHandler):
    server: SmtpServer

    def handle(self) -> None:
        server = self.server
        server.connections += 1
        if server.hang.is_set():
            while server.hang.is_set():
                time.sleep(0.02)
            return
        with suppress(OSError):
            if server.implicit and server.context:
                self.request = server.context.wrap_socket(self.request, server_side=True)
            self.secure = server.implicit
            self.user = ""
            self.reader = self.request.makefile("rb")
            self.say("220 localhost ready")
            while line := self.reader.readline():
                if not self.command(line.decode("utf-8", "replace").strip()):
                    return

    def say(self, text: str) -> None:
        self.request.sendall(text.encode() + b"\r\n")

    def command(self, line: str) -> bool:
        verb = line.partition(" ")[0].upper()
        server = self.server
        if verb in server.refuse:
            self.say(server.refuse[verb])
        elif verb == "EHLO":
            offers = ["STARTTLS"] if server.context and not self.secure else []
            offers += ["AUTH PLAIN LOGIN"] if server.password else []
            lines = ["localhost", *offers, "8BITMIME"]
            for offer in lines[:-1]:
                self.say(f"250-{offer}")
            self.say(f"250 {lines[-1]}")
        elif verb == "STARTTLS" and server.context:
            self.say("220 go on")
            self.request = server.context.wrap_socket(self.request, server_side=True)
            self.reader = self.request.makefile("rb")
            self.secure = True
        elif verb == "AUTH":
            self.authenticate(line.split())
        elif verb in {"MAIL", "RCPT", "RSET", "NOOP"}:
            needs = server.password and verb == "MAIL" and not self.user
            self.say("530 log in first" if needs else "250 ok")
        elif verb == "DATA":
            self.say("354 go on")
            self.take()
        elif verb == "QUIT":
            self.say("221 bye")
            return False
        else:
            self.say("502 what?")
        return True

    def authenticate(self, words: list[str]) -> None:
        if words[1].upper() == "PLAIN":
            _, user, password = base64.b64decode(words[2]).decode().split("\0")
        else:
            user = base64.b64decode(words[2]).decode() if len(words) > 2 else self.ask("VXNlcm5hbWU6")
            password = self.ask("UGFzc3dvcmQ6")
        if password == self.server.password:
            self.user = user
            self.server.logins.append((user, password))
            self.say("235 welcome")
        else:
            self.say("535 wrong user or password")

    def ask(self, prompt: str) -> str:
        self.say(f"334 {prompt}")
        return base64.b64decode(self.reader.readline()).decode()

    def take(self) -> None:
        lines = []
        while (line := self.reader.readline()) not in {b".\r\n", b""}:
            lines.append(line[1:] if line.startswith(b"..") else line)
        data = b"".join(lines)
        self.server.raw.append(data)
        self.server.encrypted.append(self.secure)
        message = message_from_bytes(data, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.server.mails.append(message)
        self.say("250 taken")


class HookServer(ThreadingHTTPServer):
    """An HTTP server.

    `posts` are (path, headers, JSON) of what it answered with 2xx, `answers` what to say next, `says` the
    text of a refusal.
    """

    daemon_threads = True

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self.posts: list[tuple[str, dict[str, str], Any]] = []
        self.tries = 0
        self.says = "no, thank you"
        self.answers: list[tuple[int, dict[str, str]]] = []
        super().__init__(("127.0.0.1", port), _HookRequest)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.posts]


class _HookRequest(BaseHTTPRequestHandler):
    server: HookServer

    def do_POST(self) -> None:
        self.server.tries += 1
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        plain = (self.headers["Content-Type"] or "").startswith("text/plain")
        body = sent.decode() if plain else json.loads(sent)
        code, headers = self.server.answers.pop(0) if self.server.answers else (200, {})
        if 200 <= code < 300:
            self.server.posts.append((self.path, dict(self.headers), body))
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"ok" if code == 200 else self.server.says.encode())

    do_PUT = do_POST  # noqa: N815 - the name is http.server's

    def do_GET(self) -> None:
        self.server.posts.append(("GET", dict(self.headers), None))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def serving(server: Any) -> Iterator[Any]:
    """Run a server until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        getattr(server, "hang", threading.Event()).clear()
        server.shutdown()
        server.server_close()
        thread.join(5)


TRAINING = """
import sys
from rla_client import exp_manager, logger, time_step_holder
exp_manager.configure("table", rla_config=sys.argv[1], data_root=sys.argv[2])
exp_manager.set_hyper_param(seed=3)
exp_manager.add_record_param(["seed"])
exp_manager.log_files_gen()
logger.record_tabular("a", 1.0)
logger.dump_tabular()
print("up", flush=True)
for number, line in enumerate(sys.stdin, 1):
    word = line.strip()
    if word == "raise":
        raise ValueError("it went wrong")
    if word == "flush":
        print("flushed", logger.flush(60), flush=True)
        continue
    time_step_holder.set_time(number)
    if word == "alert":
        exp_manager.alert("half   way", "there now")
        word = "0"
    logger.record_tabular("a", float(word))
    logger.dump_tabular()
    print("row", flush=True)
"""


class Training:
    """A training process that is told what to do."""

    def __init__(self, config: Path, root: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(config), str(root)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.hear("up")

    def hear(self, word: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line
        _, errors = self.process.communicate()
        pytest.fail(f"the training process ended: {errors}")

    def say(self, *words: object) -> None:
        assert self.process.stdin is not None
        for word in words:
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()
            if word != "raise":
                self.hear("flushed" if word == "flush" else "row")

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(90)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def write_config(folder: Path, rules: str, channels: str) -> Path:
    """An rla_config.yaml with these rules and channels."""
    folder.mkdir(exist_ok=True)
    lines = [
        "LOG_USED: [csv]",
        "AGENT:",
        "  commit_interval_s: 0.1",
        "  stall_s: 2",
        "  alerts:",
        "    channels:",
    ]
    text = (
        "\n".join(lines)
        + "\n"
        + textwrap.indent(textwrap.dedent(channels).strip(), "      ")
        + "\n    rules:\n"
    )
    path = folder / "rla_config.yaml"
    path.write_text(text + textwrap.indent(textwrap.dedent(rules).strip(), "      ") + "\n")
    return path


def hooked(folder: Path, rules: str, url: str) -> Path:
    return write_config(folder, rules, f"chat: {{kind: webhook, url: '{url}', timeout_s: 20}}")


def events(hook: HookServer) -> list[str]:
    return [alert["event"] for body in hook.bodies for alert in body["alerts"]]


def sent(agent: Any) -> int:
    return sum(entry["sent"] for entry in agent.status()["alerts"]["channels"])


@dataclass(frozen=True, slots=True)
class Scene:
    """A project whose alerts go to `hook`, with agents and training processes that the test starts."""

    folder: Path
    hook: HookServer
    new_agent: Callable[..., Any]
    train: Callable[[Path], Training]
    wait_until: Callable[..., Any]

    @property
    def project(self) -> Path:
        """Where the configuration lies."""
        return self.folder / "p"

    def configure(self, rules: str, url: str = "") -> Path:
        """Write the project's configuration with these rules; the channel is `chat`."""
        return hooked(self.project, rules, url or self.hook.url)

    def train_with(self, rules: str, url: str = "") -> Training:
        """Train in a project with these rules."""
        return self.train(self.configure(rules, url))

    def arrive(self, *names: str, **how: Any) -> None:
        """Wait until just these alerts have arrived, in whatever order; `how`: options of `wait_until`."""
        self.wait_until(lambda: sorted(events(self.hook)) == sorted(names), **how)
