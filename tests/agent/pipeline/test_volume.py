"""One volume thread and many streams: who waits for whom, and what is bounded."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.lone import LoneStream
from support.spooled import bare_opening

import rla_agent.pipeline.volume as module
from rla_agent.jobs.job_queue import JobContext, JobKind
from rla_agent.model.records import Position
from rla_agent.model.stream_states import StreamEvent
from rla_agent.pipeline import item_files, stream_order
from rla_agent.pipeline.flush import Flush, FlushWaiters
from rla_agent.pipeline.open_stream import Adopt
from rla_agent.pipeline.stream import Stream
from rla_agent.pipeline.volume import QUEUE_MAX_ITEMS, Stop, StreamHint, Volume
from rla_agent.store.agent_db import AgentDatabase, CommitChanges
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import FRAME_HEADER, FRAME_MAGIC, FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import segment_numbers, segment_path
from rla_client.stream.outbox import Outbox

PEER = b"client"
FAR = Position(1, 1 << 20)  # beyond what any stream here has


def lone(folder: Path) -> LoneStream:
    folder.mkdir()
    return LoneStream(folder)


def later_frame() -> bytes:
    """A frame that only a later release can read."""
    seed = (FrameKind.ROW << 24) ^ ((9 - 1 & 0xFF) << 16) ^ 1
    return FRAME_HEADER.pack(FRAME_MAGIC, 9, FrameKind.ROW, 1, zlib.crc32(b"\x90", seed)) + b"\x90"


@pytest.fixture
def volume(places: Places) -> Iterator[Volume]:
    """A volume thread; not started."""
    made = Volume("test", places, AgentConfig(), lambda: None, lambda _stream: None)
    yield made
    if made.ident is not None:
        made.put(Stop(0.0))
        made.join(60)
        assert not made.is_alive()


class Asked:
    """A flush up to the present end of a stream."""

    def __init__(self, volume: Volume, stream: LoneStream, *, media: bool = False) -> None:
        self.answers: list[bool] = []
        number = segment_numbers(stream.writer.folder)[-1]
        end = segment_path(stream.writer.folder, number).stat().st_size
        volume.put(Flush(PEER, stream.writer.name, number, end, media, self.answer))

    def answer(self, done: bool, _failed: tuple[int, int]) -> None:
        self.answers.append(done)


def test_a_commit_of_many_files_does_not_wait_for_jobs(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    release = threading.Event()
    working = [volume._pool.submit(release.wait, 60) for _ in range(4)]
    try:
        streams = [lone(tmp_path / str(number)) for number in range(4)]  # 16 files
        volume.start()
        for stream in streams:
            stream.row({"x": 1})
            volume.put(Adopt(stream.writer.name, stream.writer.folder))
        asked = [Asked(volume, stream) for stream in streams]
        wait_until(lambda: all(one.answers == [True] for one in asked), what="the answers")
        assert not any(job.done() for job in working)
    finally:
        release.set()


@pytest.mark.slow
@pytest.mark.parametrize("meanwhile", ["nothing", "a copy"])
def test_a_spool_that_is_away_for_a_moment_says_nothing_of_its_writers(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any], meanwhile: str
) -> None:
    """Whenever it is renamed away and back, a stream that is being written is not taken for an ended one."""
    one = lone(tmp_path / "one")
    one.row({"x": 1})
    shutil.copytree(one.spool, tmp_path / "copy")  # nobody holds a lock in it, or writes to it
    volume.start()
    volume.put(Adopt(one.writer.name, one.writer.folder))
    wait_until(lambda: Asked(volume, one).answers or volume.streams, what="the stream")
    away = tmp_path / "away"
    for _ in range(400):
        volume.put(StreamHint(one.writer.name, FAR))
        one.spool.rename(away)
        if meanwhile == "a copy":
            (tmp_path / "copy").rename(one.spool)
            volume.put(StreamHint(one.writer.name, FAR))
            wait_until(volume._queue.empty)
            one.spool.rename(tmp_path / "copy")
        away.rename(one.spool)
    one.row({"x": 2})
    asked = Asked(volume, one)
    wait_until(lambda: asked.answers, what="an answer")
    assert asked.answers == [True]
    assert not volume.streams[one.writer.name].writer_gone
    assert [row["x"] for row in one.table()] == ["1", "2"]


def test_a_waiting_stream_that_was_deleted_ends_and_no_other(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    one, other = lone(tmp_path / "one"), lone(tmp_path / "other")
    shutil.rmtree(one.root)
    shutil.rmtree(other.root)
    one.spool.rename(tmp_path / "away")
    shutil.move(other.writer.folder, tmp_path / "away")
    (tmp_path / "away").rename(one.spool)
    volume.start()
    for each in (one, other):
        volume.put(Adopt(each.writer.name, one.spool / each.writer.name))
    wait_until(lambda: [stream.parked for stream in volume.streams.values() if stream.parked][1:])
    shutil.rmtree(one.writer.folder)
    wait_until(lambda: list(volume.streams) == [other.writer.name], what="its end")


@pytest.mark.parametrize("ends", [False, True])
def test_a_fault_of_the_agent_in_a_job_keeps_the_job_and_stops_nothing_else(
    places: Places,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    ends: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is counted and named, not tried again before the next start, and done then."""
    one = lone(tmp_path / "one")
    tried: list[bytes] = []

    def fails(fields: dict[str, Any], context: JobContext) -> None:
        tried.append((context.blobs / fields["blob"]).read_bytes())
        raise TypeError("a fault of ours")

    def works(fields: dict[str, Any], context: JobContext) -> None:
        tried.append((context.blobs / fields["blob"]).read_bytes())

    blobs = one.writer.folder / "blobs"
    blobs.mkdir()
    for number, kind in enumerate(("faulty", "faulty", "sound")):
        (blobs / str(number)).write_bytes(str(number).encode())
        one.writer.append(encode_frame(FrameKind.JOB, pack([kind, {"blob": str(number)}])), 0)
    one.row({"x": 1})
    sound: list[object] = []
    kinds = {"faulty": JobKind(fails, media=True), "sound": JobKind(lambda *_: sound.append(1), media=True)}
    first = Volume("first", places, AgentConfig(), lambda: None, lambda _stream: None, kinds=kinds)
    first.start()
    first.put(Adopt(one.writer.name, one.writer.folder))
    wait_until(lambda: first.snapshot()["internal_errors"] == 2, what="both faults")
    if ends:
        one.writer.close()
    for media in (False, True):
        asked = Asked(first, one, media=media)
        wait_until(lambda asked=asked: asked.answers)
        assert asked.answers == [not media]
    (why,) = first.snapshot()["faults"].values()
    assert "job 'faulty'" in why
    assert "internal error" in why
    first.put(Stop(0.0))
    first.join(60)
    assert (tried, sound) == ([b"0", b"1"], [1])
    assert sum(record.exc_info is not None for record in caplog.records) == 2
    tried.clear()
    kinds = {"faulty": JobKind(works, media=True)}
    one.writer.close()
    second = Volume("second", places, AgentConfig(), lambda: None, lambda _stream: None, kinds=kinds)
    second.start()
    second.put(Adopt(one.writer.name, one.writer.folder))
    wait_until(lambda: not one.writer.folder.exists(), what="its end")
    second.put(Stop(0.0))
    second.join(60)
    assert tried == [b"0", b"1"]


