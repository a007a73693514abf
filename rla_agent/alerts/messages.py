"""Messages of alerts as plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rla_agent.alerts.configured_rule import ConfiguredRule
from rla_client.config.alerts import MESSAGE
from rla_client.contract.run_index import RunIndex
from rla_client.contract.text.terminal_text import printable

MAX_TITLE_CHARS = 200
MAX_TEXT_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert of a rule.

    Attributes:
        key: identity of the event; the same event never has two alerts.
        when: event, one of `rla_client.config.alerts.EVENTS`, or test.
        title: one line.
        text: the details, a few lines.
        at: Unix seconds of the event.
        host: of this agent.
        rule: id of the rule.
        run: id of the run, empty for events of the machine.
        details: plain data for programs.
    """

    key: str
    when: str
    title: str
    text: str
    at: float
    host: str
    rule: str
    run: str
    details: dict[str, Any]

    def to_plain(self, held: int = 0) -> dict[str, Any]:
        """Content of the webhook's and the command's JSON.

        Args:
            held: number of alerts like this one that were held back since the last one, by interval_s.
        """
        text = self.text
        if held:
            text += f"\n{held} more like this one came since the last message."
        return {
            "id": hashlib.sha256(self.key.encode("utf-8", "surrogateescape")).hexdigest()[:32],
            "event": self.when,
            "title": printable(self.title)[:MAX_TITLE_CHARS],
            "text": "\n".join(printable(line) for line in text.split("\n"))[:MAX_TEXT_CHARS],
            "time": self.at,
            "host": self.host,
            "held_back": held,
            **self.details,
        }


def of_run(rule: str, plain: Mapping[str, Any], host: str) -> Alert:
    """Alert of a run's new state; `plain` is its record in agent.db."""
    state, at = str(plain["state"]), float(plain["closed"] or plain["updated"])
    lines = [f"reason: {plain['reason']}"] if plain.get("reason") else []
    key = f"{rule}:{plain['run_id']}:{state}:{plain['closed'] or plain['last_row'] or plain['opened']}"
    text = "\n".join([*lines, *_run_lines(plain)])
    title = f"{state}: {_run_name(plain)}"
    return Alert(key, state, title, text, at, host, rule, plain["run_id"], {"run": _run_fields(plain)})


def of_metric(
    known: ConfiguredRule,
    stream: str,
    firing: Mapping[str, Any],
    plain: Mapping[str, Any],
    host: str,
) -> Alert:
    """Alert of a metric rule that fired, or of a message by the script.

    `firing` has `number`, `offset` and the fields of `Firing`; `plain` is the run's record.
    """
    rule = known.rule
    metrics = {str(name): value for name, value in firing["metrics"].items()}
    named = ", ".join(f"{name} = {value}" for name, value in metrics.items())
    event = rule.when[0]
    what = f"NaN in {', '.join(metrics)}" if event == "nan" else f"{named}, {event} {rule.value:g}"
    if event == MESSAGE:
        what = firing["title"]
    rows = f" for {rule.rows} rows" if rule.rows > 1 else ""
    where = "once" if rule.once else f"{stream}:{firing['number']}:{firing['offset']}"
    details = {
        "run": _run_fields(plain),
        "metrics": metrics,
        "time_step": firing["time_step"],
        "threshold": rule.value if event in {"above", "below"} else None,
    }
    said = [firing["text"]] if event == MESSAGE and firing["text"] else []
    text = "\n".join([f"{what}{rows}, at time-step {firing['time_step']:g}", *said, *_run_lines(plain)])
    return Alert(
        f"{known.name}:{plain['run_id']}:{where}", event, f"{what}: {_run_name(plain)}", text,
        float(firing["timestamp"]), host, known.name, plain["run_id"], details,
    )  # fmt: skip


def of_machine(rule: str, event: str, subject: str, text: str, now: float, host: str) -> Alert:
    """Alert of a full disk, or stopped replication; `subject` names which."""
    words = {"disk_low": "disk low", "replication_parked": "replication parked"}.get(event, event)
    key = f"{rule}:{event}:{subject}:{now:.0f}"
    return Alert(key, event, f"{words} on {host}: {subject}", text, now, host, rule, "", {"subject": subject})


def of_test(now: float, host: str) -> Alert:
    """Alert of `rla-agent alerts test`."""
    text = "If you can read this, alerts reach you by this channel."
    return Alert(f"test:{now}", "test", f"test message of rla-agent on {host}", text, now, host, "", "", {})


def _run_fields(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a run for programs."""
    names = (
        "run_id", "table", "index", "root", "log_folder", "host", "user", "pid", "state", "reason",
        "exit_code", "signal", "opened", "last_row", "closed", "time_step", "rows",
    )  # fmt: skip
    return {name: plain.get(name) for name in names}


def _run_name(plain: Mapping[str, Any]) -> str:
    """Table, time and tracked parameters, for a title."""
    if not plain["table"]:
        return str(plain["root"])
    index = RunIndex.parse(str(plain["index"]))
    if index is None:
        return f"{plain['table']}/{plain['index']}"
    return f"{plain['table']} {index.record_date[:19]} {index.info}"


def _run_lines(plain: Mapping[str, Any]) -> list[str]:
    step = plain.get("time_step")
    lines = [f"run: {_run_name(plain)}", f"user {plain['user']}, process {plain['pid']} on {plain['host']}"]
    if step is not None:
        lines.append(f"last time-step {step:g}, {plain['rows']} rows")
    if plain.get("last_row"):
        when = datetime.fromtimestamp(plain["last_row"]).astimezone().isoformat(" ", "seconds")
        lines.append(f"last row {when}")
    return [*lines, f"folder: {plain['log_folder']}"]
