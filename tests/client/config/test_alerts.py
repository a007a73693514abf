"""AGENT.alerts: what is read, and every fault at once with its line and key."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from rla_client.config.alerts import CHANNEL_KEYS, EVENTS, RULE_KEYS, AlertRule, Channel
from rla_client.config.schema import load_config
from rla_client.contract.errors import ConfigError

GOOD = """
AGENT:
  alerts:
    channels:
      mail:
        kind: email
        to: [you@example.org, us@example.org]
        server: smtp.example.org
        username: you
        credentials_file: ~/secret
      open: {kind: email, to: root@localhost, server: localhost, security: none, port: 2525}
      chat: {kind: slack, url: "https://hooks.example.org/x", timeout_s: 5}
      run: {kind: command, command: [notify, -u, -u]}
    rules:
      - {when: [failed, killed], send: [mail, chat]}
      - {when: above, metric: "loss/*", value: 1e3, rows: 5, once: true, send: chat, table: "cart*",
         interval_s: 0}
      - {when: disk_low, free_bytes: 1_000, send: mail}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "rla_config.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def faults(folder: Path, alerts: str) -> list[str]:
    """Faults of a section AGENT.alerts that begins on line 3."""
    path = write(folder, "AGENT:\n  alerts:\n" + textwrap.indent(textwrap.dedent(alerts).strip("\n"), "    "))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return caught.value.faults


def test_what_is_read(tmp_path: Path) -> None:
    found = load_config(write(tmp_path, GOOD)).agent.alerts
    assert found is not None
    assert found.channels == (
        Channel(
            "mail", "email", ("you@example.org", "us@example.org"), server="smtp.example.org", username="you",
            credentials_file="~/secret",
        ),
        Channel("open", "email", ("root@localhost",), server="localhost", port=2525, security="none"),
        Channel("chat", "slack", url="https://hooks.example.org/x", timeout_s=5.0),
        Channel("run", "command", command=("notify", "-u", "-u")),
    )  # fmt: skip
    assert found.rules == (
        AlertRule(("failed", "killed"), ("mail", "chat")),
        AlertRule(("above",), ("chat",), "cart*", "loss/*", 1000.0, 5, once=True, interval_s=0.0),
        AlertRule(("disk_low",), ("mail",), free_bytes=1000),
    )


@pytest.mark.parametrize("text", ["AGENT:\n  alerts:\n", "AGENT: {alerts: ''}", "AGENT: {alerts: {}}"])
def test_none(tmp_path: Path, text: str) -> None:
    found = load_config(write(tmp_path, text)).agent.alerts
    assert found is None or found.rules == ()


def test_every_fault_at_once_with_line_and_key(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """
        channels:
          mail:
            kind: emial
          chat: {kind: slack}
          post: {kind: webhook, url: "ftp://x", uri: y}
          smtp:
            kind: email
            to: [nobody]
            server: x
            username: me
            password: pw
          run: {kind: command, command: "rm -rf /", to: a@b}
        rules:
          - {when: dies, send: mail}
          - {when: [killed, nan], send: mail}
          - {when: killed, send: phone, value: 3}
          - {when: above, send: chat}
          - {send: chat}
          - 7
        colour: red
        """,
    )
    starts = [
        (
            "line 5: AGENT.alerts.channels.mail.kind: must be email, webhook, slack, discord, teams, "
            "telegram, ntfy, matrix or command, not"
        ),
        "line 6: AGENT.alerts.channels.chat: needs one of url, url_env and url_file",
        "line 7: AGENT.alerts.channels.post.uri: unknown key; did you mean 'url'?",
        "line 13: AGENT.alerts.channels.smtp.password: does not belong here",
        "line 14: AGENT.alerts.channels.run.command: must be a list",
        "line 14: AGENT.alerts.channels.run.to: means nothing here; known here: command, timeout_s",
        "line 16: AGENT.alerts.rules[1].when: must be",
        "line 17: AGENT.alerts.rules[2].when: only failed, killed",
        "line 18: AGENT.alerts.rules[3].send: no channel is called 'phone' (chat, mail, post, run, smtp)",
        "line 18: AGENT.alerts.rules[3].value: means nothing here",
        "line 19: AGENT.alerts.rules[4].metric: is missing",
        "line 19: AGENT.alerts.rules[4].value: is missing",
        "line 20: AGENT.alerts.rules[5].when: is missing",
        "line 21: AGENT.alerts.rules[6]: must hold keys and values, not '7'",
        "line 22: AGENT.alerts.colour: unknown key",
    ]
    assert sorted(found) == found or len(found) == len(starts)
    for start in starts:
        assert any(fault.startswith(start) for fault in found), (start, found)
    assert len(found) == len(starts), found
    assert not any("pw" in fault.split(": ", 2)[2] for fault in found if "password:" in fault)


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        ("{kind: email, server: s, to: nobody}", "'nobody' is not an e-mail address"),
        ("{kind: email, server: s, to: 'a@b, c@d'}", "is not an e-mail address"),
        ("{kind: email, server: s}", ".to: is missing"),
        ("{kind: email, to: a@b}", ".server: is missing"),
        ("{kind: email, server: s, to: a@b, username: u}", "a login needs"),
        ("{kind: email, server: s, to: a@b, password_env: P}", "a login needs"),
        (
            "{kind: email, server: s, to: a@b, username: u, password_env: P, credentials_file: f}",
            "a login needs",
        ),
        (
            "{kind: email, server: s, to: a@b, username: u, password_env: P, security: none}",
            "open connection",
        ),
        ("{kind: email, server: s, to: a@b, port: 70000}", "from 1 to 65535"),
        ("{kind: webhook, url: 'https://x', url_env: X}", "one of url, url_env"),
        ("{kind: webhook, url: 'file:///etc/passwd'}", "must begin with http"),
        ("{kind: command}", ".command: is missing"),
        ("{kind: command, command: []}", "must be a list"),
        ("{to: a@b}", ".kind: is missing"),
        ("{kind: command, command: [x], timeout_s: 0}", "from 1 to 600"),
        ("hello", "must hold keys and values"),
    ],
)
def test_channels_that_cannot_work(tmp_path: Path, channel: str, told: str) -> None:
    (found,) = faults(tmp_path, f"channels:\n  c: {channel}")
    assert found.startswith("line 4: AGENT.alerts.channels.c")
    assert told in found


def test_bounds(tmp_path: Path) -> None:
    rules = "\n".join("  - {when: killed, send: c}" for _ in range(101))
    (found,) = faults(tmp_path, f"channels:\n  c: {{kind: command, command: [x]}}\nrules:\n{rules}")
    assert "more than 100" in found
    channels = "\n".join(f"  c{n}: {{kind: command, command: [x]}}" for n in range(33))
    (found,) = faults(tmp_path, f"channels:\n{channels}")
    assert "more than 32" in found


def test_a_dict_may_have_none() -> None:
    alerts = {"channels": {"c": {"kind": "command", "command": ["x"]}}, "rules": []}
    with pytest.raises(ConfigError, match="put them into a file"):
        load_config({"AGENT": {"alerts": alerts}})


def test_a_url_is_not_shown() -> None:
    assert "hooks" not in repr(Channel("c", "slack", url="https://hooks.example.org/t0ken"))


def test_each_event_and_kind_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "alerts.md").read_text(encoding="utf-8")
    words = {*EVENTS, *CHANNEL_KEYS}
    words |= {key for keys in (*CHANNEL_KEYS.values(), *RULE_KEYS.values()) for key in keys}
    assert not {word for word in words if f"`{word}`" not in text}