@pytest.mark.parametrize("messages", [0, 50])
def test_streams_that_are_far_behind_leave_time_for_commits(
    volume: Volume,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    messages: int,
) -> None:
    monkeypatch.setattr("rla_agent.pipeline.batch_reader.READ_BYTES", 4096)
    monkeypatch.setattr(module, "TURN_S", 0.0)
    streams = [lone(tmp_path / str(number)) for number in range(4)]
    for stream in streams:
        for _ in range(1000):
            stream.row({"x": 1.5})
    volume._settings = AgentConfig(commit_interval_s=0.0)  # so a commit is due after each look
    busy_looks = [0]  # between two commits
    look, commit = volume._look, volume.commit_cycle

    def look_and_count(stream: Stream | None) -> bool:
        more = look(stream)
        busy_looks[-1] += more
        return more

    def commit_and_note() -> None:
        busy_looks.append(0)
        commit()

    monkeypatch.setattr(volume, "_look", look_and_count)
    monkeypatch.setattr(volume, "commit_cycle", commit_and_note)
    for stream in streams:
        volume.put(Adopt(stream.writer.name, stream.writer.folder))
    for _ in range(messages):
        for stream in streams:
            volume.put(StreamHint(stream.writer.name, FAR))
    asked = [Asked(volume, stream) for stream in streams]
    volume.start()
    wait_until(lambda: all(one.answers == [True] for one in asked), what="the answers")
    assert max(busy_looks) <= 2, "at most one for a message, one of all: a commit waited for more"
    assert sum(busy_looks) > 2 * len(streams), "they were not far behind"
    for stream in streams:
        assert (stream.root / "progress.csv").read_text().count("\n") == 1001


