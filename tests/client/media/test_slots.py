"""Shared-memory slots: filled while warm and free, given back by the agent, never mixed up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_lab import lock_held
from forked import in_forked_child
from PIL import Image
from spooled import fill_spool

from rla_agent.jobs.code import Outcome
from rla_agent.jobs.media import sweep_abandoned_slots, sweep_slots
from rla_client.contract.paths import Places
from rla_client.media import jobs as media_jobs
from rla_client.media import recorders
from rla_client.media import slots as media_slots
from rla_client.media.recorders import VideoRecorder, bind

STREAM = f"test-{os.getpid()}"


def moving() -> np.ndarray[Any, Any]:
    """40 frames of 128 x 128, 1.9 MB: frame t is grey of value 5 t."""
    levels = (np.arange(40) * 5).astype(np.uint8)
    return np.broadcast_to(levels[:, None, None, None], (40, 128, 128, 3)).copy()


def levels_of(path: Path) -> list[int]:
    with Image.open(path) as gif:
        found = []
        for number in range(gif.n_frames):
            gif.seek(number)
            found.append(int(np.asarray(gif.convert("L")).mean()))
    return found


def test_large_videos_go_through_warm_shared_memory(run: Any, wait_until: Callable[..., Any]) -> None:
    video = moving()
    assert run.outbox.stream_folder is not None
    stream = run.outbox.stream_folder.name
    VideoRecorder.prepare(video.shape)
    wait_until(lambda: media_jobs._state.slots is not None and len(media_jobs._state.slots._slots) == 1)

    VideoRecorder.save("a.gif", video)
    wait_until(lambda: len(media_jobs._state.slots._slots) == 2)  # a second one, while the first is busy
    VideoRecorder.save("b.gif", video)
    VideoRecorder.save("c.gif", video)  # both are busy
    sources = ["slot" if "slot" in fields else "blob" for _, fields in run.jobs]
    assert sources == ["slot", "slot", "blob"]
    video[:] = 0
    assert [result.outcome for result in run.work()] == [Outcome.WRITTEN] * 3
    VideoRecorder.save("d.gif", video)  # given back
    assert "slot" in run.jobs[-1][1]

    for name in "abc":
        assert levels_of(run.results / f"7-{name}.gif") == [5 * number for number in range(40)]
    assert sweep_slots(stream) == 2
    assert not [name for name in os.listdir("/dev/shm") if stream in name]


def test_a_replay_after_the_slot_was_used_again_writes_nothing_wrong(
    run: Any, wait_until: Callable[..., Any]
) -> None:
    video = moving()
    VideoRecorder.prepare(video.shape)
    wait_until(lambda: media_jobs._state.slots is not None and media_jobs._state.slots._slots)
    VideoRecorder.save("a.gif", video)
    run.work()
    VideoRecorder.save("b.gif", video)
    (run.results / "7-a.gif").unlink()

    first, second = run.work()

    assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.WRITTEN)
    assert run.files == ["7-b.gif"]


def test_a_forked_child_does_not_use_its_parents_slots() -> None:
    slots = media_slots.MediaSlots(STREAM)
    thread = slots.prepare(2 << 20)
    assert thread is not None
    thread.join(60)
    assert in_forked_child(lambda: slots.fill(1 << 20, lambda _memory: None) is None)
    assert slots.fill(1 << 20, lambda _memory: None) is not None
    assert sweep_slots(STREAM) == 1


def test_a_child_leaves_the_slot_that_its_parent_is_making(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = media_slots.MediaSlots(STREAM)
    at, forked = threading.Event(), threading.Event()
    populate = media_slots._populate

    def populate_later(*arguments: Any) -> None:
        at.set()
        forked.wait(60)
        populate(*arguments)

    monkeypatch.setattr(media_slots, "_populate", populate_later)
    thread = slots.prepare(2 << 20)
    assert thread is not None
    assert at.wait(60)

    def fill_and_release() -> bool:
        slots.fill(1 << 20, lambda _memory: None)
        slots.release()
        return True

    assert in_forked_child(fill_and_release)
    forked.set()
    thread.join(60)

    name, _ = slots.fill(1 << 20, lambda _memory: None) or ("", 0)
    assert os.path.exists(f"/dev/shm/{name}")
    assert sweep_slots(STREAM) == 1


def test_a_thread_that_is_about_to_start_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads of the training record: one prepares a slot just when the other looks for it."""
    slots = media_slots.MediaSlots(STREAM)
    found: list[object] = []

    class Late(threading.Thread):
        def start(self) -> None:
            found.append(slots.fill(1 << 20, lambda _memory: None))
            super().start()

    monkeypatch.setattr(threading, "Thread", Late)
    thread = slots.prepare(2 << 20)
    assert thread is not None
    thread.join(60)
    assert found == [None]
    assert sweep_slots(STREAM) == 1


