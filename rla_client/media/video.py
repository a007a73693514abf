"""Images and videos: what users have of them as raw pixels, and `VideoRecorder`.

Taken: numpy arrays, torch tensors, PIL images, and whatever numpy makes an array of. A video comes at once
or frame by frame; the agent's render process encodes it.
"""

from __future__ import annotations

import _thread
import fcntl
import importlib.util
import itertools
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from numbers import Real
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.contract.descriptors import OwnFile, lowest_own, open_high
from rla_client.contract.errors import ArgumentError
from rla_client.contract.jobs import FORMATS, JOB_VIDEO, MAX_FPS, MAX_FRAMES, MAX_RAW_BYTES, MAX_SIDE
from rla_client.media import jobs
from rla_client.media.jobs import Pixels

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from numpy.typing import NDArray

CHANNELS = (1, 3, 4)
TYPES = frozenset({
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
    "float64",
})  # fmt: skip
_BLOB_FLAGS = os.O_RDWR | os.O_CLOEXEC
BUFFERS = 3  # of frames on their way
LEAST_BEHIND = 128 << 10  # bytes of a frame; a smaller one is written as fast as it is handed over
MOST_BEHIND = (8 << 20) - 1  # of a larger one, too much would be held, and threads would share its copy


class VideoRecorder:
    """Saves videos as mp4 (default) or gif.

    All at once: `VideoRecorder.save("rollout", frames, fps=30)`. Frame by frame, with nothing
    kept in memory::

        with VideoRecorder("rollout", fps=30) as video:
            video.add(env.render())

    The time-step in the name is that of the creation. A recorder belongs to the process that made it: in a
    forked child it does nothing. Where no ffmpeg is found (package
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
        self._frame_bytes = 0
        self._places = itertools.count()  # each frame has one of its own, whatever comes in between
        self._done: list[int] = []  # the places whose frames are there
        self._room = 0  # bytes that the spool takes of the rest, as last heard
        self._files: list[tuple[OwnFile, str | None]] = []  # with the path of a blob; the first one is used
        self._behind = _WriteBehind()
        self._broken = self._place.stays
        self._lost = self._full = False
        self._closed = False
        self._adding: list[None] = []  # one for each `add` under way: a signal handler may add and close, too
        self._process = os.getpid()

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
        slots = jobs.pixel_sender(place.outbox)
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
        if self._place.unmade or os.getpid() != self._process:
            return
        pixels = image_pixels(frame)
        if self._shape is None:
            self._frame_bytes = pixels.total_bytes
            self._dtype = pixels.dtype
            self._shape = pixels.shape[1:]  # last: it says that all is set
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
        """Whether one more frame is within what a video may have; says once where it is not."""
        count = len(self._done) + 1
        if count <= MAX_FRAMES and count * self._frame_bytes <= MAX_RAW_BYTES:
            return True
        if not self._full:
            self._full = True
            most = f"{MAX_FRAMES} frames and {MAX_RAW_BYTES >> 30} GiB of pixels are taken"
            jobs.lose(
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
        jobs.check_room(0 if blob is None else self._room)
        place = next(self._places)
        self._write(pixels, number, place * self._frame_bytes)
        self._done.append(place)

    def _write(self, pixels: Pixels, number: int, at: int) -> None:
        if LEAST_BEHIND <= self._frame_bytes <= MOST_BEHIND and _has_cores():
            self._behind.start(number)
            if self._behind.take(pixels, at):
                return
        for chunk in pixels.chunks():
            at = jobs.write_all(number, chunk, at)

    def close(self) -> str:
        """Finish the video.

        Returns:
            The path; empty where there will be no file: no frame was added, or the video was lost.
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
        """Open a blob in the spool, which has a path, or a temp file without, if the caller will encode."""
        place = self._place
        folder = place.outbox.blobs_folder if place.outbox is not None and jobs.can_send(place) else None
        if folder is None:
            with tempfile.TemporaryFile() as unnamed:
                return OwnFile(os.dup(unnamed.fileno())), None
        path = folder / f"video-{secrets.token_hex(8)}"
        return OwnFile(open_high(path, _BLOB_FLAGS | os.O_CREAT | os.O_EXCL)), str(path)

    def _own(self) -> tuple[int, str | None]:
        """The descriptor of what the frames are written to; a blob that somebody closed is opened again.

        Raises:
            OSError: it is gone.
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
            jobs.warn_once("no frames", f"video {self._place.name} has no frame: no file is made")
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
            job = jobs.job_fields(self._place) | fields | {"blob": os.path.basename(blob)}
            self._files[0] = self._files[0][0], None  # the agent's from here on
            if outbox.job(JOB_VIDEO, job):
                return
            self._files[0] = self._files[0][0], blob
            jobs.warn_refused(outbox, JOB_VIDEO)
        with open(os.dup(number), "rb") as raw:
            jobs.encode_here(self._place, JOB_VIDEO, raw, fields)
        self._lost = not self._place.path.exists()

    def _closed_up(self, number: int, places: Sequence[int]) -> tuple[int, str | None]:
        """As `_own`, of a new file with these frames alone: an exception left places without one."""
        self._files.insert(0, self._open())
        made, blob = self._own()
        size = self._frame_bytes
        for new, place in enumerate(places):
            jobs.write_all(made, os.pread(number, size, place * size), new * size)
        return made, blob

    def _lose(self, error: OSError) -> None:
        self._broken = self._lost = True
        jobs.lose(JOB_VIDEO, self._place.name, error.strerror or str(error))

    def _drop_if_over(self) -> None:
        """Let go of everything once there is nothing to add, and no frame is being added."""
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


class _WriteBehind:
    """Puts frames into a film's file from a thread: a copy into warm memory takes a tenth of a write's time.

    Each write names its place in the file, so nobody ever waits for the thread: who needs a frame to be in
    the file writes the same bytes to the same place, and what finds no free buffer is written by the caller,
    as all is where there are no more threads or descriptors, or only one core. What the thread could not
    write stays pending until `finish` tries again.
    """

    def __init__(self) -> None:
        self._pending: dict[int, NDArray[np.uint8]] = {}  # by place in the file
        self._free: list[NDArray[np.uint8]] = []
        self._given: SimpleQueue[tuple[int, NDArray[np.uint8]] | None] = SimpleQueue()
        self._threads: list[None] = []  # it is one, but for signal handlers
        self._over = False  # no buffer is used again

    def start(self, number: int) -> None:
        """Start the thread, unless there is one, for the file that `number` leads to."""
        if self._threads:
            return
        with suppress(OSError, RuntimeError):
            file = OwnFile(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, lowest_own()))
            self._threads.append(None)
            try:
                _thread.start_new_thread(self._run, (file,))
            except RuntimeError:
                self._threads.pop()
                file.close()

    def take(self, pixels: Pixels, at: int) -> bool:
        """Copy a frame that belongs at byte `at`; False where the caller is to write it."""
        if self._over or not self._threads or len(self._pending) >= BUFFERS:
            return False
        try:
            buffer = self._free.pop()
        except IndexError:
            try:
                buffer = np.empty(pixels.total_bytes, np.uint8)
            except MemoryError:
                return False
        pixels.copy_into(buffer.data)
        self._pending[at] = buffer
        self._given.put((at, buffer))
        return True

    def finish(self, number: int) -> None:
        """Have all frames in the file, which `number` leads to as well. No more are taken.

        Raises:
            OSError: as write(2) says.
        """
        self._over = True
        for at, buffer in self._pending.copy().items():
            jobs.write_all(number, buffer.data, at)

    def end(self) -> None:
        """Let the thread end. Does no harm twice."""
        for _ in self._threads:
            self._given.put(None)

    def _run(self, file: OwnFile) -> None:
        with file:
            while (given := self._given.get()) is not None:
                at, buffer = given
                with suppress(OSError):
                    jobs.write_all(file.number, buffer.data, at)
                    del self._pending[at]
                    if not self._over:
                        self._free.append(buffer)


@cache
def _has_cores() -> bool:
    """Whether a thread would have a core of its own."""
    return len(os.sched_getaffinity(0)) > 1


def _video_place(
    name: str, cover: bool, add_timestamp: bool, results_dir: str | os.PathLike[str] | None
) -> jobs.Place:
    formats = FORMATS[JOB_VIDEO]
    text = jobs.name_text(name)
    nothing = jobs.makes_nothing(results_dir)
    if not nothing and not text.lower().endswith(".gif") and not _has_ffmpeg():
        jobs.warn_once("ffmpeg", _without_ffmpeg())
        formats = frozenset({"gif"})
        text = f"{text[:-4] if text.lower().endswith('.mp4') else text}.gif"
    return jobs.find_place(text, formats, cover=cover, add_timestamp=add_timestamp, results_dir=results_dir)


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


# -- pixels -----------------------------------------------------------------------------------------


def image_pixels(image: object) -> Pixels:
    """Pixels of one image, shape (H, W), (H, W, C) or (C, H, W).

    Raises:
        ArgumentError: it is not an image.
    """
    array = _frame(_as_array(image))
    return Pixels((1, *array.shape), _type_name(array.dtype), (array[None],))


def video_pixels(frames: object) -> Pixels:
    """Pixels of a video: an array (T, H, W), (T, H, W, C) or (T, C, H, W), or a sequence of images.

    Raises:
        ArgumentError: it is not a video, or its frames differ in shape or type.
    """
    if isinstance(frames, (list, tuple)):
        return _stacked(frames)
    array = _as_array(frames)
    if array.ndim == 3:  # noqa: PLR2004 - (T, H, W)
        array = array[..., None]
    if array.ndim != 4 or array.shape[0] == 0:  # noqa: PLR2004 - (T, H, W, C)
        raise ArgumentError(f"frames must have the shape (T, H, W, C), got {array.shape}")
    if array.shape[3] not in CHANNELS and array.shape[1] in CHANNELS:
        array = array.transpose(0, 2, 3, 1)
    _check(array[0])
    _check_total(len(array), array[0].nbytes)
    return Pixels(array.shape, array.dtype.name, (array,))


def _stacked(frames: Sequence[Any]) -> Pixels:
    arrays = [_frame(_as_array(frame)) for frame in frames]
    if not arrays:
        raise ArgumentError("a video needs at least one frame")
    first = arrays[0]
    _check_total(len(arrays), first.nbytes)
    for number, array in enumerate(arrays):
        if array.shape != first.shape or array.dtype != first.dtype:
            raise ArgumentError(
                f"frame {number} is {array.shape} {array.dtype}, the first one {first.shape} {first.dtype}"
            )
    return Pixels((len(arrays), *first.shape), first.dtype.name, tuple(array[None] for array in arrays))


def _check_total(frames: int, frame_bytes: int) -> None:
    if frames > MAX_FRAMES or frames * frame_bytes > MAX_RAW_BYTES:
        raise ArgumentError(
            f"a video has at most {MAX_FRAMES} frames and {MAX_RAW_BYTES >> 30} GiB of pixels, "
            f"got {frames} frames of {frame_bytes} bytes: record fewer frames, or smaller ones"
        )


def _as_array(value: Any) -> Any:  # noqa: ANN401 - anything an image may be
    if type(value) is np.ndarray:  # what most environments render: nothing to ask
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if hasattr(value, "detach"):
        try:
            value = value.detach().cpu()
            try:
                return value.numpy()
            except TypeError:  # bfloat16: numpy has no such type
                return value.float().numpy()
        except (NotImplementedError, RuntimeError, TypeError) as error:  # sparse, meta, quantised
            raise ArgumentError(f"this tensor cannot be read as an image: {error}") from error
    if hasattr(value, "getbands"):
        modes = {"1": "L", "LA": "RGBA", "PA": "RGBA", "P": "RGBA" if "transparency" in value.info else "RGB"}
        own = {"L", "RGB", "RGBA", "F", "I"}  # whose numbers are taken as they are
        wanted = modes.get(value.mode, value.mode if value.mode in own else "RGB")
        return np.asarray(value if value.mode == wanted else value.convert(wanted))
    array = np.asarray(value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _frame(array: NDArray[Any]) -> NDArray[Any]:
    """One frame as (H, W, C)."""
    if array.ndim == 2:  # noqa: PLR2004 - (H, W)
        array = array[..., None]
    if array.ndim == 3 and array.shape[2] not in CHANNELS and array.shape[0] in CHANNELS:  # noqa: PLR2004
        array = array.transpose(1, 2, 0)
    _check(array)
    return array


@cache
def _type_name(dtype: np.dtype[Any]) -> str:
    return str(dtype.name)  # put together by Python code each time


def _check(array: NDArray[Any]) -> None:
    if array.ndim != 3 or array.shape[2] not in CHANNELS or 0 in array.shape:  # noqa: PLR2004
        raise ArgumentError(
            f"an image must have the shape (H, W), (H, W, C) or (C, H, W) with C of 1, 3 or 4, "
            f"got {array.shape}"
        )
    if max(array.shape) > MAX_SIDE:
        raise ArgumentError(f"an image has at most {MAX_SIDE} x {MAX_SIDE} pixels, got {array.shape[:2]}")
    if _type_name(array.dtype) not in TYPES:
        raise ArgumentError(f"an image must hold plain numbers, got {array.dtype}")
