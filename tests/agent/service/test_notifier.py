"""What the agent tells systemd, seen at the other end of a real notify socket."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rla_agent.service.notifier import Notifier
from rla_client.contract.agent.places import Places


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "notify"))
        found.settimeout(60)
        yield found


def told(manager: socket.socket, until: str) -> list[str]:
    lines: list[str] = []
    while until not in lines:
        lines += manager.recv(4096).decode().split("\n")
    return lines


def test_nothing_without_a_manager() -> None:
    notifier = Notifier({})
    assert not notifier.status_due(1e9)
    notifier.ready()
    notifier.beat(1.0)
    assert not notifier.status_due(1.0)


def test_variables_are_taken_and_beats_are_rationed(manager: socket.socket) -> None:
    environment = {
        "NOTIFY_SOCKET": manager.getsockname(),
        "WATCHDOG_USEC": "8000000",
        "WATCHDOG_PID": str(os.getpid()),
        "RLA_AGENT_SERVICE": "user",
        "PATH": "/bin",
    }
    notifier = Notifier(environment)
    assert environment == {"PATH": "/bin"}, "no child may take itself for the service"
    assert (notifier.kind, notifier.beat_s) == ("user", 2.0)
    for now in (0.0, 1.9, 2.0, 3.9, 4.1):
        notifier.beat(now)
    notifier.status("one\nREADY=1")
    notifier.stopping()
    assert told(manager, "STOPPING=1") == ["WATCHDOG=1"] * 3 + [
        "STATUS=one",
        "STOPPING=1",
        "STATUS=writing what remains",
    ]
    notifier.close()


def test_the_watchdog_of_another_process_is_not_ours(manager: socket.socket) -> None:
    notifier = Notifier(
        {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
    )
    assert notifier.beat_s == 0.0
    notifier.close()


@pytest.fixture
def served(places: Places, manager: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "NOTIFY_SOCKET": manager.getsockname(),
        "WATCHDOG_USEC": "400000",
        "RLA_AGENT_SERVICE": "user",
    }
    environment.pop("WATCHDOG_PID", None)
    assert environment["RLA_STATE_DIR"] == str(places.state)
    process = subprocess.Popen(
        [sys.executable, "-m", "rla_agent", "start"], env=environment, stderr=subprocess.DEVNULL
    )
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_real_agent_is_ready_beats_and_stops(
    served: subprocess.Popen[bytes], manager: socket.socket, places: Places
) -> None:
    told(manager, "READY=1")
    assert places.control_socket.exists(), "ready means: it answers"
    for _ in range(5):  # by itself: nobody sends it anything
        told(manager, "WATCHDOG=1")
    served.send_signal(signal.SIGSTOP)  # a loop that does not move feeds no watchdog
    manager.settimeout(1.0)
    with pytest.raises(TimeoutError):
        told(manager, "STOPPING=1")  # reads what was sent before, then nothing comes
    served.send_signal(signal.SIGCONT)
    manager.settimeout(60)
    told(manager, "WATCHDOG=1")
    served.terminate()
    told(manager, "STOPPING=1")
    assert served.wait(60) == 0


@pytest.mark.slow
def test_a_service_takes_over_from_an_autostarted_agent(
    agent: Any, manager: socket.socket, wait_until: Callable[..., Any]
) -> None:
    environment = {**os.environ, "NOTIFY_SOCKET": manager.getsockname(), "RLA_AGENT_SERVICE": "user"}
    process = subprocess.Popen(
        [sys.executable, "-m", "rla_agent", "start"], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        told(manager, "READY=1")
        wait_until(lambda: not agent.alive)
        status = agent.status()["agent"]
        assert (status["pid"], status["service"]) == (process.pid, "user")
        second = subprocess.run(
            [sys.executable, "-m", "rla_agent", "start"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert second.returncode == 3, "a service never ends another service"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_slow_disk_does_not_stop_the_watchdog(
    served: subprocess.Popen[bytes], manager: socket.socket, tmp_path: Path
) -> None:
    told(manager, "READY=1")
    delay = "inject=fsync,fdatasync:delay_enter=1500000"
    tracer = subprocess.Popen(
        [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=fsync,fdatasync",
            "-e",
            delay,
            "-p",
            str(served.pid),
        ]
    )
    script = f"from rla_client import logger; logger.configure({str(tmp_path / 'log')!r}, ['csv'])\n"
    script += "for n in range(1000): logger.record_tabular('n', n); logger.dump_tabular()\n"
    script += "print(logger.flush(1.0), logger.flush(50.0))"
    try:
        client = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        gaps = []
        while client.poll() is None:
            began = time.monotonic()
            told(manager, "WATCHDOG=1")
            gaps.append(time.monotonic() - began)
        assert client.communicate()[0] == "False True\n", "the disk was slow, and then it was durable"
        assert max(gaps) < 1.0, "shorter than one fsync"
    finally:
        tracer.terminate()
        tracer.wait()
