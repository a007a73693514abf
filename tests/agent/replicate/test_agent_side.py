"""The agent's side of replication: databases are registered without waiting; the worker's process."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.alert_receivers import Training
from support.spooled import bare_opening

from rla_agent.replicate import agent_side, registry
from rla_agent.replicate.agent_side import Replication
from rla_agent.replicate.registry import entries, folder
from rla_agent.store.config_reader import ConfigReader
from rla_client.contract.agent.places import Places

HOLDER = """
import fcntl, os, signal, sys
with open(sys.argv[1] + "/databases.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def suspended(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A `rla-agent replicate add` that somebody suspended (Ctrl-Z) in the midst of its work."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.wait(30)


@pytest.mark.slow
def test_rows_do_not_wait_for_a_suspended_command(
    places: Places, tmp_path: Path, agent: Any, wait_until: Callable[..., Any]
) -> None:
    """Neither on the thread that takes them in nor on the main one; the database is registered later."""
    master, root, config = tmp_path / "master", tmp_path / "data", tmp_path / "rla_config.yaml"
    master.mkdir()
    config.write_text(
        "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  file_transfer_protocol: folder\n"
        f"  remote_data_root: {master}\n"
    )
    with suspended(folder(places.state)):
        training = Training(config, root)
        training.say(1.0, 2.0, "flush")
        (table,) = root.glob("log/table/*/*/*/*/progress.csv")
        assert len(table.read_text().splitlines()) >= 3
        assert agent.status()["agent"]["pid"] == agent.pid
        assert entries(places.state) == []
    training.end()
    wait_until(lambda: [entry.data_root for entry in entries(places.state)] == [str(root)])
    wait_until(lambda: list(master.glob("**/progress.csv")), 60, what="the run on the master")


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_database_is_registered_once_the_disk_of_the_list_has_room(
    places: Places, tmp_path: Path, agent: Any, wait_until: Callable[..., Any]
) -> None:
    master, root, config = tmp_path / "master", tmp_path / "data", tmp_path / "rla_config.yaml"
    master.mkdir()
    config.write_text(
        "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  file_transfer_protocol: folder\n"
        f"  remote_data_root: {master}\n"
    )
    place = folder(places.state)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "rla-test", str(place)], check=True)
    try:
        (place / "databases.lock").touch()
        subprocess.run(["dd", "if=/dev/zero", f"of={place / 'ballast'}"], check=False, capture_output=True)
        training = Training(config, root)
        training.say(1.0, "flush")
        assert entries(places.state) == []
        (place / "ballast").unlink()
        wait_until(lambda: [entry.data_root for entry in entries(places.state)] == [str(root)])
        training.end()
        assert agent.stop() == 0
    finally:
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_list_that_takes_nothing_is_tried_once_a_look_and_no_run_is_dropped_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_side, "MAX_UNDECIDED", 3)
    config = tmp_path / "rla_config.yaml"
    config.write_text(
        "SEND_LOG_FILE: true\nREMOTE_SETTING:\n  file_transfer_protocol: folder\n"
        f"  remote_data_root: {tmp_path}\n"
    )
    tries: list[str] = []
    room = False

    def register(_: Path, root: str, *args: object, **__: object) -> None:
        tries.append(str(args[1]))
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(registry, "register", register)
    monkeypatch.setattr(registry, "entries", lambda _: [])
    replication = Replication(Places(tmp_path / "state", tmp_path / "run"), ConfigReader())
    for number in range(4):
        told = {"table": "t", "index": f"run{number}", "config": str(config), "folders": {"log": "l"}}
        replication.run_opened(bare_opening(tmp_path, **told))
    assert sum("t/run0," in record.message for record in caplog.records) == 1
    tries.clear()
    replication.poll(100.0)
    assert len(tries) == 1
    room = True
    tries.clear()
    replication.poll(200.0)
    assert sorted(tries) == ["t/run1", "t/run2", "t/run3"]
    assert replication._refused == ""
    replication.stop(1.0)
