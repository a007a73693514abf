"""A master that goes away and comes back: said once each, where `rla-agent logs` and `doctor` show it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from support.replication_lab import Node, Sshd, same_trees
from support.waiting import wait_until

from rla_agent.model.problem import Finding
from rla_agent.replicate.problems import attention
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.status_text import headline, shown_target
from rla_agent.replicate.worker.outage_log import QUIET_S, Outage
from rla_agent.replicate.worker.retry_backoff import Health

DOWN = Health(tries=1, reason="Connection refused", fix="is the master up?")


@pytest.mark.slow
def test_the_agents_log_tells_of_an_outage_once_and_of_its_end(master: Sshd, node: Node) -> None:
    def lines() -> list[str]:
        path = node.state / "agent.log"
        return path.read_text().splitlines() if path.exists() else []

    def tries() -> int:
        targets = replication_status(node.state)["targets"]
        return int(targets[0].get("tries", 0)) if targets else 0

    master.stop()
    node.run()
    node.start()
    wait_until(lambda: tries() >= 2, 60)
    (line,) = lines()
    assert "WARNING" in line
    assert "is held up" in line
    assert "Connection refused" in line
    (node.state / "agent.log").rename(node.state / "agent.log.1")  # as the agent does with a long one
    master.start()
    wait_until(lambda: same_trees(node, master.root), 60)
    wait_until(lines, 20)
    assert [line.partition(": ")[2] for line in lines()] == [
        f"replication to sftp://{node.remote['username']}@127.0.0.1:{master.port}{master.root} continues"
    ]


def test_a_link_that_comes_and_goes_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("sftp://a@b//c")
    with caplog.at_level(logging.INFO):
        for second in range(50):
            outage.look(DOWN, 100.0 + second, came_through=False)
            outage.look(Health(), 100.5 + second, came_through=True)
        assert len(caplog.messages) == 2
        outage.look(DOWN, 200.0 + QUIET_S, came_through=False)
        outage.look(Health(), 201.0 + QUIET_S, came_through=False)  # somebody asked for another try
        outage.look(DOWN, 202.0 + QUIET_S, came_through=False)
        assert len(caplog.messages) == 3


def test_another_fault_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("sftp://a@b//c")
    foreign = Health(tries=1, reason="the host key has changed", fix="ask", blocked=True)
    outage.look(foreign, 1.0, came_through=False)
    for second in range(10):  # they take turns
        outage.look(DOWN, 2.0 + second, came_through=False)
        outage.look(foreign, 2.5 + second, came_through=False)
    assert [("has changed" in line) for line in caplog.messages] == [True, False]


@pytest.mark.slow
def test_doctor_reports_it(
    master: Sshd, node: Node, monkeypatch: pytest.MonkeyPatch, look: Callable[..., dict[str, Finding]]
) -> None:
    master.stop()
    node.run()
    node.start()
    wait_until(lambda: attention(replication_status(node.state)), 20)
    monkeypatch.setenv("RLA_STATE_DIR", str(node.state))
    assert "Connection refused" in look()["replication-problem"].what
    node.stop()


def test_a_targets_name_for_people() -> None:
    assert shown_target("sftp://a@h:22722//tmp/m") == "sftp://a@h:22722/tmp/m"
    assert shown_target("sftp://a@h/data") == "sftp://a@h/~/data"
    assert shown_target("folder:/mnt/m") == "folder:/mnt/m"
    target = {"target": "sftp://a@h:22722//tmp/m", "backlog": {}, "reason": "gone", "health": "retrying"}
    status = {"targets": [target], "running": True, "paused": False, "parked": []}
    assert headline(status) == ["sftp://a@h:22722/tmp/m: retrying; 0 file(s), 0 B waiting"]
    assert attention(status)[0]["what"] == "replication to sftp://a@h:22722/tmp/m is held up: gone"
