"""Alerts of a real agent when something is in the way: none is lost, none comes twice."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from support.alert_receivers import HookServer, Scene, SmtpServer, events, sent, serving, write_config
from support.ports import free_port

from rla_client.contract.agent.places import Places


@pytest.mark.slow
def test_a_restart_neither_loses_nor_doubles(scene: Scene) -> None:
    """The server is down, the agent is killed again and again, even beside new events: each arrives once."""
    port = free_port()
    rules = "- {when: nan, send: chat, interval_s: 0}\n- {when: killed, send: chat}"
    agent = scene.new_agent().start()
    training = scene.train_with(rules, f"http://127.0.0.1:{port}/hook")
    for round_number in range(3):
        training.say("nan", 1.0)
        if round_number % 2:
            training.say("flush")  # durable, and perhaps noted
        agent.restart()
    training.kill()
    scene.wait_until(lambda: agent.status()["alerts"]["waiting"] == 4)
    agent.restart()
    scene.wait_until(lambda: agent.status()["alerts"]["waiting"] == 4, what="what waited before")
    with serving(HookServer(port)) as hook:
        scene.wait_until(lambda: len(events(hook)) == 4, 60, what="all alerts")
        scene.wait_until(lambda: sent(agent) == 4)
        agent.restart()
        agent.stop()
        assert sorted(events(hook)) == ["killed", "nan", "nan", "nan"]
        ids = [alert["id"] for body in hook.bodies for alert in body["alerts"]]
        assert len(set(ids)) == 4


@pytest.mark.slow
def test_failures_show_in_status_and_doctor_and_end(agent: Any, scene: Scene) -> None:
    scene.hook.answers += [(500, {}), (503, {})] * 20
    training = scene.train_with("- {when: nan, send: chat}", scene.hook.url + "/t0ken")
    training.say("nan")
    scene.wait_until(lambda: any("HTTP 50" in problem["what"] for problem in agent.status()["problems"]))
    (problem,) = [p for p in agent.status()["problems"] if "HTTP 50" in p["what"]]
    assert f"alerts test --config {scene.project / 'rla_config.yaml'}" in problem["fix"]
    assert "t0ken" not in problem["what"]
    doctor = agent.command("doctor", "--json")
    assert any(
        f["name"] == "agent-problem" and "HTTP" in f["what"] for f in json.loads(doctor.stdout)["findings"]
    )
    scene.wait_until(lambda: scene.hook.tries >= 2, 40)
    scene.hook.answers.clear()
    scene.wait_until(lambda: sent(agent) == 1, 60, what="the next try")
    assert len(scene.hook.posts) == 1
    assert not [p for p in agent.status()["problems"] if "HTTP" in p["what"]]


@pytest.mark.slow
def test_a_mail_server_that_hangs_holds_up_nothing(scene: Scene) -> None:
    """Neither rows nor flush nor status nor the other channel; stop waits a few seconds at most."""
    with serving(SmtpServer()) as smtp:
        smtp.hang.set()
        channels = f"""
            mail: {{kind: email, to: me@example.org, server: localhost, port: {smtp.port}, security: none,
                   timeout_s: 600}}
            chat: {{kind: slack, url: '{scene.hook.url}'}}"""
        config = write_config(scene.project, "- {when: nan, send: [mail, chat], interval_s: 0}", channels)
        agent = scene.new_agent().start()
        training = scene.train(config)
        training.say("nan")
        scene.wait_until(lambda: smtp.connections and len(scene.hook.posts) == 1)
        training.say(1.0, "nan", "flush")
        scene.wait_until(lambda: len(scene.hook.posts) == 2, what="the other channel")
        scene.wait_until(lambda: agent.status()["alerts"]["waiting"] == 2, what="a note that it was sent")
        assert agent.stop() == 0, "it does not wait for the server"
    training.kill()


@pytest.mark.slow
@pytest.mark.parametrize("lost", [pytest.param("nothing", marks=pytest.mark.further), "agent.db"])
def test_a_mail_goes_out_once_though_the_agent_is_killed_and_replays(
    scene: Scene, places: Places, lost: str
) -> None:
    """Rows that are taken in again fire their rules again; what was told is known in alerts.db."""
    rounds = 3
    with serving(SmtpServer()) as smtp:
        channels = (
            f"mail: {{kind: email, to: me@example.org, server: localhost, port: {smtp.port}, security: none}}"
        )
        rules = "- {when: nan, send: mail, interval_s: 0}\n- {when: killed, send: mail}"
        agent = scene.new_agent().start()
        training = scene.train(write_config(scene.project, rules, channels))
        for number in range(rounds):
            training.say("nan")
            scene.wait_until(lambda count=number + 1: len(smtp.mails) == count)
            scene.wait_until(lambda count=number + 1: sent(agent) == count, what="a note that it was sent")
            agent.kill()
            if lost == "agent.db":
                places.database.unlink()
            training.say(1.0)
            agent.start()
            training.say(1.0, "flush")
        agent.kill()
        training.kill()
        agent.start()
        scene.wait_until(lambda: len(smtp.mails) > rounds)
        scene.wait_until(lambda: not agent.status()["alerts"]["waiting"])
        subjects = [str(mail["Subject"]) for mail in smtp.mails]
    assert len(subjects) == rounds + 1, subjects
    assert sum("killed" in subject for subject in subjects) == 1, subjects


@pytest.mark.further
@pytest.mark.slow
def test_a_mass_of_alerts_is_one_message(scene: Scene) -> None:
    port = free_port()
    rules = "- {when: nan, send: chat, interval_s: 0}"
    agent = scene.new_agent().start()
    training = scene.train_with(rules, f"http://127.0.0.1:{port}/")
    for _ in range(12):
        training.say("nan", 1.0)
    scene.wait_until(lambda: agent.status()["alerts"]["waiting"] == 12)
    with serving(HookServer(port)) as hook:
        scene.wait_until(lambda: len(events(hook)) == 12, 60, what="all")
        assert len(hook.posts) == 1


@pytest.mark.further
@pytest.mark.slow
def test_what_comes_too_often_is_told_at_the_end_of_the_interval(agent: Any, scene: Scene) -> None:
    training = scene.train_with("- {when: nan, send: chat, interval_s: 8}")
    training.say("nan", 1, "nan", 1, "nan", 1, "nan")
    scene.wait_until(lambda: len(scene.hook.posts) == 2, what="the end of the interval")
    assert scene.hook.bodies[1]["alerts"][0]["held_back"] == 2
    assert "2 more like this" in scene.hook.bodies[1]["text"]
    scene.wait_until(lambda: agent.status()["alerts"]["waiting"] == 0)
    assert len(scene.hook.posts) == 2


@pytest.mark.slow
def test_a_stop_sends_what_has_just_happened(scene: Scene) -> None:
    """As in a batch job, where agent and job end together."""
    agent = scene.new_agent().start()
    training = scene.train_with("- {when: killed, send: chat}")
    os.kill(agent.pid, signal.SIGSTOP)
    training.kill()
    assert agent.stop() == 0
    if not events(scene.hook):  # the lock was not looked at before the end: the next agent tells
        agent.start()
        agent.stop()
    assert events(scene.hook) == ["killed"]


@pytest.mark.slow
def test_a_damaged_database_of_alerts_is_put_aside(scene: Scene, places: Places) -> None:
    (places.state / "alerts.db").write_bytes(b"no database" * 1000)
    scene.new_agent().start()
    scene.train_with("- {when: nan, send: chat}").say("nan")
    scene.arrive("nan")
    assert (places.state / "alerts.db.broken").exists()