def test_a_full_spool_leaves_media_to_the_caller(
    run: Any, places: Places, wait_until: Callable[..., Any]
) -> None:
    """No blob stays that nobody will read, and no slot busy that nobody will free."""
    ballast = fill_spool(run.outbox)
    with lock_held(places):
        VideoRecorder.prepare(moving().shape)
        slots = media_jobs._state.slots
        assert slots is not None
        wait_until(lambda: len(slots._slots) == 1)
        VideoRecorder.save("a.gif", moving())
        with VideoRecorder("b.gif") as video:
            for frame in moving()[:3]:
                video.add(frame)
        recorders.ImgRecorder.save("c.png", moving()[0])
    assert run.jobs == []
    assert run.files == ["7-a.gif", "7-b.gif", "7-c.png"]
    assert list(ballast.parent.glob("blobs/*")) == []
    assert all(slot.free for slot in slots._slots)
    bind(None)  # gives them back


def test_short_shared_memory_means_blobs() -> None:
    slots = media_slots.MediaSlots(STREAM)
    room = os.statvfs("/dev/shm")
    thread = slots.prepare(room.f_bavail * room.f_frsize // 2)  # others use it meanwhile
    assert thread is not None
    thread.join(60)

    assert slots.fill(1 << 20, lambda _memory: None) is None
    assert sweep_slots(STREAM) == 0


def test_the_first_video_finds_memory_ready(
    run: Any, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]
) -> None:
    """Who uses VideoRecorder gets one slot when the run is opened, before any size is known."""
    monkeypatch.setattr(media_slots, "FIRST_SLOT_BYTES", 4 << 20)
    monkeypatch.setattr(media_jobs._state, "expects_videos", False)
    vars(recorders).pop("VideoRecorder", None)
    assert media_jobs._state.slots is None or not media_jobs._state.slots._slots
    recorder = recorders.VideoRecorder
    wait_until(lambda: media_jobs._state.slots is not None and media_jobs._state.slots._slots)
    recorder.save("a.gif", moving())
    assert "slot" in run.jobs[-1][1]
    wait_until(lambda: len(media_jobs._state.slots._slots) == 2)
    sizes = sorted(slot.size for slot in media_jobs._state.slots._slots)
    assert sizes[0] >= 1.25 * moving().nbytes, "the next video may be a little longer"
    name = run.outbox.stream_folder.name
    left = media_jobs._state.slots
    bind(None)
    wait_until(lambda: left._thread is None)
    assert sweep_slots(name) == 1, "what no job waits for goes with the run"


@pytest.mark.parametrize("advice", [23, 9999], ids=["MADV_POPULATE_WRITE", "an older kernel"])
def test_a_slot_in_the_making_is_waited_for(run: Any, monkeypatch: pytest.MonkeyPatch, advice: int) -> None:
    monkeypatch.setattr(media_slots, "MADV_POPULATE_WRITE", advice)
    monkeypatch.setattr(media_slots, "PREPARED_WAIT_S", 10.0)
    slots = media_slots.MediaSlots(run.outbox.stream_folder.name)
    slots.prepare(40 << 20)
    assert slots.fill(1 << 20, lambda _memory: None) is not None
    assert slots.fill(80 << 20, lambda _memory: None) is None
    assert bytes(slots._slots[0].memory[:8]) == media_slots.SLOT_MAGIC
    assert sweep_slots(run.outbox.stream_folder.name) == 1


def test_an_exit_leaves_no_shared_memory_that_no_job_waits_for(places: Places, tmp_path: Path) -> None:
    del places
    code = (
        "import os, sys, time\n"
        "from rla_client import VideoRecorder, exp_manager\n"
        "config = {'AGENT': {'autostart': False}, 'BACKUP_CONFIG': {'backup_code_dir': []}}\n"
        "exp_manager.configure('t', config, sys.argv[1], code_root='.')\n"
        "exp_manager.log_files_gen()\n"
        "mine = lambda: [name for name in os.listdir('/dev/shm') if f'-{os.getpid()}-' in name]\n"
        "end = time.monotonic() + 20\n"
        "while not mine() and time.monotonic() < end: time.sleep(0.01)\n"
        "print(*mine())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    name = done.stdout.split()[-1]
    assert name.startswith("rla-media-")
    assert name not in os.listdir("/dev/shm")


def test_slots_of_streams_that_are_gone_are_found_by_their_owner(run: Any, tmp_path: Path) -> None:
    """An agent that was killed after a stream's end leaves them; the next one looks for the folder."""
    gone = tmp_path / "spool" / f"{STREAM}-gone"
    gone.mkdir(parents=True)
    kept = []
    for folder in (gone, run.outbox.stream_folder):
        slots = media_slots.MediaSlots(folder.name, str(folder))
        thread = slots.prepare(2 << 20)
        assert thread is not None
        thread.join()
        assert slots.fill(2 << 20, lambda _memory: None) is not None
        kept.append(slots)
    gone.rmdir()
    sweep_abandoned_slots()  # an agent of another test may have been there first
    assert sweep_slots(gone.name) == 0
    assert sweep_slots(run.outbox.stream_folder.name) == 1, "a stream that is there keeps its own"
