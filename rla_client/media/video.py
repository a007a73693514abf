"""`VideoRecorder`: videos at once or frame by frame, encoded by the agent's render process."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING

from rla_client.contract.descriptors import OwnFile, open_high
from rla_client.contract.errors import ArgumentError
from rla_client.contract.jobs import FORMATS, JOB_VIDEO, MAX_FPS
from rla_client.media import jobs
from rla_client.media.pixels import image_pixels, video_pixels

if TYPE_CHECKING:
    from types import TracebackType

_BLOB_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class VideoRecorder:
    """Saves videos as mp4 (default) or gif.

    All at once: `VideoRecorder.save("rollout", frames, fps=30)`. Frame by frame, with nothing
    kept in memory::

        with VideoRecorder("rollout", fps=30) as video:
            video.add(env.render())

    The time-step in the name is that of the creation. Where no ffmpeg is found (package
    imageio-ffmpeg or on the PATH) a gif is written instead of an mp4, with one warning.

    Args:
        name: below the results folder, mp4 without a known extension.
        fps: frames per second, up to 1000.
        cover: replace a file with an explicit extension.
        add_timestamp: put the time-step before the name.
        results_dir: another folder; outside of the run's, the caller encodes.

    Raises:
        ArgumentError: the name or fps cannot be meant.
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
        self._count = 0
        self._room = 0  # bytes that the spool takes of the rest, as last heard
        self._file: OwnFile | None = None
        self._blob: str | None = None
        self._broken = self._place.stays
        self._closed = False

    @property
    def path(self) -> str:
        """Where the file will be."""
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
        """Save a video that is there as a whole.

        Args:
            name: below the results folder, mp4 without a known extension.
            frames: shape (T, H, W, C), (T, C, H, W) or (T, H, W), or a sequence of images; values
                as for `ImgRecorder.save`, floats judged over all frames.
            fps: frames per second.
            cover: replace a file with an explicit extension.
            add_timestamp: put the time-step before the name.
            results_dir: another folder; outside of the run's, the caller encodes.

        Returns:
            The path of the file.

        Raises:
            ArgumentError: the name, fps or frames cannot be meant.
            NotConfiguredError: no run is open and no results_dir is given.
        """
        place = _video_place(name, cover, add_timestamp, results_dir)
        checked = _check_fps(fps)
        if place.unmade:
            return str(place.path)
        pixels = video_pixels(frames)
        if not place.stays:
            jobs.record_pixels(place, JOB_VIDEO, pixels, checked)
        return str(place.path)

    @classmethod
    def prepare(cls, shape: tuple[int, ...], item_bytes: int = 1) -> None:
        """Say in advance how large videos will be, so that the first `save` is as fast as later ones.

        Args:
            shape: (T, H, W, C).
            item_bytes: bytes of one number, 1 for uint8.
        """
        size = item_bytes
        for side in shape:
            size *= int(side)
        place = _video_place("prepare", cover=False, add_timestamp=False, results_dir=None)
        slots = jobs.pixel_sender(place)
        if slots is not None:
            slots.prepare(size)

    def add(self, frame: object) -> None:
        """Append one frame, as `ImgRecorder.save` takes images.

        Raises:
            ArgumentError: it is not an image, differs in shape or type from the first, or the
                recorder is closed.
        """
        if self._closed:
            raise ArgumentError("this video is closed")
        if self._place.unmade:
            return
        pixels = image_pixels(frame)
        if self._shape is None:
            self._shape, self._dtype = pixels.shape[1:], pixels.dtype
        elif (self._shape, self._dtype) != (pixels.shape[1:], pixels.dtype):
            raise ArgumentError(
                f"frame {self._count} is {pixels.shape[1:]} {pixels.dtype}, "
                f"the first one {self._shape} {self._dtype}"
            )
        if self._broken:
            return
        try:
            if self._file is None:
                self._file = self._open()
            number = self._own_number(self._file)
            self._room -= pixels.total_bytes
            if self._blob is not None and self._room < 0 and self._place.outbox is not None:
                self._room = self._place.outbox.blob_room - pixels.total_bytes
            for chunk in pixels.chunks():
                jobs.write_within(0 if self._blob is None else self._room, number, chunk)
        except OSError as error:
            self._broken = True
            jobs.warn_once("spool", f"video {self._place.name} is lost: {error.strerror or error}")
            self._drop()
            return
        self._count += 1

    def close(self) -> str:
        """Finish the video; nothing is written when it has no frame. Returns the path."""
        if not self._closed:
            self._closed = True
            if self._file is not None and not self._broken:
                self._finish(self._file)
            self._drop()
        return self.path

    def _open(self) -> OwnFile:
        """Open a blob in the spool, or an unnamed temp file where the caller will encode."""
        place = self._place
        folder = place.outbox.blobs_folder if place.outbox is not None and jobs.can_send(place) else None
        if folder is None:
            with tempfile.TemporaryFile() as unnamed:
                return OwnFile(os.dup(unnamed.fileno()))
        path = folder / f"video-{secrets.token_hex(8)}"
        file = OwnFile(open_high(path, _BLOB_FLAGS | os.O_CREAT | os.O_EXCL))
        self._blob = str(path)
        return file

    def _own_number(self, file: OwnFile) -> int:
        """The descriptor of what the frames are written to; a blob that somebody closed is opened again.

        Raises:
            OSError: it is gone.
        """
        try:
            return file.number
        except OSError:
            if self._blob is None:
                raise
            self._file = OwnFile(os.open(self._blob, _BLOB_FLAGS))
            return self._file.number

    def _finish(self, file: OwnFile) -> None:
        assert self._shape is not None
        fields = {"shape": [self._count, *self._shape], "dtype": self._dtype, "fps": self._fps}
        outbox = self._place.outbox
        if self._blob is not None and outbox is not None:
            job = jobs.job_fields(self._place) | fields | {"blob": os.path.basename(self._blob)}
            blob, self._blob = self._blob, None  # the agent's from here on
            if outbox.job(JOB_VIDEO, job):
                return
            self._blob = blob
            jobs.warn_full(JOB_VIDEO)
        try:
            raw = open(os.dup(self._own_number(file)), "rb")  # noqa: SIM115 - closed below
        except OSError as error:
            jobs.warn_once("spool", f"video {self._place.name} is lost: {error.strerror or error}")
            return
        with raw:
            jobs.encode_here(self._place, JOB_VIDEO, raw, fields)

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._blob is not None:
            with suppress(OSError):
                os.unlink(self._blob)
            self._blob = None

    def __enter__(self) -> VideoRecorder:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _video_place(
    name: str, cover: bool, add_timestamp: bool, results_dir: str | os.PathLike[str] | None
) -> jobs.Place:
    formats = FORMATS[JOB_VIDEO]
    text = jobs.name_text(name)
    nothing = jobs.makes_nothing(results_dir)
    if not nothing and not text.lower().endswith(".gif") and not _has_ffmpeg():
        jobs.warn_once("ffmpeg", "no ffmpeg (pip install imageio-ffmpeg): videos are written as gif")
        formats = frozenset({"gif"})
        text = text[:-4] if text.lower().endswith(".mp4") else text
        return jobs.find_place(
            f"{text}.gif", formats, cover=cover, add_timestamp=add_timestamp, results_dir=results_dir
        )
    return jobs.find_place(text, formats, cover=cover, add_timestamp=add_timestamp, results_dir=results_dir)


@cache
def _has_ffmpeg() -> bool:
    return importlib.util.find_spec("imageio_ffmpeg") is not None or shutil.which("ffmpeg") is not None


def _check_fps(fps: object) -> float:
    number = float(fps) if not isinstance(fps, bool) and isinstance(fps, Real) else 0.0
    if not 0 < number <= MAX_FPS:
        raise ArgumentError(f"fps must be a number above 0 and up to {MAX_FPS:.0f}, got {fps!r}")
    return number
