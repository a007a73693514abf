"""Alerts of a real agent: a training process does something, a message arrives, once."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.alert_receivers import (
    HookServer,
    Scene,
    SmtpServer,
    events,
    hooked,
    make_certificate,
    sent,
    server_context,
    serving,
    write_config,
)

from rla_client.contract.agent.places import Places

PASSWORD = "hunter2-secret"


@pytest.mark.slow
def test_a_killed_run_by_mail(scene: Scene) -> None:
    """SIGKILL of the training process; the mail goes over TLS with a login, the password nowhere else."""
    pair = make_certificate(scene.folder)
    project = scene.folder / "project"
    with serving(SmtpServer(server_context(pair), password=PASSWORD)) as smtp:
        channel = f"""
            mail: {{kind: email, to: [me@example.org], sender: rla@example.org, server: localhost,
                   port: {smtp.port}, username: me, credentials_file: ../secret, ca_file: ../cert.pem}}"""
        config = write_config(project, "- {when: [killed, failed], send: mail}", channel)
        (scene.folder / "secret").write_text(PASSWORD)
        (scene.folder / "secret").chmod(0o600)
        agent = scene.new_agent().start()
        training = scene.train(config)
        training.say(2.0)
        training.kill()
        scene.wait_until(lambda: smtp.mails)
        (message,) = smtp.mails
        assert message["Subject"].startswith("[rla] killed: table ")
        assert message["Subject"].endswith("&seed=3")
        # the first is of kernels that do not tell how a process ended
        words = ("the process ended without closing the run", "killed by SIGKILL")
        assert any(text in message.get_content() for text in words)
        assert str(scene.folder / "data") in message.get_content().replace("=\n", "")
        scene.wait_until(lambda: sent(agent) == 1)
        assert agent.stop() == 0
        assert len(smtp.mails) == 1
    for path in agent.places.state.rglob("*"):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path
    assert PASSWORD not in agent.log.read_text()


@pytest.mark.slow
def test_each_end_of_a_run(scene: Scene) -> None:
    config = scene.configure("- {when: [failed, finished, stalled], send: chat}")
    scene.new_agent("--config", str(config)).start()
    (scene.folder / "other-name").symlink_to(scene.project)
    failing, finishing = scene.train(config), scene.train(scene.folder / "other-name" / config.name)
    scene.wait_until(lambda: events(scene.hook).count("stalled") == 2, what="stalled")
    failing.say("raise")
    finishing.end()
    scene.arrive("failed", "finished", "stalled", "stalled", what="ends")
    told = next(a for body in scene.hook.bodies for a in body["alerts"] if a["event"] == "failed")
    assert "it went wrong" in told["text"]
    assert told["run"]["state"] == "failed"
    run_file = Path(told["run"]["log_folder"]) / "run.json"  # written right after agent.db, which is told of
    scene.wait_until(lambda: json.loads(run_file.read_text())["state"] == "failed", what="run.json")


@pytest.mark.slow
def test_the_agents_own_rules_hold_for_all_runs_of_their_tables(scene: Scene) -> None:
    rules = "- {when: killed, send: chat, table: 'ta*'}\n- {when: failed, send: chat, table: other}"
    own = hooked(scene.folder / "own", rules, scene.hook.url)
    plain = scene.folder / "plain.yaml"
    plain.write_text("LOG_USED: [csv]\n")
    scene.new_agent("--config", str(own)).start()
    killed, failed = scene.train(plain), scene.train(plain)
    failed.say("raise")
    failed.process.wait()
    killed.kill()
    scene.arrive("killed")


@pytest.mark.slow
def test_metrics(agent: Any, scene: Scene) -> None:
    rules = """
        - {when: nan, send: chat, once: true}
        - {when: above, metric: a, value: 10, rows: 3, send: chat, interval_s: 0}
        - {when: below, metric: "b*", value: 0, send: chat}
    """
    training = scene.train_with(rules)
    training.say(11, 11, 1, 11, 11)
    training.say("flush")
    training.say(11, 11, "nan", 11, "nan", -5)
    scene.wait_until(lambda: len(events(scene.hook)) == 2)
    by_event = {alert["event"]: alert for body in scene.hook.bodies for alert in body["alerts"]}
    assert by_event["above"]["time_step"] == 7, "the third row in a row"
    assert by_event["above"]["metrics"] == {"a": 11.0}
    assert by_event["nan"]["metrics"] == {"a": "nan"}
    training.say(1, 11, 11, 11)
    scene.wait_until(lambda: events(scene.hook).count("above") == 2, what="it comes to that again")
    assert events(scene.hook).count("nan") == 1
    del agent


@pytest.mark.slow
def test_what_a_script_asks_to_tell(agent: Any, scene: Scene) -> None:
    training = scene.train_with("- {when: message, send: chat, table: 'ta*', interval_s: 0}")
    training.say(1, "alert", 2, "alert")
    scene.arrive("message", "message")
    told = [alert for body in scene.hook.bodies for alert in body["alerts"]]
    assert sorted(alert["time_step"] for alert in told) == [2, 4]
    assert told[0]["title"].startswith("half way: table ")
    assert told[0]["text"].split("\n")[1] == "there now"
    assert told[0]["threshold"] is None
    del agent


@pytest.mark.further
@pytest.mark.slow
def test_rules_that_change_while_the_run_goes_on(agent: Any, scene: Scene) -> None:
    config = scene.configure("- {when: above, metric: a, value: 100, send: chat}")
    training = scene.train(config)
    training.say(50)
    scene.configure("- {when: above, metric: a, value: 10, send: chat}")

    def alerted() -> bool:
        training.say(50)
        return events(scene.hook) == ["above"]

    scene.wait_until(alerted, 30, what="the new rule")
    config.write_text("AGENT: {alerts: {rules: 7}}\n")
    scene.wait_until(
        lambda: any("must be a list" in p["what"] for p in agent.status()["problems"]), 30, what="the fault"
    )


@pytest.mark.slow
def test_the_first_rules_of_a_file_count_without_a_new_run(agent: Any, scene: Scene) -> None:
    training, other = (scene.train_with("") for _ in range(2))
    for one in (training, other):
        one.say(1.0)
    scene.wait_until(lambda: sorted(run["state"] for run in agent.status()["runs"]) == ["running"] * 2)
    scene.configure("- {when: killed, send: chat}")
    scene.wait_until(lambda: agent.status()["alerts"]["rules"] == 1, what="the rule")
    training.kill()
    scene.arrive("killed")


@pytest.mark.slow
def test_a_disk_that_is_low(scene: Scene, places: Places) -> None:
    """Once, although it stays low and the agent is restarted."""
    config = scene.configure(f"- {{when: disk_low, free_bytes: {1 << 60}, send: chat}}")
    agent = scene.new_agent("--config", str(config)).start()
    scene.arrive("disk_low")
    assert scene.hook.bodies[0]["alerts"][0]["subject"] == str(places.state)
    scene.wait_until(lambda: sent(agent) == 1)
    agent.restart()
    scene.wait_until(lambda: agent.status()["alerts"]["rules"] == 1)
    assert agent.stop() == 0
    assert events(scene.hook) == ["disk_low"]


@pytest.mark.further
@pytest.mark.slow
def test_replication_that_is_parked(scene: Scene) -> None:
    """The master's folder is not there: replication stops and says so."""
    config = scene.configure("- {when: replication_parked, send: chat}")
    gone = scene.folder / "gone"
    remote = f"REMOTE_SETTING: {{file_transfer_protocol: folder, remote_data_root: {gone}/x}}\n"
    config.write_text("SEND_LOG_FILE: true\n" + remote + config.read_text())
    agent = scene.new_agent().start()
    scene.train(config).say(1.0)
    scene.arrive("replication_parked", deadline_s=60)
    agent.stop()
    assert str(gone) in scene.hook.bodies[0]["text"]


