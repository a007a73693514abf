"""Streams that a volume cannot take up: not yet, never, or gone meanwhile; others go on."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crash.lone import LoneStream

import rla_agent.adopting as module
from rla_agent.stopping import stop_volumes
from rla_agent.volume import Volume
from rla_agent.volume_items import Adopt, Flush, Stop
from rla_client.config import AgentConfig
from rla_client.errors import RemoteProtocolError
from rla_client.places import Places
from rla_client.protocol import FrameKind, encode_frame, pack
from rla_client.spool import segment_path


class Kept(Volume):
    """A volume that notes which streams it gave back, and whether it failed."""

    def __init__(self, places: Places) -> None:
        self.done: list[str] = []
        self.failed = threading.Event()
        super().__init__("test", places, AgentConfig(), self.failed.set, self.done.append)

    def flush(self, lone: LoneStream) -> list[bool]:
        """Ask for a stream's present end; the list gets the answer."""
        answers: list[bool] = []
        end = segment_path(lone.writer.folder, 1).stat().st_size
        self.put(Flush(b"client", lone.writer.name, 1, end, False, answers.append))
        return answers


@pytest.fixture
def volume(places: Places) -> Iterator[Kept]:
    made = Kept(places)
    made.start()
    yield made
    made.put(Stop(0.0))
    made.join(60)
    assert not made.is_alive()
    assert not made.failed.is_set()


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    made = LoneStream(tmp_path)
    made.row({"x": 1})
    return made


def hide(lone: LoneStream) -> Path:
    """The segment cannot be opened now: as without descriptors, an error that is not `no such file`."""
    path = segment_path(lone.writer.folder, 1)
    path.rename(path.with_name("aside"))
    path.symlink_to(path.name)
    return path


def test_a_stream_that_cannot_be_opened_now_is_taken_up_later(
    volume: Kept, lone: LoneStream, wait_until: Callable[..., Any]
) -> None:
    path = hide(lone)
    volume.put(Adopt(lone.writer.name, lone.writer.folder))
    why = wait_until(lambda: volume.snapshot()["faults"].get(lone.writer.name), what="the fault")
    assert "tried again all the time" in why
    path.with_name("aside").replace(path)
    wait_until(lambda: lone.writer.name in volume.streams, what="the stream")
    answers = volume.flush(lone)
    wait_until(lambda: answers == [True], what="the row")
    assert volume.snapshot()["faults"] == {}


def test_a_late_stream_whose_folder_goes_is_forgotten(
    volume: Kept, lone: LoneStream, wait_until: Callable[..., Any]
) -> None:
    hide(lone)
    volume.put(Adopt(lone.writer.name, lone.writer.folder))
    wait_until(lambda: volume.snapshot()["faults"], what="the fault")
    shutil.rmtree(lone.writer.folder)
    wait_until(lambda: volume.done == [lone.writer.name], what="the end of the stream")
    assert (volume.snapshot()["faults"], volume._late) == ({}, {})


@pytest.mark.parametrize(
    "error",
    [
        RemoteProtocolError("no"),
        ValueError("no"),
        KeyError("control"),
        AttributeError("'list' object has no attribute 'get'"),
        OverflowError("cannot convert float infinity to integer"),
        RecursionError("maximum recursion depth exceeded"),
    ],
)
def test_a_stream_whose_files_make_no_sense_is_parked(
    volume: Kept,
    lone: LoneStream,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    real = module.recover

    def recover(stream: Any, *others: Any) -> None:
        if stream.name == lone.writer.name:
            raise error
        real(stream, *others)

    monkeypatch.setattr(module, "recover", recover)
    (tmp_path / "good").mkdir()
    good = LoneStream(tmp_path / "good")
    good.row({"x": 1})
    for each in (lone, good):
        volume.put(Adopt(each.writer.name, each.writer.folder))
    answers = volume.flush(good)
    wait_until(lambda: answers == [True], what="the row of the other stream")
    parked = {found["stream"]: found["parked"] for found in volume.snapshot()["streams"]}
    assert "not taken in" in parked[lone.writer.name]
    assert not parked[good.writer.name]


def test_nothing_is_kept_of_a_stream_that_ended(
    volume: Kept, lone: LoneStream, wait_until: Callable[..., Any]
) -> None:
    lone.writer.append(encode_frame(FrameKind.FILE, pack(["log", "../x", b"1"])), 0)
    volume.put(Adopt(lone.writer.name, lone.writer.folder))
    wait_until(lambda: volume.snapshot()["faults"], what="the fault of the file")
    lone.writer.close()
    wait_until(lambda: volume.done == [lone.writer.name], what="the end of the stream")
    assert volume.snapshot()["faults"] == {}
    assert volume._targets == {}


def test_a_volume_lives_as_long_as_its_jobs(places: Places, wait_until: Callable[..., Any]) -> None:
    """Its process holds the lock until then: what a job writes is the next agent's afterwards."""
    volume = Kept(places)
    volume.start()
    release = threading.Event()
    job = volume._pool.submit(release.wait, 60)
    wait_until(job.running, what="the job")
    stop_volumes([volume], 0.0, 0.0)
    wait_until(volume.through.is_set, what="the last commit")
    assert volume.is_alive()
    release.set()
    stop_volumes([volume], 0.0, 0.0)
    volume.join(60)
    assert not volume.is_alive()
    assert job.done()
