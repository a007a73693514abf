"""`rla-agent` as people call it: messages and exit codes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.lone import LoneStream

from rla_agent.service.log_tail import follow_log, last_lines
from rla_agent.service.stop_agent import stop_agent
from rla_client import __version__
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places

FAULTY = "AGENT:\n  commit_interval_s: soon\n  colour: red\nLOG_USED: [paper]\n"


def cli(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rla_agent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)


@pytest.fixture
def ended(places: Places) -> Iterator[Places]:
    yield places
    if agent_alive(places):
        stop_agent(places)


@pytest.mark.slow
def test_life(ended: Places) -> None:
    absent = cli("status")
    assert (absent.returncode, "start one: rla-agent start --detach" in absent.stderr) == (3, True)
    stopped = cli("stop")
    assert (stopped.returncode, "no agent was running" in stopped.stderr) == (3, True)
    assert ended.stopped_marker.exists()
    started = cli("start", "--detach")
    assert (started.returncode, "agent started: pid " in started.stdout) == (0, True)
    assert not ended.stopped_marker.exists()
    again = cli("start", "--detach")
    assert (again.returncode, "is already running" in again.stdout) == (0, True)
    second = cli("start")
    assert (second.returncode, "already serves" in second.stderr) == (3, True)
    first_pid = json.loads(cli("status", "--json").stdout)["agent"]["pid"]
    assert f"pid {first_pid}" in second.stderr, "the holder is named"
    assert cli("restart").returncode == 0
    status = json.loads(cli("status", "--json").stdout)
    assert status["agent"]["pid"] != first_pid
    assert f"pid {status['agent']['pid']}" in cli("status").stdout
    stopped = cli("stop")
    assert (stopped.returncode, "until: rla-agent start" in stopped.stdout) == (0, True)
    left = [one for one in (ended.control_socket, ended.data_socket) if os.path.lexists(one)]
    assert not left, "sockets that nobody serves"


def test_its_version() -> None:
    done = cli("--version")
    assert (done.returncode, done.stdout) == (0, f"rla-agent {__version__}\n")


def test_status_json_without_an_agent(ended: Places) -> None:
    done = cli("status", "--json")
    assert done.returncode == 3
    status = json.loads(done.stdout)
    assert (status["agent"]["pid"], status["agent"]["state"]) == (None, "not running")
    assert status["problems"][0]["fix"] == "rla-agent start --detach"
    del ended


def test_status_without_an_agent_says_what_waits(places: Places, tmp_path: Path) -> None:
    assert "wait in" not in cli("status").stdout
    (tmp_path / "training").mkdir()
    lone = LoneStream(tmp_path / "training")
    lone.row({"a": 1})
    shutil.copytree(lone.writer.folder, places.spool / lone.writer.name)
    done = cli("status")
    assert done.returncode == 3
    assert "rows of 1 process(es) wait in" in done.stdout
    assert "→ rla-agent start --detach, or once: rla-agent drain" in done.stdout
    assert "not durable" not in done.stdout
    assert "no runs yet" not in done.stdout
    assert "no agent is running" in done.stderr
    told = json.loads(cli("status", "--json").stdout)
    assert [problem["fix"] for problem in told["problems"]] == [
        "rla-agent start --detach",
        "rla-agent start --detach, or once: rla-agent drain",
    ]
    assert told["problems"][1]["what"].endswith(f"{places.spool} until an agent runs")
    assert told["spool"]["bytes"] > 0


@pytest.mark.parametrize("command", [("start", "--detach"), ("start",), ("stop",), ("restart",), ("drain",)])
def test_a_state_folder_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "file" / "state"))
    done = cli(*command)
    assert done.returncode == 4, done
    assert str(tmp_path / "file" / "state") in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("start", "--config"),
        ("start", "-d", "--config"),
        ("restart", "--config"),
        ("drain", "--config"),
        ("check-config",),
    ],
)
def test_all_faults_of_a_config_at_once(ended: Places, tmp_path: Path, command: tuple[str, ...]) -> None:
    config = tmp_path / "rla_config.yaml"
    config.write_text(FAULTY)
    done = cli(*command, str(config))
    assert done.returncode == 5, done
    for place in ("line 2: AGENT.commit_interval_s", "line 3: AGENT.colour", "line 4: LOG_USED"):
        assert place in done.stderr
    assert not agent_alive(ended)


def test_a_config_without_faults(tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text("LOG_USED: [csv]\n")
    done = cli("check-config", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])})
    assert (done.returncode, done.stdout) == (0, "rla_config.yaml: no faults\n")
    assert cli("check-config", str(tmp_path / "missing.yaml")).returncode == 5


@pytest.mark.slow
def test_wrong_usage() -> None:
    assert cli("no-such-command").returncode == 2
    assert cli("install-service", "--user", "--system").returncode == 2
    done = cli("install-service", "--data-root", "/srv")
    assert (done.returncode, "--system" in done.stderr) == (2, True)


@pytest.mark.slow
def test_logs(agent: Any) -> None:
    done = cli("logs", "-n", "1")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert "serving" in cli("logs").stdout
    del agent


def test_no_logs_yet(ended: Places) -> None:
    done = cli("logs")
    assert (done.returncode, str(ended.log) in done.stderr) == (3, True)


def test_the_log_is_followed_across_rotation(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_text("old\n")
    lines = follow_log(log)
    with log.open("a") as file:
        file.write("a\nb")
    assert next(lines) == "a"
    with log.open("a") as file:
        file.write("c\n")
    assert next(lines) == "bc"
    log.rename(tmp_path / "agent.log.1")
    log.write_text("fresh\n")
    assert next(lines) == "fresh"
    assert last_lines(log, 2) == ["bc", "fresh"]
    lines.close()  # type: ignore[attr-defined]


def test_a_log_that_comes_later_is_followed(tmp_path: Path) -> None:
    lines = follow_log(tmp_path / "agent.log")
    (tmp_path / "agent.log").write_text("first\n")
    assert next(lines) == "first"
    lines.close()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_watch_shows_the_status_anew(agent: Any) -> None:
    command = [sys.executable, "-m", "rla_agent", "status", "--watch"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    heads = (line for line in process.stdout if f"pid {agent.pid}" in line)
    assert next(heads)
    assert next(heads)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    process.stdout.close()
