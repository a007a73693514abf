"""Findings about the running agent: damage made, finding seen, fix applied, finding gone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import TIME_FACTOR

from rla_agent.model.problem import Finding
from rla_client.contract.agent.places import Places


@pytest.mark.slow
def test_problems_of_the_agent(
    agent: Any, look: Callable[..., dict[str, Finding]], wait_until: Callable[..., Any]
) -> None:
    stream = agent.places.spool / "0123456789abcdef-1-00000000"
    stream.mkdir()
    (stream / "000001.seg").write_bytes(b"junk" * 25)
    wait_until(lambda: {"agent-problem", "spool-damaged"} <= set(look()), what="both findings")
    shutil.rmtree(stream)


def test_problems_of_replication(look: Callable[..., dict[str, Finding]]) -> None:
    found = look(replication=({"what": "held up: refused", "fix": "is it up?"},))["replication-problem"]
    assert (found.level, found.what, found.fix) == ("warning", "held up: refused", "is it up?")
    assert look() == {}  # with a master that is down: tests/agent/replicate/worker/test_outage_log.py


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root to mount")
def test_no_folder_for_sockets_at_all(places: Places, training_script: str) -> None:
    """The agent takes rows in by looking at the spool, and doctor says what does not work."""
    folder = Path(tempfile.mkdtemp(prefix="rla-", dir="/run"))
    deep = folder / ("s" * 100)
    (folder / "train.py").write_text(training_script)
    (folder / "data").mkdir()
    script = f"""
for shared in /tmp /var/tmp /dev/shm; do
    mount --bind $shared $shared && mount -o remount,ro,bind $shared || exit 1
done
export RLA_STATE_DIR={deep} RLA_RUNTIME_DIR=/tmp/nowhere TMPDIR={folder}
cd {folder}
{sys.executable} -m rla_agent.daemon --background & agent=$!
while [ ! -s {deep}/agent.lock ]; do sleep 0.05; done
echo | {sys.executable} train.py data >out 2>&1
while ! grep -qs 1 data/log/table/*/*/*/*/progress.csv; do sleep 0.05; done
{sys.executable} -m rla_agent doctor --json >doctor
kill $agent; wait $agent
"""
    try:
        command = ["timeout", str(60 * TIME_FACTOR), "unshare", "-m", "sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = json.loads((folder / "doctor").read_text())["findings"] if done.returncode == 0 else []
        assert "socket-nowhere" in {finding["name"] for finding in found}, done
        assert "Read-only file system" in (deep / "agent.log").read_text()
    finally:
        shutil.rmtree(folder)


def test_socket_path_too_long(
    look: Callable[..., dict[str, Finding]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RLA_RUNTIME_DIR", str(tmp_path / ("x" * 110)))
    assert "RLA_RUNTIME_DIR" in look()["socket-path"].fix
    monkeypatch.setenv("RLA_RUNTIME_DIR", "/tmp/rla-short")
    assert "socket-path" not in look()


@pytest.mark.slow
def test_socket_deleted_under_a_living_agent(
    agent: Any, look: Callable[..., dict[str, Finding]], wait_until: Callable[..., Any]
) -> None:
    """A living agent binds it again; one that does not is named."""
    assert look() == {}
    agent.send_signal(signal.SIGSTOP)
    agent.places.control_socket.unlink()
    assert look()["socket-missing"].fix == "rla-agent restart"
    agent.send_signal(signal.SIGCONT)
    wait_until(lambda: look() == {})


@pytest.mark.slow
def test_agent_that_hangs(agent: Any, look: Callable[..., dict[str, Finding]]) -> None:
    agent.send_signal(signal.SIGSTOP)
    found = look()["agent-silent"]
    assert f"kill -9 {agent.pid}" in found.fix
    agent.restart()
    assert look() == {}


def test_stopped_and_waiting(
    places: Places,
    look: Callable[..., dict[str, Finding]],
    client: Callable[[], subprocess.Popen[str]],
    new_agent: Any,
    wait_until: Callable[..., Any],
) -> None:
    places.stopped_marker.touch()
    process = client()
    assert set(look()) == {"stopped"}, "a living stream waits for nobody"
    process.communicate("\n")
    assert set(look()) == {"stopped", "spool-waiting"}
    new_agent().start()
    wait_until(lambda: look() == {}, what="no finding left")