@pytest.mark.slow
def test_without_rules_there_is_nothing(agent: Any, scene: Scene) -> None:
    config = scene.folder / "rla_config.yaml"
    config.write_text("LOG_USED: [csv]\n")
    training = scene.train(config)
    training.say("nan", "flush")
    assert not (agent.places.state / "alerts.db").exists()
    assert agent.status()["alerts"] == {"rules": 0, "waiting": 0, "channels": [], "recent": []}
    names = set()
    for path in Path(f"/proc/{agent.pid}/task").glob("*/comm"):
        with suppress(OSError):  # a thread that has ended since
            names.add(path.read_text().strip())
    assert names
    assert "alerts" not in names
    with closing(sqlite3.connect(agent.places.database)) as database:
        assert database.execute("SELECT count(*) FROM firings").fetchone() == (0,)


@pytest.mark.slow
def test_a_command_of_a_file_that_others_can_write_is_not_run(agent: Any, scene: Scene) -> None:
    config = write_config(
        scene.project,
        "- {when: nan, send: run}",
        f"run: {{kind: command, command: [touch, {scene.folder}/ran]}}",
    )
    config.chmod(0o666)
    training = scene.train(config)
    training.say("nan")
    scene.wait_until(lambda: any("can be written by others" in p["what"] for p in agent.status()["problems"]))
    assert not (scene.folder / "ran").exists()
    config.chmod(0o644)
    os.utime(config)
    scene.wait_until((scene.folder / "ran").exists, 40)


