"""Alerts of a real agent when something is in the way: none is lost, none comes twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alert_receivers import (
    HookServer,
    SmtpServer,
    Training,
    events,
    free_port,
    hooked,
    sent,
    serving,
    write_config,
)

from rla_agent.alerts.desk import GIVE_UP_S, RETRY_FIRST_S, RETRY_MOST_S, batches, retry_delay
from rla_agent.alerts.store import Delivery
from rla_client.places import Places

# -- when something is in the way ---------------------------------------------------------------


def test_a_restart_neither_loses_nor_doubles(
    new_agent: Callable[..., Any],
    train: Callable[[Path], Training],
    tmp_path: Path,
    wait_until: Callable[..., Any],
) -> None:
    """The server is down, the agent is killed again and again, even beside new events: each arrives once."""
    port = free_port()
    rules = "- {when: nan, send: chat, interval_s: 0}\n- {when: killed, send: chat}"
    config = hooked(tmp_path / "p", rules, f"http://127.0.0.1:{port}/hook")
    agent = new_agent().start()
    training = train(config)
    for round_number in range(3):
        training.say("nan", 1.0)
        if round_number % 2:
            training.say("flush")  # durable, and perhaps noted
        agent.restart()
    training.kill()
    wait_until(lambda: agent.status()["alerts"]["waiting"] == 4)
    agent.restart()
    assert agent.status()["alerts"]["waiting"] == 4
    with serving(HookServer(port)) as hook:
        wait_until(lambda: len(events(hook)) == 4, 60, what="all alerts")
        wait_until(lambda: sent(agent) == 4)
        agent.restart()
        agent.stop()
        assert sorted(events(hook)) == ["killed", "nan", "nan", "nan"]
        ids = [alert["id"] for body in hook.bodies for alert in body["alerts"]]
        assert len(set(ids)) == 4


def test_failures_show_in_status_and_doctor_and_end(
    agent: Any,
    train: Callable[[Path], Training],
    tmp_path: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:
    hook.answers += [(500, {}), (503, {})] * 20
    training = train(hooked(tmp_path / "p", "- {when: nan, send: chat}", hook.url + "/t0ken"))
    training.say("nan")
    wait_until(lambda: any("HTTP 50" in problem["what"] for problem in agent.status()["problems"]))
    (problem,) = [p for p in agent.status()["problems"] if "HTTP 50" in p["what"]]
    assert f"alerts test --config {tmp_path / 'p' / 'rla_config.yaml'}" in problem["mend"]
    assert "t0ken" not in problem["what"]
    doctor = agent.command("doctor", "--json")
    assert any(
        f["name"] == "agent-problem" and "HTTP" in f["what"] for f in json.loads(doctor.stdout)["findings"]
    )
    wait_until(lambda: hook.tries >= 2, 40)
    hook.answers.clear()
    wait_until(lambda: sent(agent) == 1, 60, what="the next try")
    assert len(hook.posts) == 1
    assert not [p for p in agent.status()["problems"] if "HTTP" in p["what"]]


def test_a_mail_server_that_hangs_holds_up_nothing(
    new_agent: Callable[..., Any], train: Callable[[Path], Training], tmp_path: Path, hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:  # fmt: skip
    """Neither rows nor flush nor status nor the other channel; stop waits a few seconds at most."""
    with serving(SmtpServer()) as smtp:
        smtp.hang.set()
        channels = f"""
            mail: {{kind: email, to: me@example.org, server: localhost, port: {smtp.port}, security: none,
                   timeout_s: 600}}
            chat: {{kind: slack, url: '{hook.url}'}}"""
        config = write_config(tmp_path / "p", "- {when: nan, send: [mail, chat], interval_s: 0}", channels)
        agent = new_agent().start()
        training = train(config)
        training.say("nan")
        wait_until(lambda: smtp.connections and len(hook.posts) == 1)
        training.say(1.0, "nan", "flush")
        wait_until(lambda: len(hook.posts) == 2, what="the other channel")
        assert agent.status()["alerts"]["waiting"] == 2
        began = time.monotonic()
        assert agent.stop() == 0
        assert time.monotonic() - began < 15, "stop does not wait for the server"
    training.kill()


def test_a_mass_of_alerts_is_one_message(
    new_agent: Callable[..., Any],
    train: Callable[[Path], Training],
    tmp_path: Path,
    wait_until: Callable[..., Any],
) -> None:
    port = free_port()
    rules = "- {when: nan, send: chat, interval_s: 0}"
    agent = new_agent().start()
    training = train(hooked(tmp_path / "p", rules, f"http://127.0.0.1:{port}/"))
    for _ in range(12):
        training.say("nan", 1.0)
    wait_until(lambda: agent.status()["alerts"]["waiting"] == 12)
    with serving(HookServer(port)) as hook:
        wait_until(lambda: len(events(hook)) == 12, 60, what="all")
        assert len(hook.posts) == 1


def test_what_comes_too_often_is_told_at_the_end_of_the_interval(
    agent: Any,
    train: Callable[[Path], Training],
    tmp_path: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:
    training = train(hooked(tmp_path / "p", "- {when: nan, send: chat, interval_s: 4}", hook.url))
    training.say("nan")
    wait_until(lambda: len(hook.posts) == 1)
    training.say(1, "nan", 1, "nan", 1, "nan")
    wait_until(lambda: len(hook.posts) == 2, what="the end of the interval")
    assert hook.bodies[1]["alerts"][0]["held_back"] == 2
    assert "2 more like this" in hook.bodies[1]["text"]
    wait_until(lambda: agent.status()["alerts"]["waiting"] == 0)
    assert len(hook.posts) == 2


def test_a_stop_sends_what_has_just_happened(
    new_agent: Callable[..., Any], train: Callable[[Path], Training], tmp_path: Path, hook: HookServer
) -> None:
    """As in a batch job, where agent and job end together."""
    agent = new_agent().start()
    training = train(hooked(tmp_path / "p", "- {when: killed, send: chat}", hook.url))
    os.kill(agent.pid, signal.SIGSTOP)
    training.kill()
    assert agent.stop() == 0
    if not events(hook):  # the lock was not looked at before the end: the next agent tells
        agent.start()
        agent.stop()
    assert events(hook) == ["killed"]


def test_a_damaged_database_of_alerts_is_put_aside(
    new_agent: Callable[..., Any], train: Callable[[Path], Training], tmp_path: Path, hook: HookServer,
    wait_until: Callable[..., Any], places: Places,
) -> None:  # fmt: skip
    (places.state / "alerts.db").write_bytes(b"no database" * 1000)
    new_agent().start()
    train(hooked(tmp_path / "p", "- {when: nan, send: chat}", hook.url)).say("nan")
    wait_until(lambda: events(hook) == ["nan"])
    assert (places.state / "alerts.db.broken").exists()


# -- decisions ----------------------------------------------------------------------------------


def test_delays_grow_and_are_spread() -> None:
    assert [retry_delay(n, None, 1.0) for n in (1, 2, 3)] == [
        RETRY_FIRST_S,
        2 * RETRY_FIRST_S,
        4 * RETRY_FIRST_S,
    ]
    assert retry_delay(1, None, 0.0) == RETRY_FIRST_S / 2
    assert retry_delay(10_000, None, 1.0) == RETRY_MOST_S < GIVE_UP_S
    assert (retry_delay(1, 40.0, 1.0), retry_delay(1, 1e9, 1.0)) == (40.0, RETRY_MOST_S)


def test_batches() -> None:
    def some(count: int) -> list[Delivery]:
        return [Delivery(n, "c", "x", {}, 0, 0.0) for n in range(count)]

    assert [len(part) for part in batches(some(5))] == [1] * 5
    assert [len(part) for part in batches(some(6))] == [6]
    assert [len(part) for part in batches(some(250))] == [100, 100, 50]
