"""Large arrays by shared memory: sent while a slot is warm and free, given back, never mixed up."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.checkpoint_lab import arenas_of, lock_held
from support.forked import in_forked_child
from support.spooled import fill_spool

from rla_agent.jobs.outcome import JobOutcome
from rla_client.contract.agent.places import Places
from rla_client.contract.job.arena_layout import spool_key
from rla_client.media import image_recorder, pixel_sender, recording_target
from rla_client.media.recording_target import bind
from rla_client.media.video_recorder import VideoRecorder
from rla_client.stream import arena as arenas


@pytest.fixture(autouse=True)
def two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more for small ones: it is told what becomes of the third."""
    monkeypatch.setattr(arenas, "SMALL_ARENA_BYTES", 1)


def moving() -> np.ndarray[Any, Any]:
    """40 frames of 128 x 128, 1.9 MB: frame t is grey of value 5 t."""
    levels = (np.arange(40) * 5).astype(np.uint8)
    frames: np.ndarray[Any, Any] = np.broadcast_to(levels[:, None, None, None], (40, 128, 128, 3)).copy()
    return frames


def levels_of(path: Path) -> list[int]:
    with Image.open(path) as gif:
        found = []
        for number in range(gif.n_frames):
            gif.seek(number)
            found.append(int(np.asarray(gif.convert("L")).mean()))
    return found


def pool() -> arenas.ArenaPool:
    slots = recording_target.recording_state().slots
    assert slots is not None
    assert slots._pool is not None
    return slots._pool


def prepared(nbytes: int) -> arenas.ArenaPool:
    """The pool of the current run once it has slots of this size."""
    VideoRecorder.prepare((nbytes,))
    assert pool().wait_prepared(60)
    return pool()


def sources(run: Any) -> list[str]:
    return ["slot" if "slot" in fields else "blob" for _, fields in run.jobs]


def test_large_videos_go_through_warm_shared_memory(run: Any, places: Places) -> None:
    video = moving()
    prepared(video.nbytes)

    for name in "abc":
        VideoRecorder.save(f"{name}.gif", video)
    assert sources(run) == ["slot", "slot", "blob"], "both are busy"
    video[:] = 0
    assert [result.outcome for result in run.work()] == [JobOutcome.WRITTEN] * 3
    VideoRecorder.save("d.gif", video)
    assert sources(run)[-1] == "slot", "given back"

    for name in "abc":
        assert levels_of(run.results / f"7-{name}.gif") == [5 * number for number in range(40)]
    run.work()
    bind(None)
    assert arenas_of(places) == []


def test_a_replay_after_the_slot_was_used_again_writes_nothing_wrong(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arenas, "SLOTS", 1)
    video = moving()
    prepared(video.nbytes)
    VideoRecorder.save("a.gif", video)
    run.work()
    VideoRecorder.save("b.gif", video)
    (run.results / "7-a.gif").unlink()

    first, second = run.work()

    assert (first.outcome, second.outcome) == (JobOutcome.FAILED, JobOutcome.WRITTEN)
    assert run.files == ["7-b.gif"]


def test_a_forked_child_does_not_use_its_parents_slots(run: Any) -> None:
    video = moving()
    parents = prepared(video.nbytes)

    def record() -> bool:
        VideoRecorder.save("child.gif", video)
        return parents.current is None

    assert in_forked_child(record)
    assert parents.current is not None
    assert parents.current.idle, "untouched"
    VideoRecorder.save("a.gif", video)
    assert sources(run)[-1] == "slot"


def test_a_thread_that_is_about_to_start_is_not_waited_for(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler records just when a slot is being prepared."""
    video = moving()

    class Late(threading.Thread):
        def start(self) -> None:
            VideoRecorder.save("late.gif", video)
            super().start()

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Late)
        VideoRecorder.prepare(video.shape)
    assert sources(run) == ["blob"]
    assert pool().wait_prepared(60)


def test_what_records_in_the_middle_of_a_copy_goes_another_way(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = moving()
    prepared(video.nbytes)
    job = run.outbox.job

    def interrupted(kind: str, fields: dict[str, Any]) -> bool:
        monkeypatch.setattr(run.outbox, "job", job)
        VideoRecorder.save("handler.gif", video)
        return bool(job(kind, fields))

    monkeypatch.setattr(run.outbox, "job", interrupted)
    VideoRecorder.save("a.gif", video)
    assert sources(run) == ["blob", "slot"]


def test_a_full_spool_leaves_media_to_the_caller(run: Any, places: Places) -> None:
    """No blob stays that nobody will read, and no slot busy that nobody will free."""
    ballast = fill_spool(run.outbox)
    with lock_held(places):
        slots = prepared(moving().nbytes)
        VideoRecorder.save("a.gif", moving())
        with VideoRecorder("b.gif") as video:
            for frame in moving()[:3]:
                video.add(frame)
        image_recorder.ImgRecorder.save("c.png", moving()[0])
    assert run.jobs == []
    assert run.files == ["7-a.gif", "7-b.gif", "7-c.png"]
    assert list(ballast.parent.glob("blobs/*")) == []
    assert slots.current is not None
    assert slots.current.idle
    bind(None)


def test_the_first_video_finds_memory_ready(
    run: Any, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who uses VideoRecorder gets one slot when the run is opened, before any size is known."""
    monkeypatch.setattr(recording_target, "FIRST_VIDEO_BYTES", 4 << 20)
    monkeypatch.setattr(recording_target, "_expects_videos", False)
    monkeypatch.delitem(sys.modules, "rla_client.media.video_recorder")
    assert recording_target.recording_state().slots is None
    recorder = importlib.import_module("rla_client.media.video_recorder").VideoRecorder
    assert pool().wait_prepared(60)
    first = pool().current
    assert first is not None
    assert first.slots == 1
    recorder.save("a.gif", moving())
    assert sources(run) == ["slot"]
    assert pool().wait_prepared(60)
    assert pool().current is not first, "from now on there are two, for something like this"
    recorder.save("b.gif", moving())
    assert sources(run) == ["slot", "slot"]
    run.work()
    bind(None)
    assert arenas_of(places) == [], "what no job waits for goes with the run"


def test_a_slot_in_the_making_is_waited_for(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixel_sender, "PREPARED_WAIT_S", 10.0)
    VideoRecorder.prepare((40 << 20,))
    VideoRecorder.save("a.gif", moving())
    assert sources(run) == ["slot"]


def test_an_exit_leaves_no_shared_memory_that_no_job_waits_for(places: Places, tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from rla_client import VideoRecorder, exp_manager\n"
        "config = {'AGENT': {'autostart': False}, 'BACKUP_CONFIG': {'backup_code_dir': []}}\n"
        "exp_manager.configure('t', config, sys.argv[1], code_root='.')\n"
        "exp_manager.log_files_gen()\n"
        "mine = lambda: [name for name in os.listdir('/dev/shm') if sys.argv[2] in name]\n"
        "end = time.monotonic() + 20\n"
        "while not mine() and time.monotonic() < end: time.sleep(0.01)\n"
        "print(*mine())\n"
    )
    key = spool_key(places.spool)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "data"), key],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name = done.stdout.split()[-1]
    assert name.startswith("rla-arena-")
    assert name not in os.listdir("/dev/shm")
