"""`VideoRecorder`: videos at once or frame by frame, encoded by the agent's render process."""

from __future__ import annotations

import _thread
import fcntl
import importlib.util
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from numbers import Real
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from rla_client.contract.descriptors import OwnFile, lowest_own, open_high
from rla_client.contract.errors import ArgumentError
from rla_client.contract.jobs import FORMATS, JOB_VIDEO, MAX_FPS
from rla_client.media import jobs
from rla_client.media.pixels import image_pixels, video_pixels

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    from rla_client.media.pixels import Pixels

_BLOB_FLAGS = os.O_RDWR | os.O_CLOEXEC
BUFFERS = 3  # of frames on their way
LEAST_BEHIND, MOST_BEHIND = (
    128 << 10,
    8 << 20,
)  # bytes of a frame: a smaller one is written at once, a larger one held


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
        self._behind: _WriteBehind | None = None
        self._blob: str | None = None
        self._broken = self._place.stays
        self._closed = False
        self._adding = False

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
        self._adding = True
        try:
            self._append(pixels)
        except OSError as error:
            self._lose(error)
        finally:
            self._adding = False
            self._drop_if_closed()  # by a signal handler

    def _append(self, pixels: Pixels) -> None:
        if self._file is None:
            self._file = self._open()
        number = self._own_number(self._file)
        self._room -= pixels.total_bytes
        if self._blob is not None and self._room < 0 and self._place.outbox is not None:
            self._room = self._place.outbox.blob_room - pixels.total_bytes
        jobs.check_room(0 if self._blob is None else self._room)
        self._write(pixels, number)
        self._count += 1

    def _write(self, pixels: Pixels, number: int) -> None:
        size = pixels.total_bytes
        at = self._count * size
        if LEAST_BEHIND <= size <= MOST_BEHIND:
            if self._behind is None:
                self._behind = _WriteBehind(number)
            if self._behind.take(pixels, at):
                return
        for chunk in pixels.chunks():
            at = jobs.write_all(number, chunk, at)

    def close(self) -> str:
        """Finish the video; nothing is written when it has no frame. Returns the path."""
        if not self._closed:
            self._closed = True
            try:
                if self._file is not None and not self._broken:
                    if self._behind is not None:
                        self._behind.finish(self._own_number(self._file))
                    self._finish(self._file)
            except OSError as error:
                self._lose(error)
            self._drop_if_closed()
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
        with open(os.dup(self._own_number(file)), "rb") as raw:
            jobs.encode_here(self._place, JOB_VIDEO, raw, fields)

    def _lose(self, error: OSError) -> None:
        self._broken = True
        jobs.warn_once("spool", f"video {self._place.name} is lost: {error.strerror or error}")
        self._drop()

    def _drop_if_closed(self) -> None:
        """Let go of everything, unless a frame is being added: a signal handler may close meanwhile."""
        if self._closed and not self._adding:
            self._drop()

    def _drop(self) -> None:
        if self._behind is not None:
            self._behind.end()
            self._behind = None
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

    def __del__(self) -> None:
        behind: _WriteBehind | None = getattr(self, "_behind", None)
        if behind is not None:  # never closed
            behind.end()


class _WriteBehind:
    """Puts frames into a film's file from a thread: a copy into warm memory takes a tenth of a write's time.

    Each write names its place in the file, so nobody ever waits for the thread: who needs a frame to be in
    the file writes the same bytes to the same place, and what finds no free buffer is written by the caller,
    as all is where there are no more threads or descriptors. What the thread could not write stays pending
    until `finish` tries again.

    Args:
        number: descriptor of the file.
    """

    def __init__(self, number: int) -> None:
        self._file: OwnFile | None = None
        self._pending: dict[int, NDArray[np.uint8]] = {}  # by place
        self._free: list[NDArray[np.uint8]] = []
        self._places: SimpleQueue[int | None] = SimpleQueue()
        self._owner = 0  # the process with the thread
        with suppress(OSError, RuntimeError):
            self._file = OwnFile(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, lowest_own()))
            _thread.start_new_thread(self._run, (self._file,))
            self._owner = os.getpid()

    def take(self, pixels: Pixels, at: int) -> bool:
        """Copy a frame that belongs at byte `at`; False where the caller is to write it."""
        if len(self._pending) >= BUFFERS or os.getpid() != self._owner:
            return False
        buffer = self._free.pop() if self._free else np.empty(pixels.total_bytes, np.uint8)
        pixels.copy_into(buffer.data)
        self._pending[at] = buffer
        self._places.put(at)
        return True

    def finish(self, number: int) -> None:
        """Have all frames in the file, which `number` leads to as well. None may come afterwards.

        Raises:
            OSError: as write(2) says.
        """
        for at, buffer in list(self._pending.items()):
            jobs.write_all(number, buffer.data, at)

    def end(self) -> None:
        """Let the thread end. Does no harm twice."""
        if os.getpid() == self._owner:
            self._places.put(None)
        elif self._file is not None:
            self._file.close()

    def _run(self, file: OwnFile) -> None:
        while (at := self._places.get()) is not None:
            with suppress(OSError):
                jobs.write_all(file.number, self._pending[at].data, at)
                self._free.append(self._pending.pop(at))
        file.close()


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