def cli(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rla_agent", "alerts", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)


@pytest.mark.slow
def test_the_test_message(tmp_path: Path, places: Places, hook: HookServer) -> None:
    folder = tmp_path / "p"
    channels = f"""
        chat: {{kind: discord, url: '{hook.url}'}}
        run: {{kind: command, command: [sh, -c, 'cat > told; exit 4']}}"""
    write_config(folder, "- {when: [failed, killed], send: [chat, run]}", channels)
    done = cli("test", cwd=folder)
    assert (done.returncode, done.stdout) == (
        1,
        "chat (discord): sent\nrun (command): command sh: exit code 4\n",
    )
    assert "test message" in hook.bodies[0]["content"]
    assert json.loads((folder / "told").read_text())["alerts"][0]["event"] == "test"
    assert cli("test", "--channel", "chat", cwd=folder).returncode == 0
    unknown = cli("test", "--channel", "chta", cwd=folder)
    assert (unknown.returncode, "there are: chat, run" in unknown.stderr) == (5, True)
    shown = cli("show", cwd=folder)
    assert "run failed or killed → chat, run" in shown.stdout
    assert "no agent is running" in shown.stdout
    nothing = cli("test", cwd=tmp_path)
    assert (nothing.returncode, "rla_config.yaml" in nothing.stderr) == (5, True)
    del places


@pytest.mark.slow
def test_show_tells_what_was_sent(agent: Any, scene: Scene) -> None:
    config = scene.configure("- {when: nan, metric: 'a*', send: chat}")
    scene.train(config).say("nan")
    scene.wait_until(lambda: sent(agent) == 1)
    shown = cli("show", "--config", str(config)).stdout
    assert "NaN in a* → chat" in shown
    assert "channel chat: 1 sent, 0 wait" in shown
    assert "NaN in a: table" in shown
    assert json.loads(cli("show", "--json").stdout)["recent"][0]["event"] == "nan"


@pytest.mark.slow
def test_a_secret_in_the_environment_reaches_an_agent_in_the_background(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the shell's variables only those that the configuration names are handed on."""
    config = write_config(
        tmp_path / "p", "- {when: nan, send: chat}", "chat: {kind: slack, url_env: MY_HOOK}"
    )
    monkeypatch.setenv("MY_HOOK", "http://127.0.0.1:9/")
    monkeypatch.setenv("OTHER", "secret")
    command = [sys.executable, "-m", "rla_agent"]
    subprocess.run([*command, "start", "--detach", "--config", str(config)], check=True, capture_output=True)
    try:
        pid = json.loads(places.lock.read_text())["pid"]
        seen = Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        subprocess.run([*command, "stop"], check=True, capture_output=True)
    assert b"MY_HOOK=" in seen
    assert b"OTHER=" not in seen
