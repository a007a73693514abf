"""Streams that a volume cannot take up: not yet, never, or gone meanwhile; others go on."""

from __future__ import annotations

import gc
import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.lone import LoneStream, Side

from rla_agent.model.records import Position
from rla_agent.outputs.csv_encoder import CsvEncoder
from rla_agent.pipeline import open_stream, recovery
from rla_agent.pipeline.flush import Flush
from rla_agent.pipeline.open_stream import Adopt, why_late
from rla_agent.pipeline.volume import Stop, Volume, stop_volumes
from rla_agent.store.agent_db import AgentDatabase, CommitChanges, JobRow
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import base_path, segment_path


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
        self.put(
            Flush(b"client", lone.writer.name, 1, end, False, lambda done, _failed: answers.append(done))
        )
        return answers

    def end(self) -> None:
        """Commit what was taken in, and end."""
        self.put(Stop(0.0))
        self.join(60)
        assert not self.is_alive()
        assert not self.failed.is_set()


@pytest.fixture
def new_volume(places: Places) -> Iterator[Callable[[], Kept]]:
    """`new_volume()`: a started volume; the one before it is to be ended first."""
    made: list[Kept] = []

    def make() -> Kept:
        made.append(Kept(places))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def volume(new_volume: Callable[[], Kept], wait_until: Callable[..., Any]) -> Kept:
    """A started volume that has made agent.db: who opens it meanwhile finds it locked."""
    made = new_volume()
    wait_until(lambda: hasattr(made, "_database"), what="agent.db")
    return made


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    made = LoneStream(tmp_path)
    made.row({"x": 1})
    return made


@pytest.fixture
def good(tmp_path: Path) -> LoneStream:
    """Another stream, which has to go on."""
    (tmp_path / "good").mkdir()
    made = LoneStream(tmp_path / "good")
    made.opening["run"] = "good"
    made.writer.close()
    made.writer = made.new_writer()
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
    assert "retrying" in why
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


def committed(lone: LoneStream, places: Places) -> None:
    """A row of the stream is durable, and agent.db says so."""
    lone.database = places.database
    with Side(lone) as side:
        side.read_all()
        assert side.commit()


DAMAGES = (
    ("outputs", "state='[]'"),
    ("outputs", "state='{'"),
    ("outputs", "state='" + "[" * 100_000 + "'"),
    ("outputs", "state=x'ff00'"),
    ("outputs", """state='{"rows": "many"}'"""),
    ("outputs", """state='{"bases": [1]}'"""),
    ("outputs", """state='{"rows": 1, "closed": 7}'"""),
    ("outputs", "offset=-1"),
    ("outputs", "number='first'"),
    ("outputs", "size='big'"),
)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A finalizer that it calls in the depth of nested lists would fail."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage[1][:30])
def test_a_stream_of_which_agent_db_makes_no_sense_is_parked(
    volume: Kept,
    lone: LoneStream,
    good: LoneStream,
    places: Places,
    wait_until: Callable[..., Any],
    damage: tuple[str, str],
) -> None:
    committed(lone, places)
    damaged(places, *damage)
    for each in (lone, good):
        volume.put(Adopt(each.writer.name, each.writer.folder))
    answers = volume.flush(good)
    wait_until(lambda: answers == [True], what="the row of the other stream")
    parked = {found["stream"]: found["parked"] for found in volume.snapshot()["streams"]}
    assert "agent.db" in parked[lone.writer.name]
    assert "makes no sense" in parked[lone.writer.name]
    assert not parked[good.writer.name]
    assert volume.snapshot()["internal_errors"] == 0


def damaged(places: Places, table: str, setting: str) -> None:
    """Rows of agent.db that no agent writes."""
    with closing(sqlite3.connect(places.database)) as database, database:
        database.execute(f"UPDATE {table} SET {setting}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        ("runs", "data='{}'"),
        ("runs", "data='['"),
        ("runs", "data='7'"),
        ("jobs", "fields='text'"),
        ("jobs", "fields=x'c1'"),
    ],
)
def test_runs_and_jobs_of_which_agent_db_makes_no_sense_hold_nothing_up(
    new_volume: Callable[[], Kept],
    lone: LoneStream,
    places: Places,
    wait_until: Callable[..., Any],
    damage: tuple[str, str],
) -> None:
    lone.writer.append(encode_frame(FrameKind.JOB, pack(["video", {"blob": "b1"}])), 0)
    first = new_volume()
    first.put(Adopt(lone.writer.name, lone.writer.folder))
    answers = first.flush(lone)
    wait_until(lambda: answers == [True], what="the first row")
    first.end()
    with closing(AgentDatabase(places.database)) as database:
        job = JobRow(lone.writer.name, Position(1, 1), "video", pack({"blob": "b1"}))
        database.commit(CommitChanges(jobs=[job]))
    damaged(places, *damage)
    lone.row({"x": 2})
    second = new_volume()
    second.put(Adopt(lone.writer.name, lone.writer.folder))
    answers = second.flush(lone)
    wait_until(lambda: answers == [True], what="the second row")
    lone.writer.close()
    wait_until(lambda: second.done == [lone.writer.name], what="the end of the stream")
    assert second.snapshot()["internal_errors"] == 0


