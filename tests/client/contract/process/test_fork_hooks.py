"""What a forked child finds while another thread of its parent was in the middle of something."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.descriptors import open_below
from support.forked import in_forked_child
from support.spooled import bare_opening

from rla_client.contract.process.fork_hooks import at_fork
from rla_client.launcher.folder_lock import FolderLock
from rla_client.launcher.thread_owner import _owner, this_thread
from rla_client.run import current_logger
from rla_client.run.current_logger import joined_logger
from rla_client.run.record.run_logger import Logger
from rla_client.run.record.summary_writer import AgentSummaryWriter
from rla_client.run.record.time_tracker import SingleTimeTracker
from rla_client.run.run_mode import RUN_VARIABLE

CHILD_S = 20.0


@contextmanager
def held_elsewhere(lock: Any) -> Iterator[None]:
    """Another thread holds `lock` for the time of the block."""
    held, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            enough.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def test_what_is_registered_is_told_and_what_is_gone_is_not() -> None:
    class Thing:
        told = 0

        def after_fork_in_child(self) -> None:
            Thing.told += 1

    kept, gone = Thing(), Thing()
    at_fork(kept)
    at_fork(gone)
    del gone
    assert in_forked_child(lambda: Thing.told == 1, CHILD_S)
    assert Thing.told == 0


def joined_before_its_first_record(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Logger:
    """The logger of a worker process of a run."""
    description = {"sinks": [], "opening": bare_opening(folder, pid=1).to_fields()}
    monkeypatch.setenv(RUN_VARIABLE, json.dumps(description))
    found = joined_logger()
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["the default one", "prints", "drops", "joined"])
def test_a_logger_without_a_stream(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "joined":
        found = joined_before_its_first_record(monkeypatch, tmp_path)
    else:
        made = {"the default one": current_logger._DEFAULT, "prints": Logger(None, ("stdout",))}
        found = made.get(kind) or Logger(None, ())
    found.forget_pending()
    found.record("parent", 1)

    def log_in_child() -> bool:
        found.record("child", 2)
        return found.pending == {"child": 2}

    with held_elsewhere(found.lock):
        assert in_forked_child(log_in_child, CHILD_S)
    assert found.pending == {"parent": 1}
    found.forget_pending()


def test_a_time_tracker() -> None:
    tracker = SingleTimeTracker("a")

    def measure_in_child() -> bool:
        with tracker:
            return True

    with held_elsewhere(tracker._lock):
        assert in_forked_child(measure_in_child, CHILD_S)


@pytest.mark.parametrize("held", [_owner.lock, this_thread("parent")], ids=["begins", "is inside"])
def test_an_experiment_while_another_thread_has_one(held: Any) -> None:
    def begin_in_child() -> bool:
        with this_thread("child"):
            return True

    with held_elsewhere(held):
        assert in_forked_child(begin_in_child, CHILD_S)


def test_a_child_holds_no_copy_of_a_folders_lock(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    assert len(open_below(tmp_path)) == 1
    assert in_forked_child(lambda: not open_below(tmp_path), CHILD_S)
    lock.release()
    assert not open_below(tmp_path)


def test_a_tensorboard_writer_that_adds_an_embedding(tmp_path: Path) -> None:
    sent: list[str] = []
    writer = AgentSummaryWriter(
        lambda *_event: None, tmp_path, lambda: 0, emit_file=lambda name, _content: sent.append(name)
    )

    def add_in_child() -> bool:
        writer.add_embedding(np.eye(2), tag="a")
        return bool(sent)

    with held_elsewhere(writer._files_lock):
        assert in_forked_child(add_in_child, CHILD_S)