def test_messages_pile_up_only_so_far(volume: Volume) -> None:
    for number in range(QUEUE_MAX_ITEMS + 1000):
        volume.put(StreamHint("s", Position(1, number)))
    assert volume._queue.qsize() <= QUEUE_MAX_ITEMS + 1


def test_a_flush_of_a_stream_that_was_just_taken_in_is_true(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    stream = lone(tmp_path / "one")
    stream.row({"x": 1})
    asked = Asked(volume, stream)  # the volume does not know it yet
    volume._queue.get_nowait()
    stream.writer.append(encode_frame(FrameKind.CLOSE, pack({"state": "finished", "reason": ""})), 0)
    stream.writer.close()
    volume.put(Adopt(stream.writer.name, stream.writer.folder))
    volume.start()
    wait_until(lambda: not stream.writer.folder.exists(), what="the end of the stream")
    volume.put(Flush(PEER, stream.writer.name, 1, 10, False, asked.answer))
    volume.put(Flush(PEER, "never heard of", 1, 10, False, asked.answer))
    wait_until(lambda: asked.answers == [True, False], what="both answers")


def test_one_client_that_asks_again_and_again_waits_once(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = lone(tmp_path / "one")
    volume.put(Adopt(stream.writer.name, stream.writer.folder))
    volume.start()
    wait_until(lambda: stream.writer.name in volume.streams)
    for _ in range(50):
        volume.put(Flush(PEER, stream.writer.name, 9, 10, False, lambda _done, _failed: None))
    volume.put(Flush(b"another", stream.writer.name, 9, 10, False, lambda _done, _failed: None))
    wait_until(lambda: len(volume._flushes._waiting.get(stream.writer.name, ())) == 2)
    monkeypatch.setattr("rla_agent.pipeline.flush.GONE_S", 0.01)
    wait_until(lambda: not volume._flushes, what="forgetting clients that ask no more")


def test_the_job_of_a_parked_stream_waits_until_it_goes_on(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []
    kind = JobKind(lambda fields, _context: runs.append(fields), media=True)
    volume._kinds = {"counted": kind}
    volume._settings = AgentConfig(commit_interval_s=0.01)
    stream = lone(tmp_path / "one")
    stream.writer.append(encode_frame(FrameKind.JOB, pack(["counted", {}])), 0)
    stream.writer.append(later_frame(), 0)
    looked: list[str] = []
    commit = volume.commit_cycle

    def commit_and_note() -> None:
        commit()
        looked.extend(one.parked for one in volume.streams.values() if one.parked)

    monkeypatch.setattr(volume, "commit_cycle", commit_and_note)
    volume.put(Adopt(stream.writer.name, stream.writer.folder))
    volume.start()
    wait_until(lambda: len(looked) > 20, what="commits while it is parked")
    assert runs == []


def test_only_something_new_that_is_asked_hurries_a_commit(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    volume.start()
    wait_until(lambda: hasattr(volume, "_flushes"))
    desk = FlushWaiters(volume._database, volume._jobs)
    heard: list[bool] = []
    asked = Flush(PEER, "coming", 1, 10, False, lambda done, _failed: heard.append(done))
    desk.add(asked)
    fresh = [desk.fresh]
    desk.answer({}, {"coming"})
    desk.add(asked)
    fresh.append(desk.fresh)
    desk.add(Flush(PEER, "coming", 1, 20, False, lambda done, _failed: heard.append(done)))
    fresh.append(desk.fresh)
    assert fresh == [True, False, True]
    assert heard == []


def test_a_stream_of_a_later_release_that_was_given_up_ends(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    """What parked it does not park it again: it would stay, and be given up, for ever."""
    stream = lone(tmp_path / "one")
    stream.row({"x": 1})
    stream.writer.append(later_frame(), 0)
    volume.put(Adopt(stream.writer.name, stream.writer.folder))
    volume.start()
    wait_until(lambda: any(one.parked for one in volume.streams.values()), what="a parked stream")
    shutil.rmtree(stream.writer.folder)
    wait_until(lambda: not volume.streams, what="the end of the stream")


def test_a_resumed_run_waits_for_its_earlier_stream(tmp_path: Path) -> None:
    first, second = lone(tmp_path / "1"), lone(tmp_path / "2")
    continues = {"rows": 3, "time_step": 7.0, "event_file": None, "event_size": 0, "abandoned": "abandoned-1"}
    second.opening.update({"epoch": 2, "continues": {**continues, "after": [first.writer.name]}})
    second.writer.close()
    again = second.new_writer()
    before = Stream(first.writer.name, first.writer.folder)
    after = Stream(again.name, again.folder)
    assert stream_order.waits_behind(before, [after]) is None
    assert stream_order.waits_behind(after, []) is None  # the earlier one is not there
    shutil.copytree(first.writer.folder, second.writer.folder.parent / first.writer.name)
    assert stream_order.waits_behind(after, []) == ""
    before.handle(StreamEvent.REFUSED, "of a later release")
    assert "of a later release" in str(stream_order.waits_behind(after, [before]))
    again.close()


def taken(volume: Volume, stream: LoneStream) -> Position:
    found = volume.streams.get(stream.writer.name)
    return Position(0, 0) if found is None else found.position


def test_a_hint_beyond_where_the_stream_stands_is_a_reason_to_look(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = lone(tmp_path / "one")
    stream.row({"x": 1})
    first = Position(1, stream.writer.size)
    volume.put(Adopt(stream.writer.name, stream.writer.folder))
    volume.start()
    wait_until(lambda: taken(volume, stream) == first)
    wait_until(lambda: volume._all_asleep or volume.streams[stream.writer.name].asleep)
    monkeypatch.setattr(module, "TICK_S", 3600.0)
    monkeypatch.setattr(module, "LOCK_LOOK_S", 3600.0)
    monkeypatch.setattr(module, "ASLEEP_S", 0.0)
    wait_until(lambda: volume._next_tick > time.monotonic() + 600)
    stream.row({"x": 2})
    volume.put(StreamHint(stream.writer.name, Position(1, stream.writer.size)))
    wait_until(lambda: taken(volume, stream) == Position(1, stream.writer.size))


def test_after_a_message_a_thread_that_slept_looks_each_tick(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows behind the first one of an epoch come without a message."""
    monkeypatch.setattr(module, "ASLEEP_S", 2.0)
    stream = lone(tmp_path / "one")
    stream.row({"x": 1})
    volume.put(Adopt(stream.writer.name, stream.writer.folder))
    volume.start()
    monkeypatch.setattr(module, "LOCK_LOOK_S", 3600.0)
    wait_until(lambda: volume._all_asleep and volume._next_tick > time.monotonic() + 600)
    monkeypatch.setattr(module, "ASLEEP_S", 3600.0)
    volume.put(StreamHint(stream.writer.name, FAR))
    wait_until(lambda: not volume._all_asleep)
    stream.row({"x": 2})
    wait_until(lambda: taken(volume, stream) == Position(1, stream.writer.size))


def test_a_rewrite_of_one_run_holds_up_no_flush_of_another(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    release = threading.Event()
    working = [volume._rewriters.submit(release.wait, 60) for _ in range(volume._rewriters._max_workers)]
    try:
        wide, other = lone(tmp_path / "wide"), lone(tmp_path / "other")
        wide.row({"x": 1})
        volume.put(Adopt(wide.writer.name, wide.writer.folder))
        volume.put(Adopt(other.writer.name, other.writer.folder))
        volume.start()
        first = Asked(volume, wide)
        wait_until(lambda: first.answers == [True], what="the table as it was")
        wide.row({"late": 1})
        slow = Asked(volume, wide)
        wait_until(lambda: volume._widener._running, what="a rewrite that waits for its thread")
        for _ in range(3):
            other.row({"x": 1})
            asked = Asked(volume, other)
            wait_until(lambda asked=asked: asked.answers == [True], what="the other run's flush")
        assert slow.answers == []
    finally:
        release.set()
    last = Asked(volume, wide)
    wait_until(lambda: last.answers == [True], what="the rewrite")
    assert (wide.root / "progress.csv").read_text().splitlines()[0].endswith("late")
    assert all(work.result() for work in working)


def test_a_checkpoint_does_not_wait_for_videos(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    release, done = threading.Event(), []
    volume._kinds = {
        "video": JobKind(lambda _fields, _context: assert_set(release), media=True),
        "checkpoint": JobKind(lambda fields, _context: done.append(fields), media=False),
    }
    streams = [lone(tmp_path / str(number)) for number in range(6)]
    for stream in streams:
        stream.writer.append(encode_frame(FrameKind.JOB, pack(["video", {}])), 0)
        volume.put(Adopt(stream.writer.name, stream.writer.folder))
    volume.start()
    try:
        wait_until(lambda: len(volume.streams) == len(streams), what="the streams")
        streams[0].writer.append(encode_frame(FrameKind.JOB, pack(["checkpoint", {}])), 0)
        wait_until(lambda: done == [{"marks": done[0]["marks"]}] if done else False, what="the checkpoint")
    finally:
        release.set()


def assert_set(event: threading.Event) -> None:
    assert event.wait(60)


def ended_stream(places: Places, folder: Path, number: int) -> Adopt:
    """A stream that its client has closed, of a run and a data root of its own."""
    root = folder / str(number)
    root.mkdir()
    found = root.stat()
    opening = bare_opening(root, run=str(number), root_device=found.st_dev, root_inode=found.st_ino)
    outbox = Outbox(places, opening, AgentConfig(autostart=False))
    outbox.close("finished", "")
    assert outbox.stream_folder is not None
    return Adopt(outbox.stream_folder.name, outbox.stream_folder)


@pytest.mark.slow
def test_many_ends_leave_time_for_others(
    volume: Volume,
    places: Places,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit ends one stream at least, and no more than it has time for."""
    monkeypatch.setattr(module, "TURN_S", 0.0)
    ended: list[int] = []
    end = volume._end_streams

    def end_and_note(*arguments: float) -> tuple[int, bool]:
        gone = end(*arguments)
        ended.append(gone[0])
        return gone

    monkeypatch.setattr(volume, "_end_streams", end_and_note)
    for number in range(8):
        volume.put(ended_stream(places, tmp_path, number))
    volume.start()
    wait_until(lambda: sum(ended) == 8, what="the ends")
    assert max(ended) == 1
    for number in range(8):
        assert (tmp_path / str(number) / "run.json").exists()


def test_a_commit_that_fails_is_tried_at_its_usual_interval_whatever_the_one_before_left(
    volume: Volume,
    places: Places,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TURN_S", 0.0)
    disk_is_full, left, refused = threading.Event(), threading.Event(), threading.Event()
    end, store = volume._end_streams, AgentDatabase.commit

    def end_some(*arguments: float) -> tuple[int, bool]:
        gone, more = end(*arguments)
        if more and not left.is_set():
            left.set()
            disk_is_full.set()
        return gone, more

    def commit(database: AgentDatabase, changes: CommitChanges) -> None:
        if disk_is_full.is_set():
            refused.set()
            raise sqlite3.OperationalError("database or disk is full")
        store(database, changes)

    monkeypatch.setattr(volume, "_end_streams", end_some)
    monkeypatch.setattr(AgentDatabase, "commit", commit)
    for number in range(3):
        volume.put(ended_stream(places, tmp_path, number))
    volume.start()
    wait_until(refused.is_set, what="a commit that fails")
    assert left.is_set()
    wait_until(lambda: not volume._unfinished, what="the usual interval")
    disk_is_full.clear()
    wait_until(lambda: not volume.streams, what="the ends")


def test_a_held_database_is_asked_once_a_turn_for_the_end_of_streams(
    volume: Volume,
    places: Places,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the streams waited for it, a minute one after the other, and rows of others meanwhile."""
    free, turns = threading.Event(), [0]
    end, store = volume._end_streams, AgentDatabase.commit

    def end_and_note(*arguments: float) -> tuple[int, bool]:
        turns.append(0)
        return end(*arguments)

    def commit(database: AgentDatabase, changes: CommitChanges) -> None:
        if changes.done and not free.is_set():
            turns[-1] += 1
            raise sqlite3.OperationalError("database is locked")
        store(database, changes)

    monkeypatch.setattr(volume, "_end_streams", end_and_note)
    monkeypatch.setattr(AgentDatabase, "commit", commit)
    for number in range(3):
        volume.put(ended_stream(places, tmp_path, number))
    volume.start()
    wait_until(lambda: sum(turns) > 3, what="turns")
    free.set()
    wait_until(lambda: not volume.streams, what="the ends")
    assert max(turns) == 1


def test_a_job_behind_a_file_that_waits_is_stored_with_the_position(
    volume: Volume, tmp_path: Path, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be read once more after a crash, when its payload is gone."""
    done: list[object] = []
    kind = JobKind(lambda fields, _context: done.append(fields), media=False)
    volume._kinds = {"counted": kind}
    keep, refuse = item_files.keep_item_file, [True]

    def full(opening: Any, file: Any) -> None:
        if refuse[0]:
            raise OSError(errno.ENOSPC, "no space")
        keep(opening, file)

    monkeypatch.setattr(item_files, "keep_item_file", full)
    stream = lone(tmp_path / "one")
    stream.writer.append(encode_frame(FrameKind.FILE, pack(["log", "note.txt", b"x"])), 0)
    stream.writer.append(encode_frame(FrameKind.JOB, pack(["counted", {"blob": "b"}])), 0)
    volume.put(Adopt(stream.writer.name, stream.writer.folder))
    volume.start()
    wait_until(lambda: volume.snapshot()["faults"], what="the fault of the file")
    again = Asked(volume, stream)
    wait_until(lambda: volume.streams[stream.writer.name].position.offset > 0, what="the job's frame")
    with closing(AgentDatabase(volume._places.database)) as database:
        assert database.jobs_of(stream.writer.name) == []
    assert (done, again.answers) == ([], [])
    refuse[0] = False
    wait_until(lambda: done, what="the job")
    assert len(done) == 1
