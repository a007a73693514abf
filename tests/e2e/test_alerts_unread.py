"""Alerts and replication of runs whose configuration cannot be read, as a real agent does it."""

from __future__ import annotations

import pytest
from support.alert_receivers import Scene, Training, events, hooked
from support.hung_folder import hung, needs_hung_folder
from support.spooled import stop_autostart

from rla_agent.replicate.registry import entries
from rla_client.contract.agent.places import Places


def flushed(training: Training) -> bool:
    """Whether all its rows became durable."""
    assert training.process.stdin is not None
    training.process.stdin.write("flush\n")
    training.process.stdin.flush()
    return training.hear("flushed").split() == ["flushed", "True"]


def take_rules_up(training: Training, row: float | str = 1.0) -> None:
    """The volume thread does it with a commit: what comes after that of the first of two rows meets them."""
    for _ in range(2):
        training.say(row)
        assert flushed(training)


@pytest.mark.further
@pytest.mark.slow
@needs_hung_folder
def test_rows_do_not_wait_for_a_home_that_hangs(scene: Scene, places: Places) -> None:
    """All rows become durable; its alerts and its replication begin when the configuration can be read."""
    near = hooked(scene.folder / "near", "- {when: failed, send: chat}", scene.hook.url)
    own = hooked(scene.folder / "own", "- {when: killed, send: chat}", scene.hook.url)
    far = scene.configure("- {when: killed, send: chat}\n- {when: nan, send: chat}")
    far.write_text("SEND_LOG_FILE: true\n" + far.read_text())
    stop_autostart(places)
    lives, dies, other = scene.train(far), scene.train(far), scene.train(near)
    with hung(far.parent) as server:
        agent = scene.new_agent("--config", str(own)).start()
        for training in (lives, dies, other):
            training.say(1.0)
            assert flushed(training)
        dies.kill()
        other.say("raise")
        scene.arrive("failed", "killed", what="alerts of the other run's configuration and the agent's own")
        (problem,) = [one for one in agent.status()["problems"] if str(far) in one["what"]]
        assert "does not answer" in problem["what"]
        assert entries(places.state) == []
        server.come_back()
        scene.arrive("failed", "killed", "killed", what="the alert that waited")
    take_rules_up(lives)
    lives.say("nan")
    scene.wait_until(lambda: "nan" in events(scene.hook), what="a metric's alert")
    scene.wait_until(lambda: [entry.config for entry in entries(places.state)] == [str(far)])
    assert not [one for one in agent.status()["problems"] if "cannot be read" in one["what"]]
    assert agent.stop() == 0


@pytest.mark.further
@pytest.mark.slow
@needs_hung_folder
def test_a_rule_that_has_told_does_not_tell_again_after_it(scene: Scene) -> None:
    """Where a rule stands is kept over agents that could not read it."""
    rules = "- {when: nan, send: chat, interval_s: 0}\n- {when: failed, send: chat}"
    agent = scene.new_agent().start()
    training = scene.train_with(rules)
    training.say("nan")
    scene.arrive("nan")
    assert flushed(training)
    assert agent.stop() == 0
    with hung(scene.project) as server:
        for last in (False, True):
            agent.start()
            training.say("nan")
            assert flushed(training)
            if not last:
                assert agent.stop() == 0
        server.come_back()
        scene.wait_until(lambda: agent.status()["alerts"]["rules"] == 2, what="the configuration")
    assert agent.status()["problems"] == []
    take_rules_up(training, "nan")
    training.say("raise")
    scene.arrive("failed", "nan")
    assert agent.stop() == 0
    assert sorted(events(scene.hook)) == ["failed", "nan"]
