"""Videos at once and frame by frame, from the user's arrays to the frames of the file."""

from __future__ import annotations

import gc
import itertools
import os
import resource
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.forked import in_forked_child
from support.waiting import wait_until

from rla_agent.jobs.outcome import JobOutcome
from rla_client.contract.errors import ArgumentError
from rla_client.media import video_recorder as video_module
from rla_client.media.render import ffmpeg_path
from rla_client.media.video_recorder import VideoRecorder
from rla_client.stream.clock import time_step_holder

torch = pytest.importorskip("torch", reason="needs PyTorch")


def frames_of(path: Path, width: int, height: int) -> np.ndarray[Any, Any]:
    command = [ffmpeg_path(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, check=True, capture_output=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def moving(count: int, height: int, width: int) -> np.ndarray[Any, Any]:
    """Frame t is grey of value 10 t."""
    levels = (np.arange(count) * 10 % 250).astype(np.uint8)
    frames: np.ndarray[Any, Any] = np.broadcast_to(
        levels[:, None, None, None], (count, height, width, 3)
    ).copy()
    return frames


def levels_of(frames: np.ndarray[Any, Any]) -> list[int]:
    return [round(float(frame[: len(frame) // 2].mean()) / 10) * 10 for frame in frames]


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are written by a thread on any machine."""
    monkeypatch.setattr(video_module, "_has_cores", lambda: True)


@pytest.mark.parametrize("kind", ["array", "list", "channels first", "float", "torch", "grey"])
def test_an_mp4_has_the_frames_in_order(run: Any, kind: str) -> None:
    video = moving(12, 32, 48)
    given: Any = {
        "array": video,
        "list": list(video),
        "channels first": video.transpose(0, 3, 1, 2),
        "float": video / 255.0,
        "torch": torch.from_numpy(video),
        "grey": video[..., 0],
    }[kind]

    path = VideoRecorder.save("v", given, fps=12)

    (result,) = run.work()
    assert (result.outcome, path) == (JobOutcome.WRITTEN, str(run.results / "7-v.mp4")), result
    assert levels_of(frames_of(Path(path), 48, 32)) == levels_of(video)


def test_odd_sizes_are_padded(run: Any) -> None:
    path = VideoRecorder.save("v", moving(5, 31, 47))
    run.work()

    assert levels_of(frames_of(Path(path), 48, 32)[:, :30, :46]) == levels_of(moving(5, 31, 47))


def test_a_gif_has_its_frames_and_pace(run: Any) -> None:
    path = VideoRecorder.save("v.gif", moving(5, 31, 47), fps=10)
    run.work()

    with Image.open(path) as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (5, (47, 31), 100)


def test_frame_by_frame(run: Any) -> None:
    video = moving(8, 32, 32)
    with VideoRecorder("v", fps=8) as recorder:
        time_step_holder.set_time(99)
        for frame in video:
            recorder.add(frame)
            frame[:] = 0
        assert run.jobs == []
    assert recorder.close() == recorder.path == str(run.results / "7-v.mp4")
    run.work()

    assert levels_of(frames_of(Path(recorder.path), 32, 32)) == levels_of(moving(8, 32, 32))


def test_what_is_missing_for_videos_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "written as gif" in video_module._without_ffmpeg()
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "neither ffmpeg nor Pillow" in video_module._without_ffmpeg()


def test_without_ffmpeg_a_gif_is_written(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", "/nowhere")
    video_module._has_ffmpeg.cache_clear()
    try:
        paths = [VideoRecorder.save(name, moving(3, 16, 16)) for name in ("a.mp4", "b", "c.gif")]
    finally:
        video_module._has_ffmpeg.cache_clear()

    assert [os.path.basename(path) for path in paths] == ["7-a.gif", "7-b.gif", "7-c.gif"]
    assert [result.outcome for result in run.work()] == [JobOutcome.WRITTEN] * 3
    assert len(run.warnings) == 1


@pytest.mark.parametrize("fps", [25, np.int64(25), np.float32(25)])
def test_fps_is_any_number(run: Any, fps: Any) -> None:
    VideoRecorder.save("v", moving(2, 4, 4), fps=fps)

    assert run.jobs[0][1]["fps"] == 25


@pytest.mark.usefixtures("run")
def test_frames_that_do_not_fit_raise() -> None:
    with pytest.raises(ArgumentError, match="frame 1"):
        VideoRecorder.save("v", [np.zeros((2, 2)), np.zeros((3, 2))])
    with pytest.raises(ArgumentError, match="fps"):
        VideoRecorder.save("v", moving(2, 4, 4), fps=0)
    with pytest.raises(ArgumentError):
        VideoRecorder.save("v", [])
    recorder = VideoRecorder("v")
    recorder.add(np.zeros((2, 2)))
    with pytest.raises(ArgumentError, match="frame 1"):
        recorder.add(np.zeros((2, 3)))
    recorder.close()
    with pytest.raises(ArgumentError, match="closed"):
        recorder.add(np.zeros((2, 2)))


def test_a_video_without_frames_is_no_file_and_no_blob(run: Any) -> None:
    with VideoRecorder("v"):
        pass

    assert (run.jobs, run.files) == ([], [])


LARGE = (200, 240, 3)  # a frame that a thread writes


def noise(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 256, (count, *LARGE), np.uint8)


def filmed(run: Any) -> tuple[int, bytes]:
    """How many frames the only job has, and what lies in its blob."""
    ((_, fields),) = run.jobs
    return fields["shape"][0], (run.outbox.blobs_folder / fields["blob"]).read_bytes()


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def test_frames_that_a_thread_writes_are_those_of_the_moment(run: Any) -> None:
    frames, before = noise(40), thread_count()
    with VideoRecorder("v") as recorder:
        for frame in frames:
            scratch = frame.copy()
            recorder.add(scratch)
            scratch[:] = 0

    assert filmed(run) == (40, frames.tobytes())
    wait_until(lambda: thread_count() <= before, 10, "the end of the thread")


@pytest.mark.parametrize("why", ["one core", "no memory"])
def test_without_a_thread_or_memory_the_caller_writes(
    run: Any, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    frames, before = noise(5), thread_count()
    if why == "one core":
        monkeypatch.setattr(video_module, "_has_cores", lambda: False)
    recorder = VideoRecorder("v")
    recorder.add(frames[0])
    assert thread_count() == before + (why != "one core")
    if why == "no memory":
        wait_until(lambda: not recorder._behind._pending, 10, "the first frame")
        recorder._behind._free.clear()

        def empty(*_: object) -> None:
            raise MemoryError

        monkeypatch.setattr(np, "empty", empty)
    for frame in frames[1:]:
        recorder.add(frame)
        assert not recorder._behind._pending
    recorder.close()

    assert filmed(run) == (5, frames.tobytes())


def test_a_recorder_that_nobody_closed_leaves_no_thread(run: Any, tmp_path: Path) -> None:
    before = thread_count()
    for _ in range(5):
        recorder = VideoRecorder("v", results_dir=tmp_path)
        recorder.add(noise(1)[0])
    del recorder
    gc.collect()

    wait_until(lambda: thread_count() <= before, 10, "the end of the threads")


def test_frames_that_the_thread_cannot_write_are_written_by_the_caller(run: Any) -> None:
    frames = noise(12)
    recorder = VideoRecorder("v")
    for number, frame in enumerate(frames):
        recorder.add(frame)
        if number == 0:
            (blob,) = run.outbox.blobs_folder.glob("video-*")
            descriptors = [
                int(path.name) for path in Path("/proc/self/fd").iterdir() if path.resolve() == blob
            ]
            assert len(descriptors) == 2
            for descriptor in descriptors:  # as what closes descriptors that it did not open
                os.close(descriptor)
    recorder.close()

    assert filmed(run) == (12, frames.tobytes())


@pytest.mark.parametrize("outside", [False, True], ids=["spool", "own folder"])
def test_a_forked_child_leaves_its_parents_film_alone(run: Any, outside: bool) -> None:
    frames = noise(6)
    recorder = VideoRecorder("v", results_dir=run.results / ".." if outside else None)
    for frame in frames[:3]:
        recorder.add(frame)

    def child() -> bool:
        recorder.add(frames[3])
        return recorder.close() == recorder.path

    assert in_forked_child(child)
    for frame in frames[3:]:
        recorder.add(frame)
    recorder.close()

    if outside:
        assert len(frames_of(Path(recorder.path), LARGE[1], LARGE[0])) == 6
    else:
        assert filmed(run) == (6, frames.tobytes())


class StopHereError(Exception):
    """What a signal handler raises."""


def interrupted(call: Callable[[], object], at: int, handler: Callable[[], object]) -> bool:
    """Run `call` with `handler` at its `at`-th line in the module of videos; whether it has so many."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if (
            frame.f_code.co_filename.rpartition("/")[2]
            in {"video_recorder.py", "write_behind.py", "pixels.py"}
            and event == "line"
        ):
            count += 1
            if count == at:
                handler()
        return trace

    def traced() -> None:
        sys.settrace(trace)
        with suppress(ArgumentError, StopHereError):
            call()
        sys.settrace(None)

    gc.disable()  # a finalizer of another recorder is not what is meant
    try:  # in a thread: CPython may leave one that a trace function raised in with an exception being handled
        thread = threading.Thread(target=traced)
        thread.start()
        thread.join()
    finally:
        gc.enable()
    return count >= at


@pytest.mark.parametrize("side", [240, 20], ids=["by the thread", "at once"])
@pytest.mark.parametrize("before", [0, 2], ids=["first frame", "later frame"])
@pytest.mark.parametrize("what", ["add", "close", "add and close", "raise"])
def test_a_signal_handler_may_do_anything_at_any_line_of_add(
    run: Any, what: str, before: int, side: int
) -> None:
    frames = np.random.default_rng(1).integers(0, 256, (5, 200, side, 3), np.uint8)
    names = {frame.tobytes(): str(number) for number, frame in enumerate(frames)}
    always = "01"[:before] + "3" * ("close" not in what) + "4" * ("add" in what)

    def handler(recorder: VideoRecorder) -> None:
        if "add" in what:
            recorder.add(frames[4])
        if "close" in what:
            recorder.close()
        if what == "raise":
            raise StopHereError

    def film(at: int) -> str | None:
        """The numbers of the frames; None where `add` has fewer than `at` lines."""
        recorder = VideoRecorder("v", cover=True)
        for frame in frames[:before]:
            recorder.add(frame)
        there = len(run.jobs)
        reached = interrupted(lambda: recorder.add(frames[2]), at, lambda: handler(recorder))
        if "close" not in what:
            recorder.add(frames[3])
        recorder.close()
        if not reached:
            return None
        if len(run.jobs) == there:
            return ""
        _, fields = run.jobs[-1]
        content = (run.outbox.blobs_folder / fields["blob"]).read_bytes()
        size = frames[0].nbytes
        found = [content[size * n : size * (n + 1)] for n in range(fields["shape"][0])]
        return "".join(sorted(names.get(one, "?") for one in found))

    films = list(itertools.takewhile(lambda one: one is not None, map(film, itertools.count(1))))
    gc.collect()  # what an exception kept open
    assert len(films) > 20
    both = {always, "".join(sorted(f"{always}2"))}
    assert set(films) <= (both if what != "add" else both - {always})


def test_two_threads_may_add_to_one_film(run: Any) -> None:
    frames = noise(40)
    with VideoRecorder("v") as recorder:
        recorder.add(frames[0])
        threads = [
            threading.Thread(target=lambda part=part: deque(map(recorder.add, part)))
            for part in (frames[1:20], frames[20:])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    count, content = filmed(run)
    size = frames[0].nbytes
    assert sorted(content[size * n : size * (n + 1)] for n in range(count)) == sorted(
        frame.tobytes() for frame in frames
    )


def test_a_film_that_the_disk_does_not_take_is_lost_with_one_warning(run: Any) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    recorder = VideoRecorder("v")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * noise(1).nbytes, limit[1]))
    try:
        for frame in noise(20):
            recorder.add(frame)
        recorder.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert (run.jobs, run.files, list(run.outbox.blobs_folder.iterdir())) == ([], [], [])
    assert len(run.warnings) == 1
    assert "video 7-v.mp4 is lost" in run.warnings[0]


def test_frames_beyond_the_limit_are_left_out_and_counted(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_client.media.video_recorder.MAX_FRAMES", 2)
    with VideoRecorder("v.gif") as video:
        for _ in range(4):
            video.add(np.zeros((4, 4, 3), np.uint8))
    ((_, fields),) = run.jobs
    assert fields["shape"][0] == 2
    assert run.outbox.lost_others == 1
    assert run.outbox.losses[0].name == "7-v.gif"


def test_a_video_without_a_frame_has_no_path(run: Any) -> None:
    video = VideoRecorder("empty")
    assert video.close() == ""
    assert video.close() == "", "again"
    assert "has no frame" in run.warnings[0]
    assert run.outbox.lost_others == 0, "nothing was given"
    with VideoRecorder("one.gif") as video:
        video.add(np.zeros((4, 4, 3), np.uint8))
    assert video.close() == str(run.results / "7-one.gif")
