"""Deadlines of a fetch, and the agent that it may start."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sharded_folders import identity, write_part

from rla_client import exp_manager
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import ArgumentError, FetchError
from rla_client.contract.item.prune_notes import PrunedFile, write_note
from rla_client.contract.layout import CHECKPOINT, LOG
from rla_client.contract.sharded_checkpoint.files import OWN_FOLDER, WHOLE_NAME
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.run.resume.resume_point import prepare
from rla_client.stream import fetch
from rla_client.stream.fetch import (
    SETTLE_S,
    START_S,
    ask_for_fetch,
    bring_back,
    fetch_timeout_s,
    settle_parts,
)  # fmt: skip


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_a_deadline_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch_timeout_s() == 600
    monkeypatch.setenv("RLA_FETCH_TIMEOUT_S", text)
    with pytest.raises(ArgumentError, match="RLA_FETCH_TIMEOUT_S"):
        fetch_timeout_s()


@pytest.mark.further
def test_an_agent_that_hangs_for_a_while_is_waited_for(agent: Any, tmp_path: Path) -> None:
    """Else a job that is requeued while the disk hangs begins at 0."""
    os.kill(agent.pid, signal.SIGSTOP)
    goes_on = threading.Timer(START_S + 2, os.kill, (agent.pid, signal.SIGCONT))
    goes_on.start()
    with pytest.raises(FetchError) as told:
        bring_back(tmp_path / "checkpoint_1.pt", autostart=False)
    goes_on.join()
    assert "does not answer" not in str(told.value)


def test_another_agent_is_started_where_one_ends_while_it_is_asked(
    agent: Any, new_agent: Callable[..., Any]
) -> None:
    """Else a job that is resumed fails with it."""
    os.kill(agent.pid, signal.SIGSTOP)
    ends = threading.Timer(1, agent.kill)
    ends.start()
    started: list[Any] = []

    def start() -> bool:
        ends.join()
        started.append(new_agent().start())
        return True

    with pytest.raises(FetchError, match="neither here nor noted"):
        ask_for_fetch({"folder": "/", "name": "no.pt", "config": None}, "no.pt", 60, start=start)
    assert len(started) == 1


@pytest.mark.further
def test_what_ends_each_agent_is_not_asked_for_ever(
    agent: Any, new_agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "START_S", 4.0)
    started = [agent]

    def end() -> None:
        started[-1].kill()

    def start() -> bool:
        started.append(new_agent().start())
        os.kill(started[-1].pid, signal.SIGSTOP)
        threading.Timer(0.5, end).start()
        return True

    os.kill(agent.pid, signal.SIGSTOP)
    threading.Timer(0.5, end).start()
    with pytest.raises(FetchError, match="does not answer"):
        ask_for_fetch({"folder": "/", "name": "no.pt", "config": None}, "no.pt", 60, start=start)
    assert len(started) == 1 + fetch.MOST_STARTS


@pytest.mark.further
def test_looks_at_many_saves_take_their_time(agent: Any, tmp_path: Path) -> None:
    write_part(tmp_path, identity(7), 0, 7, beside=(0,))
    publish_all(tmp_path)
    os.kill(agent.pid, signal.SIGSTOP)
    goes_on = threading.Timer(SETTLE_S + 2, os.kill, (agent.pid, signal.SIGCONT))
    goes_on.start()
    with pytest.raises(FetchError, match="neither here nor noted"):  # of a folder that no database has
        settle_parts(tmp_path, autostart=False)
    goes_on.join()


def pruned(name: str) -> PrunedFile:
    return PrunedFile(f"checkpoint/t/x/{name}", 100, "ab" * 32, 7, "sftp://a@b/c", 1.5, order=7)


def load_file(folder: Path) -> None:
    write_note(folder, pruned("checkpoint_7.pt"))
    exp_manager.load_checkpoint()


def load_sharded(folder: Path) -> None:
    (folder / "checkpoint_7.dcp" / OWN_FOLDER).mkdir(parents=True)
    write_note(folder / "checkpoint_7.dcp" / OWN_FOLDER, pruned(WHOLE_NAME))
    exp_manager.load_sharded({})


def resume(folder: Path) -> None:
    root, index = folder.parents[5], "2026/01/02/03-04-05-000006_noip_&"
    (root / LOG / "t" / index).mkdir(parents=True)
    (root / LOG / "t" / index / "run.json").write_text(f'{{"run_id": "{index}", "state": "killed"}}')
    folder = root / CHECKPOINT / "t" / index
    write_part(folder, identity(7), 0, 7, beside=(0,))
    publish_all(folder)
    prepare(str(root), "t", index, None, "checkpoint", autostart=False)


@pytest.mark.parametrize("fetch", [load_file, load_sharded, resume])
def test_no_fetch_starts_an_agent_where_the_configuration_says_that_none_starts(
    fetch: Callable[[Path], None], tmp_path: Path, places: Places
) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    config = {"AGENT": {"autostart": False}, "LOG_USED": ["csv"]}
    exp_manager.configure("t", config, tmp_path / "data", code_root=tmp_path)
    exp_manager.log_files_gen()
    item = exp_manager._data.item
    assert item is not None
    try:
        with pytest.raises(FetchError, match=r"no agent is running here, and AGENT\.autostart: false"):
            fetch(Path(item.folder(CHECKPOINT)))
        assert not agent_alive(places)
        assert not places.lock.exists()
    finally:
        exp_manager.close()
