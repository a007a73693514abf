"""Alerts of a real agent: a training process does something, a message arrives, once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alert_receivers import HookServer, SmtpServer, free_port, make_certificate, server_context, serving

from rla_agent.alerts.desk import GIVE_UP_S, RETRY_FIRST_S, RETRY_MOST_S, batches, retry_delay
from rla_agent.alerts.store import Delivery
from rla_client.places import Places

PASSWORD = "hunter2-secret"
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
        print("flushed", logger.flush(20), flush=True)
        continue
    time_step_holder.set_time(number)
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
        self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def train(tmp_path: Path, places: Places) -> Iterator[Callable[[Path], Training]]:
    made: list[Training] = []

    def start(config: Path) -> Training:
        made.append(Training(config, tmp_path / "data"))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdin, one.process.stdout, one.process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with serving(HookServer()) as server:
        yield server


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


# -- runs ---------------------------------------------------------------------------------------


def test_a_killed_run_by_mail(
    new_agent: Callable[..., Any],
    train: Callable[[Path], Training],
    tmp_path: Path,
    wait_until: Callable[..., Any],
) -> None:
    """SIGKILL of the training process; the mail goes over TLS with a login, the password nowhere else."""
    pair = make_certificate(tmp_path)
    project = tmp_path / "project"
    with serving(SmtpServer(server_context(pair), password=PASSWORD)) as smtp:
        channel = f"""
            mail: {{kind: email, to: [me@example.org], sender: rla@example.org, server: localhost,
                   port: {smtp.port}, username: me, credentials_file: ../secret, ca_file: ../cert.pem}}"""
        config = write_config(project, "- {when: [killed, failed], send: mail}", channel)
        (tmp_path / "secret").write_text(PASSWORD)
        (tmp_path / "secret").chmod(0o600)
        agent = new_agent().start()
        training = train(config)
        training.say(2.0)
        training.kill()
        wait_until(lambda: smtp.mails)
        (message,) = smtp.mails
        assert message["Subject"].startswith("[rla] killed: table ")
        assert message["Subject"].endswith("&seed=3")
        assert "the process ended without closing the run" in message.get_content()
        assert str(tmp_path / "data") in message.get_content().replace("=\n", "")
        wait_until(lambda: sent(agent) == 1)
        assert agent.stop() == 0
        assert len(smtp.mails) == 1
    for path in agent.places.state.rglob("*"):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path
    assert PASSWORD not in agent.log.read_text()


def test_each_end_of_a_run(
    new_agent: Callable[..., Any],
    train: Callable[[Path], Training],
    tmp_path: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:
    config = hooked(tmp_path / "p", "- {when: [failed, finished, stalled], send: chat}", hook.url)
    new_agent("--config", str(config)).start()
    (tmp_path / "other-name").symlink_to(tmp_path / "p")
    failing, finishing = train(config), train(tmp_path / "other-name" / config.name)
    wait_until(lambda: events(hook).count("stalled") == 2, what="stalled")
    failing.say("raise")
    finishing.end()
    wait_until(lambda: sorted(events(hook)) == ["failed", "finished", "stalled", "stalled"], what="ends")
    told = next(a for body in hook.bodies for a in body["alerts"] if a["event"] == "failed")
    assert "it went wrong" in told["text"]
    assert told["run"]["state"] == "failed"
    assert json.loads((Path(told["run"]["log_folder"]) / "run.json").read_text())["state"] == "failed"


def test_the_agents_own_rules_hold_for_all_runs_of_their_tables(
    new_agent: Callable[..., Any], train: Callable[[Path], Training], tmp_path: Path, hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:  # fmt: skip
    rules = "- {when: killed, send: chat, table: 'ta*'}\n- {when: failed, send: chat, table: other}"
    own = hooked(tmp_path / "own", rules, hook.url)
    plain = tmp_path / "plain.yaml"
    plain.write_text("LOG_USED: [csv]\n")
    new_agent("--config", str(own)).start()
    killed, failed = train(plain), train(plain)
    failed.say("raise")
    failed.process.wait()
    killed.kill()
    wait_until(lambda: events(hook) == ["killed"])


# -- metrics ------------------------------------------------------------------------------------


def test_metrics(
    agent: Any,
    train: Callable[[Path], Training],
    tmp_path: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:
    rules = """
        - {when: nan, send: chat, once: true}
        - {when: above, metric: a, value: 10, rows: 3, send: chat, interval_s: 0}
        - {when: below, metric: "b*", value: 0, send: chat}
    """
    training = train(hooked(tmp_path / "p", rules, hook.url))
    training.say(11, 11, 1, 11, 11)
    training.say("flush")
    training.say(11, 11, "nan", 11, "nan", -5)
    wait_until(lambda: len(events(hook)) == 2)
    by_event = {alert["event"]: alert for body in hook.bodies for alert in body["alerts"]}
    assert by_event["above"]["time_step"] == 7, "the third row in a row"
    assert by_event["above"]["metrics"] == {"a": 11.0}
    assert by_event["nan"]["metrics"] == {"a": "nan"}
    training.say(1, 11, 11, 11)
    wait_until(lambda: events(hook).count("above") == 2, what="it comes to that again")
    assert events(hook).count("nan") == 1
    del agent


def test_rules_that_change_while_the_run_goes_on(
    agent: Any,
    train: Callable[[Path], Training],
    tmp_path: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:
    config = hooked(tmp_path / "p", "- {when: above, metric: a, value: 100, send: chat}", hook.url)
    training = train(config)
    training.say(50)
    hooked(tmp_path / "p", "- {when: above, metric: a, value: 10, send: chat}", hook.url)
    wait_until(lambda: training.say(50) or events(hook) == ["above"], 30, what="the new rule")
    config.write_text("AGENT: {alerts: {rules: 7}}\n")
    wait_until(
        lambda: any("must be a list" in p["what"] for p in agent.status()["problems"]), 30, what="the fault"
    )


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


# -- the machine --------------------------------------------------------------------------------


def test_a_disk_that_is_low(
    new_agent: Callable[..., Any],
    tmp_path: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
    places: Places,
) -> None:
    """Once, although it stays low and the agent is restarted."""
    config = hooked(tmp_path / "p", f"- {{when: disk_low, free_bytes: {1 << 60}, send: chat}}", hook.url)
    agent = new_agent("--config", str(config)).start()
    wait_until(lambda: events(hook) == ["disk_low"])
    assert hook.bodies[0]["alerts"][0]["subject"] == str(places.state)
    wait_until(lambda: sent(agent) == 1)
    agent.restart()
    wait_until(lambda: agent.status()["alerts"]["rules"] == 1)
    assert agent.stop() == 0
    assert events(hook) == ["disk_low"]


def test_replication_that_is_parked(
    new_agent: Callable[..., Any], train: Callable[[Path], Training], tmp_path: Path, hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:  # fmt: skip
    """The master's folder is not there: replication stops and says so."""
    project = tmp_path / "p"
    config = hooked(project, "- {when: replication_parked, send: chat}", hook.url)
    remote = (
        f"REMOTE_SETTING: {{file_transfer_protocol: folder, remote_data_root: {tmp_path / 'gone' / 'x'}}}\n"
    )
    config.write_text("SEND_LOG_FILE: true\n" + remote + config.read_text())
    agent = new_agent().start()
    train(config).say(1.0)
    wait_until(lambda: events(hook) == ["replication_parked"], 60)
    agent.stop()
    assert str(tmp_path / "gone") in hook.bodies[0]["text"]


