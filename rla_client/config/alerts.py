"""Section `AGENT.alerts` of `rla_config.yaml`.

A channel has a name chosen by the user and a kind; a rule names events and channels. `CHANNEL_KEYS` has the
keys of each kind, `RULE_KEYS` those of each event; any other key is a fault. The section contains no
passwords: a channel names a file or an environment variable. All faults are collected, each with its node
(and so its line).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rla_client.config.rules import Choice, Flag, Number, Rule, Text, Texts, WrongValueError
from rla_client.config.section_reader import SectionReader, WrongValuesError
from rla_client.config.yaml_nodes import is_empty, quote, shape

if TYPE_CHECKING:
    import yaml

STATES = ("failed", "killed", "stalled", "finished", "interrupted", "removed")
METRICS = ("nan", "above", "below")
MESSAGE = "message"  # `exp_manager.alert` in the script
MACHINE = ("disk_low", "replication_parked")
EVENTS = (*STATES, *METRICS, MESSAGE, *MACHINE)
MAX_RULES = 100  # a hand-written list; each metric rule is evaluated for each row
MAX_CHANNELS = 32
MAX_ROWS = 1_000_000
DEFAULT_FREE_BYTES = 5 << 30
DEFAULT_INTERVAL_S = 300.0
DEFAULT_TIMEOUT_S = 30.0
_ADDRESS = re.compile(r"[^\s@<>,;:\"\\]+@[^\s@<>,;:\"\\]+\Z")


@dataclass(frozen=True, slots=True)
class Channel:
    """A destination of alerts. An empty text means: not set. Paths are relative to the file's folder.

    Attributes:
        name: chosen by the user.
        kind: email, webhook, slack, discord, teams, telegram, ntfy, matrix or command.
        to: addresses (email).
        sender: address (email); empty: the first of `to`.
        server: host name (email).
        port: of the server; None: 587 for starttls, 465 for tls, 25 for none.
        security: starttls, tls or none (email).
        username: for a login (email).
        password_env: environment variable of the agent with the password (email).
        credentials_file: file of mode 0600 with the password (email).
        url: where to post (all but email and command); not shown, as it often contains a token.
        url_env: environment variable of the agent with the address.
        url_file: file of mode 0600 with the address.
        ca_file: certificates that are trusted instead of the system's.
        command: program and arguments (command).
        timeout_s: time limit for one message.
    """

    name: str
    kind: str
    to: tuple[str, ...] = ()
    sender: str = ""
    server: str = ""
    port: int | None = None
    security: str = "starttls"
    username: str = ""
    password_env: str = ""
    credentials_file: str = ""
    url: str = field(default="", repr=False)
    url_env: str = ""
    url_file: str = ""
    ca_file: str = ""
    command: tuple[str, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class AlertRule:
    """Events that send a message, and its channels.

    Attributes:
        when: events of EVENTS: several states, or one other event.
        send: names of channels.
        table: glob; only runs of these tables.
        metric: glob of column names (nan, above, below).
        value: threshold (above, below).
        rows: number of consecutive rows that must be beyond the threshold.
        once: alert once for each run, not each time the condition becomes true again.
        free_bytes: alert below so much free space (disk_low).
        interval_s: least time between two alerts of this rule and run.
    """

    when: tuple[str, ...]
    send: tuple[str, ...]
    table: str = "*"
    metric: str = "*"
    value: float = 0.0
    rows: int = 1
    once: bool = False
    free_bytes: int = DEFAULT_FREE_BYTES
    interval_s: float = DEFAULT_INTERVAL_S


@dataclass(frozen=True, slots=True)
class Alerts:
    """`AGENT.alerts`."""

    channels: tuple[Channel, ...] = ()
    rules: tuple[AlertRule, ...] = ()


@dataclass(frozen=True, slots=True)
class _Arguments:
    """A program and its arguments: a list of texts, which may repeat."""

    def __call__(self, node: yaml.Node) -> tuple[str, ...]:
        items = node.value if shape(node) == "sequence" else []
        if not items or any(shape(item) != "scalar" for item in items):
            raise WrongValueError("must be a list: the program and its arguments (there is no shell)")
        return tuple(str(item.value) for item in items)


_TIMEOUT: Rule = Number(1, 600, unit="seconds")
_POST: dict[str, Rule] = {
    "url": Text(), "url_env": Text(), "url_file": Text(), "ca_file": Text(), "timeout_s": _TIMEOUT,
}  # fmt: skip
CHANNEL_KEYS: dict[str, dict[str, Rule]] = {
    "email": {
        "to": Texts(), "sender": Text(), "server": Text(), "port": Number(1, 65535, whole=True),
        "security": Choice(("starttls", "tls", "none")), "username": Text(), "password_env": Text(),
        "credentials_file": Text(), "ca_file": Text(), "timeout_s": _TIMEOUT,
    },
    **dict.fromkeys(("webhook", "slack", "discord", "teams", "telegram", "ntfy", "matrix"), _POST),
    "command": {"command": _Arguments(), "timeout_s": _TIMEOUT},
}  # fmt: skip
_COMMON: dict[str, Rule] = {
    "when": Texts(EVENTS), "send": Texts(), "interval_s": Number(0, unit="seconds"),
}  # fmt: skip
_METRIC: dict[str, Rule] = {
    **_COMMON, "table": Text(), "metric": Text(), "rows": Number(1, MAX_ROWS, whole=True), "once": Flag(),
}  # fmt: skip
RULE_KEYS: dict[str, dict[str, Rule]] = {
    **{state: {**_COMMON, "table": Text()} for state in STATES},
    "nan": _METRIC,
    "above": {**_METRIC, "value": Number(-math.inf)},
    "below": {**_METRIC, "value": Number(-math.inf)},
    MESSAGE: {**_COMMON, "table": Text()},
    "disk_low": {**_COMMON, "free_bytes": Number(1, whole=True, unit="bytes")},
    "replication_parked": _COMMON,
}
ADVICE = {"password": "does not belong here: name a file in credentials_file, or a variable in password_env"}


def _every(kinds: Mapping[str, Mapping[str, Rule]]) -> dict[str, str]:
    """The keys of all kinds, each mapped to itself."""
    return {key: key for keys in kinds.values() for key in keys}


def read_alerts(node: yaml.Node) -> Alerts:
    """Read the section.

    Raises:
        WrongValuesError: it has faults; the error lists all of them.
    """
    reader = _AlertsReader()
    parts = reader.mapping(node, "", {"channels": "channels", "rules": "rules"}, ADVICE)
    channels = reader.channels(parts.get("channels"))
    rules = reader.rules(parts.get("rules"), {channel.name for channel in channels})
    if reader.faults:
        raise WrongValuesError(reader.faults)
    return Alerts(tuple(channels), tuple(rules))


class _AlertsReader(SectionReader):
    """Reads channels and rules."""

    def __init__(self) -> None:
        super().__init__()
        self._named: set[str] = set()  # channels, including faulty ones, which a rule may name

    def values(self, nodes: Mapping[str, yaml.Node], below: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
        """The values of the nodes that are not empty, read by their rules."""
        values: dict[str, Any] = {}
        for key, node in nodes.items():
            if key not in rules:
                text = f"means nothing here; known here: {', '.join(sorted(rules))}"
                self.faults.append((node, f"{below}.{key}", text))
            elif (value := self.value(rules[key], node, f"{below}.{key}")) is not None:
                values[key] = value
        return values

    def channels(self, node: yaml.Node | None) -> list[Channel]:
        """The channels without faults."""
        if node is None or is_empty(node):
            return []
        named = self.mapping(node, ".channels", None)
        self._named = set(named)
        if len(named) > MAX_CHANNELS:
            self.faults.append((node, ".channels", f"has more than {MAX_CHANNELS} entries"))
        found = [self._channel(name, value) for name, value in named.items()]
        return [channel for channel in found if channel is not None]

    def _channel(self, name: str, node: yaml.Node) -> Channel | None:
        below = f".channels.{name}"
        before = len(self.faults)
        nodes = self.mapping(node, below, {"kind": "kind", **_every(CHANNEL_KEYS)}, ADVICE)
        kind_node = nodes.pop("kind", None)
        kind = self._word(kind_node, node, f"{below}.kind", tuple(CHANNEL_KEYS))
        if kind is None:
            return None
        values = self.values(nodes, below, CHANNEL_KEYS[kind])
        if len(self.faults) == before:
            self._complete(kind, values, node, below)
        return Channel(name, kind, **values) if len(self.faults) == before else None

    def _word(
        self, node: yaml.Node | None, parent: yaml.Node, below: str, words: tuple[str, ...]
    ) -> str | None:
        if node is None or is_empty(node):
            if shape(parent) == "mapping":
                self.faults.append((parent, below, f"is missing: one of {', '.join(words)}"))
            return None
        found: str | None = self.value(Choice(words), node, below)
        return found

    def _complete(self, kind: str, values: Mapping[str, Any], node: yaml.Node, below: str) -> None:
        """Check the required keys of a channel."""
        if kind == "email":
            self._complete_email(values, node, below)
        elif kind == "command":
            if "command" not in values:
                self.faults.append((node, f"{below}.command", "is missing"))
        else:
            given = [key for key in ("url", "url_env", "url_file") if key in values]
            if len(given) != 1:
                self.faults.append((node, below, "needs one of url, url_env and url_file"))
            elif given == ["url"] and not values["url"].startswith(("http://", "https://")):
                self.faults.append((node, f"{below}.url", "must begin with http:// or https://"))

    def _complete_email(self, values: Mapping[str, Any], node: yaml.Node, below: str) -> None:
        for key in ("to", "server"):
            if key not in values:
                self.faults.append((node, f"{below}.{key}", "is missing"))
        secrets = [key for key in ("password_env", "credentials_file") if key in values]
        if ("username" in values) != (len(secrets) == 1):
            text = "a login needs username and one of password_env and credentials_file"
            self.faults.append((node, below, text))
        elif secrets and values.get("security") == "none":
            text = "a password is not sent over an open connection; use starttls or tls"
            self.faults.append((node, f"{below}.security", text))
        for address in (*values.get("to", ()), values.get("sender", "a@b")):
            if not _ADDRESS.match(address):
                self.faults.append((node, below, f"{address!r} is not an e-mail address"))

    def rules(self, node: yaml.Node | None, channels: set[str]) -> list[AlertRule]:
        """The rules without faults."""
        if node is None or is_empty(node):
            return []
        if shape(node) != "sequence":
            self.faults.append((node, ".rules", f"must be a list of rules, not {quote(node)}"))
            return []
        if len(node.value) > MAX_RULES:
            self.faults.append((node, ".rules", f"has more than {MAX_RULES} entries"))
        found = [self._rule(number, item, channels) for number, item in enumerate(node.value, 1)]
        return [rule for rule in found if rule is not None]

    def _rule(self, number: int, node: yaml.Node, channels: set[str]) -> AlertRule | None:
        below = f".rules[{number}]"
        before = len(self.faults)
        nodes = self.mapping(node, below, _every(RULE_KEYS), ADVICE)
        events = self._events(nodes.get("when"), node, below)
        if not events:
            return None
        values = self.values(nodes, below, RULE_KEYS[events[0]])
        self._sent(values.get("send", ()), nodes.get("send", node), below, channels)
        if events[0] in {"above", "below"}:
            for key in ("metric", "value"):
                if key not in nodes:
                    self.faults.append((node, f"{below}.{key}", "is missing"))
        return AlertRule(**values) if len(self.faults) == before else None

    def _events(self, node: yaml.Node | None, parent: yaml.Node, below: str) -> tuple[str, ...]:
        """The events of a rule; empty if they are faulty."""
        where = f"{below}.when"
        if node is None or is_empty(node):
            if shape(parent) == "mapping":
                self.faults.append((parent, where, f"is missing: some of {', '.join(EVENTS)}"))
            return ()
        events: tuple[str, ...] | None = self.value(Texts(EVENTS), node, where)
        if events is None:
            return ()
        if not events:
            self.faults.append((node, where, "is empty"))
        elif len(events) > 1 and not set(events) <= set(STATES):
            text = f"only {', '.join(STATES)} can stand together in one rule"
            self.faults.append((node, where, text))
            return ()
        return events

    def _sent(self, names: tuple[str, ...], node: yaml.Node, below: str, channels: set[str]) -> None:
        if not names:
            self.faults.append((node, f"{below}.send", "is missing: the names of channels"))
        for name in names:
            if name not in channels and name not in self._named:
                known = ", ".join(sorted(self._named)) or "there are none"
                self.faults.append((node, f"{below}.send", f"no channel is called {name!r} ({known})"))
