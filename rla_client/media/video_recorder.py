"""Recorder of videos.

The agent's render process encodes them. The import of this module says that the process will record videos:
memory for the first one is made ready in the background.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING

from rla_client.contract.errors import ArgumentError
from rla_client.contract.job.media_job import FORMATS, JOB_VIDEO, MAX_FPS, MAX_FRAMES, MAX_RAW_BYTES
from rla_client.contract.process.descriptors import OwnFile, open_high
from rla_client.media import job_sender, recording_place, recording_target
from rla_client.media.pixel_sender import Pixels
from rla_client.media.pixels import image_pixels, video_pixels
from rla_client.media.write_behind import WriteBehind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType


recording_target.expect_videos()
_BLOB_FLAGS = os.O_RDWR | os.O_CLOEXEC
LEAST_BEHIND = 128 << 10  # bytes of a frame; writing a smaller one is as fast as handing it over
MOST_BEHIND = (8 << 20) - 1  # buffers for larger frames would take too much memory


class VideoRecorder:
    """Saves videos as mp4 (default) or gif.

    A complete video: `VideoRecorder.save("rollout", frames, fps=30)`. Frame by frame, without keeping them in
    memory::

        with VideoRecorder("rollout", fps=30) as video:
            video.add(env.render())

    The time-step in the name is that of the recorder's creation. In a forked child, a recorder does nothing.
    Without ffmpeg (from the package imageio-ffmpeg or PATH), a gif is written instead of an mp4, with one
    warning.

    Args:
        name: below the results folder, mp4 without a known extension.
        fps: frames per second, up to 1000.
        cover: replace a file with an explicit extension.
        add_timestamp: put the time-step before the name.
        results_dir: another folder; outside of the run's results, the caller encodes.

    Raises:
        ArgumentError: the name or fps is invalid.
        NotConfiguredError: no run is open and no results_dir is given.
    """

    def __init__(
        self,
        name: str,
        fps: float = 30.0,
        cover: bool = False,
        add_timestamp: bool = True,
        results_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._place = _video_place(name, cover, add_timestamp, results_dir)
        self._fps = _check_fps(fps)
        self._shape: tuple[int, int, int] | None = None
        self._dtype = ""
        self._frame_bytes = 0
        self._places = itertools.count()  # each frame gets a place of its own, even in a signal handler
        self._done: list[int] = []  # places of frames that are written
        self._room = 0  # bytes left in the spool, as of the last check
        self._files: list[tuple[OwnFile, str | None]] = []  # with the path of a blob; the first one is in use
        self._behind = WriteBehind()
        self._broken = self._place.stays
        self._lost = self._full = False
        self._closed = False
        self._adding: list[None] = []  # an entry for each `add` in progress, as signal handlers may add too
        self._process = os.getpid()

    @property
    def path(self) -> str:
        """The path of the file that will be made."""
        return str(self._place.path)

    @classmethod
    def save(
        cls,
        name: str,
        frames: object,
        fps: float = 30.0,
        cover: bool = False,
        add_timestamp: bool = True,
        results_dir: str | os.PathLike[str] | None = None,
    ) -> str:
        """Save a complete video.

        Args:
            name: below the results folder, mp4 without a known extension.
            frames: shape (T, H, W, C), (T, C, H, W) or (T, H, W), or a sequence of images; values as for
                `ImgRecorder.save`, where the range of floats is that of all frames.
            fps: frames per second.
            cover: replace a file with an explicit extension.
            add_timestamp: put the time-step before the name.
            results_dir: another folder; outside of the run's results, the caller encodes.

        Returns:
            The path of the file.

        Raises:
            ArgumentError: the name, fps or frames are invalid.
            NotConfiguredError: no run is open and no results_dir is given.
        """
        place = _video_place(name, cover, add_timestamp, results_dir)
        checked = _check_fps(fps)
        if place.unmade:
            return str(place.path)
        pixels = video_pixels(frames)
        if not place.stays:
            job_sender.record_pixels(place, JOB_VIDEO, pixels, checked)
        return str(place.path)

    @classmethod
    def prepare(cls, shape: tuple[int, ...], item_bytes: int = 1) -> None:
        """Prepare memory for videos of this size, so that the first `save` is as fast as later ones.

        Args:
            shape: (T, H, W, C).
            item_bytes: bytes of one number, 1 for uint8.
        """
        size = item_bytes
        for side in shape:
            size *= int(side)
        place = _video_place("prepare", cover=False, add_timestamp=False, results_dir=None)
        slots = recording_target.pixel_sender(place.outbox)
        if slots is not None:
            slots.prepare(size)

    def add(self, frame: object) -> None:
        """Append one frame, an image as for `ImgRecorder.save`.

        Raises:
            ArgumentError: the frame is not an image, its shape or type differs from those of the first frame,
                or the recorder is closed.
        """
        if self._closed:
            raise ArgumentError("this video is closed")
        if self._place.unmade or os.getpid() != self._process:
            return
        pixels = image_pixels(frame)
        if self._shape is None:
            self._frame_bytes = pixels.total_bytes
            self._dtype = pixels.dtype
            self._shape = pixels.shape[1:]  # last, as it marks the others as set
        elif (self._shape, self._dtype) != (pixels.shape[1:], pixels.dtype):
            raise ArgumentError(
                f"frame {len(self._done)} is {pixels.shape[1:]} {pixels.dtype}, "
                f"the first one {self._shape} {self._dtype}"
            )
        if self._broken or not self._has_room():
            return
        self._adding.append(None)
        try:
            self._append(pixels)
        except OSError as error:
            self._lose(error)
        finally:
            self._adding.pop()
            self._drop_if_over()

    def _has_room(self) -> bool:
        """Whether one more frame is within the limits of a video; warns once if not."""
        count = len(self._done) + 1
        if count <= MAX_FRAMES and count * self._frame_bytes <= MAX_RAW_BYTES:
            return True
        if not self._full:
            self._full = True
            most = f"{MAX_FRAMES} frames and {MAX_RAW_BYTES >> 30} GiB of pixels are taken"
            recording_target.lose(
                "frames of video",
                self._place.name,
                f"those after the first {len(self._done)}: at most {most}",
            )
        return False

    def _append(self, pixels: Pixels) -> None:
        if not self._files:
            self._files.append(self._open())
        number, blob = self._own()
        self._room -= self._frame_bytes
        if blob is not None and self._room < 0 and self._place.outbox is not None:
            self._room = self._place.outbox.blob_room - self._frame_bytes
        job_sender.check_room(0 if blob is None else self._room)
        place = next(self._places)
        self._write(pixels, number, place * self._frame_bytes)
        self._done.append(place)

    def _write(self, pixels: Pixels, number: int, at: int) -> None:
        if LEAST_BEHIND <= self._frame_bytes <= MOST_BEHIND and _has_cores():
            self._behind.start(number)
            if self._behind.take(pixels, at):
                return
        for chunk in pixels.chunks():
            at = job_sender.write_all(number, chunk, at)

    def close(self) -> str:
        """Finish the video.

        Returns:
            The path; empty if no file will be made, as no frame was added or the video was lost.
        """
        if not self._closed:
            self._closed = True
            try:
                if os.getpid() == self._process and not self._broken:
                    self._finish()
            except OSError as error:
                self._lose(error)
            finally:
                self._drop_if_over()
        return "" if self._lost else self.path

    def _open(self) -> tuple[OwnFile, str | None]:
        """Open a blob of the spool, with its path, or an unnamed temporary file if the caller will encode."""
        place = self._place
        folder = (
            place.outbox.blobs_folder if place.outbox is not None and job_sender.can_send(place) else None
        )
        if folder is None:
            with tempfile.TemporaryFile() as unnamed:
                return OwnFile(os.dup(unnamed.fileno())), None
        path = folder / f"video-{secrets.token_hex(8)}"
        return OwnFile(open_high(path, _BLOB_FLAGS | os.O_CREAT | os.O_EXCL)), str(path)

    def _own(self) -> tuple[int, str | None]:
        """The descriptor of the file with the frames; if other code closed it, the blob is opened again.

        Raises:
            OSError: the file is gone.
        """
        file, blob = self._files[0]
        try:
            return file.number, blob
        except OSError:
            if blob is None:
                raise
            file.replace(os.open(blob, _BLOB_FLAGS))
            return file.number, blob

    def _finish(self) -> None:
        if not self._files or not self._done:
            self._lost = True
            recording_target.warn_once("no frames", f"video {self._place.name} has no frame: no file is made")
            return
        number, blob = self._own()
        self._behind.finish(number)
        places = sorted(self._done)
        if places[-1] >= len(places):
            number, blob = self._closed_up(number, places)
        os.ftruncate(number, len(places) * self._frame_bytes)
        assert self._shape is not None
        fields = {"shape": [len(places), *self._shape], "dtype": self._dtype, "fps": self._fps}
        outbox = self._place.outbox
        if blob is not None and outbox is not None:
            job = job_sender.job_fields(self._place) | fields | {"blob": os.path.basename(blob)}
            self._files[0] = self._files[0][0], None  # the agent owns the blob now
            if outbox.job(JOB_VIDEO, job):
                return
            self._files[0] = self._files[0][0], blob
            job_sender.warn_refused(outbox, JOB_VIDEO)
        with open(os.dup(number), "rb") as raw:
            job_sender.encode_here(self._place, JOB_VIDEO, raw, fields)
        self._lost = not self._place.path.exists()

    def _closed_up(self, number: int, places: Sequence[int]) -> tuple[int, str | None]:
        """As `_own`, for a new file without gaps; an exception during `add` left places without a frame."""
        self._files.insert(0, self._open())
        made, blob = self._own()
        size = self._frame_bytes
        for new, place in enumerate(places):
            job_sender.write_all(made, os.pread(number, size, place * size), new * size)
        return made, blob

    def _lose(self, error: OSError) -> None:
        self._broken = self._lost = True
        recording_target.lose(JOB_VIDEO, self._place.name, error.strerror or str(error))

    def _drop_if_over(self) -> None:
        """Release all files if the recorder is closed or broken and no `add` is in progress."""
        if (self._closed or self._broken) and not self._adding:
            self._drop()

    def _drop(self) -> None:
        self._behind.end()
        while self._files:
            file, blob = self._files.pop()
            file.close()
            if blob is not None and os.getpid() == self._process:
                with suppress(OSError):
                    os.unlink(blob)

    def __enter__(self) -> VideoRecorder:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self._drop()


@cache
def _has_cores() -> bool:
    """Whether a thread would have a core of its own."""
    return len(os.sched_getaffinity(0)) > 1


def _video_place(
    name: str, cover: bool, add_timestamp: bool, results_dir: str | os.PathLike[str] | None
) -> recording_place.RecordingPlace:
    formats = FORMATS[JOB_VIDEO]
    text = recording_place.name_text(name)
    nothing = recording_target.makes_nothing(results_dir)
    if not nothing and not text.lower().endswith(".gif") and not _has_ffmpeg():
        recording_target.warn_once("ffmpeg", _without_ffmpeg())
        formats = frozenset({"gif"})
        text = f"{text[:-4] if text.lower().endswith('.mp4') else text}.gif"
    return recording_place.find_place(
        text, formats, cover=cover, add_timestamp=add_timestamp, results_dir=results_dir
    )


def _without_ffmpeg() -> str:
    if importlib.util.find_spec("PIL") is not None:
        return "no ffmpeg (pip install 'rla-agent[media]'): videos are written as gif"
    return "neither ffmpeg nor Pillow: videos are lost; pip install 'rla-agent[media]'"


@cache
def _has_ffmpeg() -> bool:
    return importlib.util.find_spec("imageio_ffmpeg") is not None or shutil.which("ffmpeg") is not None


def _check_fps(fps: object) -> float:
    number = float(fps) if not isinstance(fps, bool) and isinstance(fps, Real) else 0.0
    if not 0 < number <= MAX_FPS:
        raise ArgumentError(f"fps must be a number above 0 and up to {MAX_FPS:.0f}, got {fps!r}")
    return number
