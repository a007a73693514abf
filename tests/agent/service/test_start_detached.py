"""Starting and finding agents: by hand, and by clients that need one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.waiting import wait_until

from rla_agent.service.control_client import ask_status
from rla_agent.service.lock_holder import read_holder
from rla_agent.service.start_detached import start_detached
from rla_agent.service.stop_agent import stop_agent
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.agent_start import start_agent
from rla_client.contract.agent.places import Places
from rla_client.contract.agent.systemd_unit import Unit, installed_unit
from rla_client.contract.errors import RlaError

CLIENT = """
import sys
from rla_client import exp_manager, logger
config = sys.argv[2] if sys.argv[2:] else {"LOG_USED": ["csv"]}
exp_manager.configure("table", rla_config=config, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
logger.record_tabular("a", 1)
logger.dump_tabular()
print("durable:", logger.flush(60), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def ended(places: Places) -> Iterator[Places]:
    """Folders whose agent, if there is one, is stopped in the end."""
    yield places
    if agent_alive(places):
        stop_agent(places)


def process_of(places: Places) -> psutil.Process:
    return psutil.Process(read_holder(places)["pid"])


def test_start_detached_is_ready_on_return_and_happens_once(ended: Places) -> None:
    assert start_detached(ended, None) is True
    pid = ask_status(ended)["agent"]["pid"]
    assert start_detached(ended, None) is False
    assert ask_status(ended)["agent"]["pid"] == pid


def test_the_background_agent_is_on_its_own(ended: Places, tmp_path: Path) -> None:
    """No inherited descriptor, own session, folder /, nothing of the job's environment."""
    (tmp_path / "held").write_text("")
    held = os.open(tmp_path / "held", os.O_RDONLY)
    os.set_inheritable(held, True)
    os.environ["RLA_TEST_SECRET"] = "x"
    try:
        assert start_agent(ended)
        wait_until(lambda: agent_alive(ended) and "pid" in read_holder(ended))
        process = process_of(ended)
        paths = {file.path for file in process.open_files()}
        assert str(tmp_path / "held") not in paths
        assert "RLA_TEST_SECRET" not in process.environ()
        assert process.cwd() == "/"
        assert os.getsid(process.pid) != os.getsid(0)
        assert process.terminal() is None
        assert process.ppid() != os.getpid()
        for number in (0, 1, 2):
            assert os.readlink(f"/proc/{process.pid}/fd/{number}") == "/dev/null"
    finally:
        os.close(held)
        del os.environ["RLA_TEST_SECRET"]


def clients(root: Path, count: int, *config: Path) -> list[subprocess.Popen[str]]:
    root.mkdir(exist_ok=True)
    command = [sys.executable, "-c", CLIENT, str(root), *map(str, config)]
    return [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]


@pytest.mark.slow
def test_many_clients_at_once_give_one_agent(ended: Places, tmp_path: Path) -> None:
    started = clients(tmp_path / "data", 6)
    outputs = [client.communicate("\n", timeout=60)[0] for client in started]
    assert all("True" in output for output in outputs), outputs

    def agents() -> list[int]:
        return [process.pid for process in psutil.process_iter() if _serves(process, ended)]

    # one that came too late for the lock may still be on its way out
    wait_until(lambda: agents() == [read_holder(ended)["pid"]], what=lambda: f"one agent of {agents()}")


def _serves(process: psutil.Process, places: Places) -> bool:
    try:
        ours = process.environ().get("RLA_STATE_DIR") == str(places.state)
        return ours and "rla_agent.daemon" in process.cmdline()
    except psutil.Error:
        return False


def test_a_stopped_agent_stays_stopped_until_start(ended: Places, tmp_path: Path) -> None:
    ended.stopped_marker.touch()
    (client,) = clients(tmp_path / "data", 1)
    output, errors = client.communicate("\n", timeout=60)
    assert "False" in output
    assert "rla-agent start --detach" in errors
    assert not agent_alive(ended)
    assert not start_agent(ended)


@pytest.mark.slow
def test_an_idle_agent_ends_and_misses_nobody(
    ended: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "rla-agent" / "agent.yaml"
    config.parent.mkdir()
    config.write_text("LOG_USED: [csv]\nAGENT:\n  idle_exit_s: 1\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert start_agent(ended)
    wait_until(lambda: agent_alive(ended))
    (client,) = clients(tmp_path / "data", 1, config)  # which starts another one, where this one has ended
    assert client.stdout is not None
    assert "durable: True\n" in client.stdout
    pid = read_holder(ended)["pid"]
    time_of_idleness = time.monotonic() + 4.0
    wait_until(lambda: time.monotonic() > time_of_idleness or not agent_alive(ended))
    assert agent_alive(ended), "an open stream is work"
    client.communicate("\n", timeout=60)
    wait_until(lambda: not agent_alive(ended))
    wait_until(lambda: not psutil.pid_exists(pid))
    assert list(ended.spool.iterdir()) == []


@pytest.mark.slow
def test_a_project_sets_its_runs_and_not_the_machine(
    ended: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project that happens to start the agent is told where to say the rest, and status shows it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing"))
    config = tmp_path / "rla_config.yaml"
    config.write_text(
        "LOG_USED: [csv]\n"
        "AGENT: {stall_s: 1, sample_interval_s: 0.1, commit_interval_s: 0.7, idle_exit_s: 9}\n"
    )
    (client,) = clients(tmp_path / "data", 1, config)
    wait_until(lambda: agent_alive(ended) and "pid" in read_holder(ended))
    wait_until(lambda: [run["state"] for run in ask_status(ended)["runs"]] == ["stalled"])
    status = ask_status(ended)
    wait_until(lambda: Path(status["runs"][0]["log_folder"], "system.csv").exists())
    assert status["settings"]["commit_interval_s"] == {"value": 0.5, "source": "default"}
    assert status["settings"]["stall_s"] == {"value": 1800.0, "source": "default"}
    (other,) = clients(tmp_path / "data", 1)
    for process in (other, client):
        errors = process.communicate("\n", timeout=60)[1]
        assert errors.count("AGENT.commit_interval_s, AGENT.idle_exit_s of") == int(process is client), errors
    assert f"of {config} " in errors
    assert f"{tmp_path / 'nothing' / 'rla-agent' / 'agent.yaml'}," in errors
    shown = subprocess.run(
        [sys.executable, "-m", "rla_agent", "status"], capture_output=True, text=True, check=False
    )
    assert "stall_s 1800" in shown.stdout


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(agent: Any, tmp_path: Path) -> None:
    (client,) = clients(tmp_path / "data", 1)
    assert client.stdout is not None
    client.stdout.readline()
    client.send_signal(signal.SIGSTOP)  # else it may start the next agent
    process = psutil.Process(agent.pid)
    agent.send_signal(signal.SIGSTOP)  # both signals arrive in one go
    agent.send_signal(signal.SIGTERM)
    agent.send_signal(signal.SIGINT)
    agent.send_signal(signal.SIGCONT)
    assert process.wait(60) in {128 + signal.SIGTERM, 128 + signal.SIGINT}
    client.kill()
    client.communicate()


def test_a_failing_start_says_why(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "rla_agent.service.start_detached.START_TIMEOUT_S", 3600.0
    )  # an end is noticed, not waited out
    places.database.mkdir()  # no database can be opened there
    with pytest.raises(RlaError, match=r"agent\.log says:\n(.|\n)*unable to open database file"):
        start_detached(places, None)


def test_a_start_says_that_its_log_cannot_be_written(places: Places) -> None:
    """A folder has its name: the reason went into nothing."""
    places.create()
    places.log.mkdir()
    with pytest.raises(RlaError, match=r"cannot write its log \S+agent\.log: Is a directory"):
        start_detached(places, None)


def test_clients_of_other_environments_find_the_sockets(
    agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch job sees another XDG_RUNTIME_DIR than the service; the lock file says where it listens."""
    monkeypatch.setenv("RLA_RUNTIME_DIR", str(tmp_path / "elsewhere"))
    assert ask_status(agent.places)["agent"]["pid"] == agent.pid
    (client,) = clients(tmp_path / "data", 1)
    assert "True" in client.communicate("\n", timeout=60)[0]


def test_units_serve_the_default_places_only(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemd/user").mkdir(parents=True)
    (tmp_path / "systemd/user/rla-agent.service").write_text("")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert installed_unit() is None, "RLA_STATE_DIR is set"
    monkeypatch.delenv("RLA_STATE_DIR")
    unit = installed_unit()
    assert unit == Unit("rla-agent.service", system=False)
    assert unit.command("--no-block", "start") == [
        "systemctl",
        "--user",
        "--no-block",
        "start",
        "rla-agent.service",
    ]
    del places