# -- none of it where none of it is wanted ------------------------------------------------------


def test_without_rules_there_is_nothing(
    agent: Any, train: Callable[[Path], Training], tmp_path: Path
) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text("LOG_USED: [csv]\n")
    training = train(config)
    training.say("nan", "flush")
    assert not (agent.places.state / "alerts.db").exists()
    assert agent.status()["alerts"] == {"rules": 0, "waiting": 0, "channels": [], "recent": []}
    names = {path.read_text().strip() for path in Path(f"/proc/{agent.pid}/task").glob("*/comm")}
    assert "alerts" not in names
    with closing(sqlite3.connect(agent.places.database)) as database:
        assert database.execute("SELECT count(*) FROM firings").fetchone() == (0,)


def test_a_command_of_a_file_that_others_can_write_is_not_run(
    agent: Any, train: Callable[[Path], Training], tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    config = write_config(
        tmp_path / "p",
        "- {when: nan, send: run}",
        f"run: {{kind: command, command: [touch, {tmp_path}/ran]}}",
    )
    config.chmod(0o666)
    training = train(config)
    training.say("nan")
    wait_until(lambda: any("can be written by others" in p["what"] for p in agent.status()["problems"]))
    assert not (tmp_path / "ran").exists()
    config.chmod(0o644)
    os.utime(config)
    wait_until((tmp_path / "ran").exists, 40)


# -- the commands -------------------------------------------------------------------------------


def cli(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rla_agent", "alerts", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)


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


def test_show_tells_what_was_sent(
    agent: Any,
    train: Callable[[Path], Training],
    tmp_path: Path,
    hook: HookServer,
    wait_until: Callable[..., Any],
) -> None:
    config = hooked(tmp_path / "p", "- {when: nan, metric: 'a*', send: chat}", hook.url)
    train(config).say("nan")
    wait_until(lambda: sent(agent) == 1)
    shown = cli("show", "--config", str(config)).stdout
    assert "NaN in a* → chat" in shown
    assert "channel chat: 1 sent, 0 wait" in shown
    assert "NaN in a: table" in shown
    assert json.loads(cli("show", "--json").stdout)["recent"][0]["event"] == "nan"


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
