"""Messages: subject, text, JSON, Slack's and Discord's shape; names of users can do nothing in them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from rla_agent.alerts import bodies
from rla_agent.alerts.configured_rule import ConfiguredRule
from rla_agent.alerts.messages import of_machine, of_metric, of_run, of_test
from rla_client.config.alerts import AlertRule

RUN = {
    "run_id": "r", "table": "cartpole", "index": "2026/11/21/09-30-01-123456_10.0.0.5_&seed=1",
    "root": "/data", "log_folder": "/data/log/x", "host": "h", "user": "u", "pid": 7, "state": "killed",
    "reason": "gone", "exit_code": None, "signal": None, "opened": 1.0, "last_row": 2.0, "closed": 3.0,
    "time_step": 5.0, "rows": 6, "updated": 4.0,
}  # fmt: skip
HOSTILE = "x\r\nBcc: all@example.org\x1b[31m <!channel> @everyone &"


def killed(**more: Any) -> dict[str, Any]:
    return of_run("rule", {**RUN, **more}, "agenthost").to_plain()


def test_a_killed_run() -> None:
    plain = killed()
    assert plain["title"] == "killed: cartpole 2026/11/21/09-30-01 &seed=1"
    assert (plain["event"], plain["time"], plain["host"]) == ("killed", 3.0, "agenthost")
    assert plain["run"]["log_folder"] == "/data/log/x"
    for part in ("reason: gone", "user u, process 7 on h", "last time-step 5, 6 rows", "folder: /data/log/x"):
        assert part in plain["text"]
    assert len(plain["id"]) == 32


def test_the_same_event_has_the_same_id_and_another_has_not() -> None:
    assert killed()["id"] == killed(reason="otherwise told")["id"]
    assert (
        len(
            {killed()["id"], killed(closed=9.0)["id"], killed(run_id="s")["id"], killed(state="failed")["id"]}
        )
        == 4
    )


def test_a_metric() -> None:
    firing = {"number": 1, "offset": 9, "metrics": {"loss": 3.5}, "time_step": 4, "timestamp": 2.5}
    rule = AlertRule(("above",), ("m",), metric="loss", value=3, rows=2)
    plain = of_metric(ConfiguredRule("id", "/c.yaml", rule), "stream", firing, RUN, "h").to_plain()
    assert plain["title"].startswith("loss = 3.5, above 3: cartpole")
    assert (plain["metrics"], plain["threshold"], plain["time_step"]) == ({"loss": 3.5}, 3, 4)
    assert "for 2 rows, at time-step 4" in plain["text"]


def test_events_of_the_machine_and_tests() -> None:
    assert of_machine("r", "disk_low", "/data", "t", 1.0, "h").to_plain()["title"] == "disk low on h: /data"
    assert "test message" in of_test(1.0, "h").to_plain()["title"]


def test_held_back_ones_are_counted() -> None:
    assert "3 more like this" in of_run("r", RUN, "h").to_plain(3)["text"]


@pytest.mark.parametrize("kind", ["webhook", "command", "slack", "discord"])
def test_shapes(kind: str) -> None:
    shaped = json.loads(bodies.body(kind, [killed()]))
    if kind == "slack":
        assert set(shaped) == {"text"}
    elif kind == "discord":
        assert set(shaped) == {"content", "allowed_mentions"}
        assert shaped["allowed_mentions"] == {"parse": []}
    else:
        assert set(shaped) == {"format", "subject", "text", "alerts"}
        assert shaped["alerts"][0]["run"]["state"] == "killed"
    assert "killed: cartpole" in json.dumps(shaped)


@pytest.mark.parametrize("kind", ["webhook", "command"])
def test_json_has_no_nan(kind: str) -> None:
    shaped = json.loads(
        bodies.body(kind, [killed(time_step=math.nan, rows=-math.inf)]), parse_constant=pytest.fail
    )
    run = shaped["alerts"][0]["run"]
    assert (run["time_step"], run["rows"]) == ("nan", "-inf")


def test_hostile_names_stay_text() -> None:
    alert = killed(table=HOSTILE, index="x", reason=HOSTILE, log_folder="/d/\udcff\n\n" + "y" * 9000)
    mail = bodies.mail([alert], "a@b", ["c@d"], "h").as_bytes()
    head = mail.partition(b"\n\n")[0].replace(b"\n ", b"")
    assert b"\nBcc" not in head
    assert b"\x1b" not in mail
    assert "<!channel>" not in bodies.body("slack", [alert]).decode()
    assert len(json.loads(bodies.body("discord", [alert] * 5))["content"]) <= 2000
    assert "\\n" in alert["title"]


def test_many_in_one_message() -> None:
    alerts = [killed(run_id=str(number)) for number in range(40)]
    assert bodies.subject(alerts).startswith("[rla] 40 alerts: ")
    assert "and 35 more:" in bodies.text(alerts)
    assert bodies.idempotency_key(alerts) != bodies.idempotency_key(alerts[:-1])