def test_a_stream_whose_base_breaks_the_rules_is_parked(
    new_volume: Callable[[], Kept],
    lone: LoneStream,
    good: LoneStream,
    places: Places,
    wait_until: Callable[..., Any],
) -> None:
    committed(lone, places)
    lone.forget_database()
    path = base_path(lone.writer.folder, 1)
    base = json.loads(path.read_text())
    base["outputs"]["csv"]["state"] = []
    path.write_text(json.dumps(base))
    volume = new_volume()
    for each in (lone, good):
        volume.put(Adopt(each.writer.name, each.writer.folder))
    answers = volume.flush(good)
    wait_until(lambda: answers == [True], what="the row of the other stream")
    (why,) = [found["parked"] for found in volume.snapshot()["streams"] if found["parked"]]
    assert "base file" in why
    assert volume.snapshot()["internal_errors"] == 0


@pytest.mark.parametrize("error", [TypeError("no"), AssertionError(), RecursionError(), KeyError("x")])
def test_a_fault_of_the_agent_while_it_takes_a_stream_up_waits_for_its_next_start(  # noqa: PLR0913, PLR0917
    new_volume: Callable[[], Kept],
    lone: LoneStream,
    good: LoneStream,
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    real = recovery.recover
    tried: list[str] = []

    def recover(stream: Any, *others: Any) -> None:
        tried.append(stream.name)
        if stream.name == lone.writer.name:
            raise error
        real(stream, *others)

    before = spooled(lone)
    with monkeypatch.context() as patch:
        patch.setattr(open_stream, "recover", recover)
        volume = new_volume()
        for each in (lone, good):
            volume.put(Adopt(each.writer.name, each.writer.folder))
        for _ in range(2):  # the second one after a look at all streams
            good.row({"x": 2})
            answers = volume.flush(good)
            wait_until(lambda found=answers: found == [True], what="the rows of the other stream")
        refused = volume.flush(lone)
        wait_until(lambda: refused == [False], what="the answer")
        assert tried.count(lone.writer.name) == 1
        told = volume.snapshot()
        assert told["internal_errors"] == 1
        assert "internal error" in told["faults"][lone.writer.name]
        assert sum(record.exc_info is not None for record in caplog.records) == 1
        volume.end()
    assert spooled(lone) == before
    again = new_volume()
    again.put(Adopt(lone.writer.name, lone.writer.folder))
    taken = again.flush(lone)
    wait_until(lambda: taken == [True], what="its rows at the next start")
    assert len(lone.table()) == 1


def test_a_stream_that_could_not_be_taken_up_may_be_given_up(
    volume: Kept, lone: LoneStream, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def recover(*_: Any) -> None:
        raise TypeError

    monkeypatch.setattr(open_stream, "recover", recover)
    volume.put(Adopt(lone.writer.name, lone.writer.folder))
    wait_until(lambda: volume.snapshot()["faults"], what="the fault")
    shutil.rmtree(lone.writer.folder)
    wait_until(lambda: volume.done == [lone.writer.name], what="the end of the stream")
    assert volume.snapshot()["faults"] == {}


class Broken(CsvEncoder):
    """An encoder with a fault: it cannot encode a second batch."""

    def encode(self, records: Any) -> tuple[bytes, int]:
        message = f"cannot encode {len(records)} records"
        raise AttributeError(message)


def test_a_fault_of_the_agent_in_a_streams_turn_waits_for_its_next_start(
    new_volume: Callable[[], Kept],
    lone: LoneStream,
    good: LoneStream,
    wait_until: Callable[..., Any],
) -> None:
    volume = new_volume()
    for each in (lone, good):
        volume.put(Adopt(each.writer.name, each.writer.folder))
        answers = volume.flush(each)
        wait_until(lambda found=answers: found == [True], what="the first row")
    broken = volume.streams[lone.writer.name]
    (csv_output,) = [output for output in broken.outputs if output.name == "csv"]
    csv_output.encoder = Broken()
    for row in range(3):
        for each in (lone, good):
            each.row({"x": row})
        answers = volume.flush(good)
        wait_until(lambda found=answers: found == [True], what="the rows of the other stream")
    wait_until(lambda: broken.parked, what="the fault")
    refused = volume.flush(lone)
    wait_until(lambda: refused == [False], what="the answer")
    told = volume.snapshot()
    assert told["internal_errors"] == 1
    (why,) = [found["parked"] for found in told["streams"] if found["parked"]]
    assert "cannot encode" in why
    volume.end()
    again = new_volume()
    again.put(Adopt(lone.writer.name, lone.writer.folder))
    taken = again.flush(lone)
    wait_until(lambda: taken == [True], what="all rows at the next start")
    assert [row["seq"] for row in lone.table()] == ["0", "1", "2", "3"]
    assert again.snapshot()["internal_errors"] == 0
    assert again.runs["r"].rows == 4
    assert len((lone.root / "progress.json").read_text().splitlines()) == 4


def spooled(lone: LoneStream) -> bytes:
    return segment_path(lone.writer.folder, 1).read_bytes()


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


def test_a_stream_that_cannot_be_taken_in_yet_says_of_which_run_it_is() -> None:
    class Opening:
        log_folder = "/data/log/t/1"

    text = why_late(Opening(), OSError(30, "Read-only file system", "warn.txt"))  # type: ignore[arg-type]
    assert all(
        part in text for part in ("/data/log/t/1", "Read-only file system", "warn.txt", "wait in the spool")
    )
