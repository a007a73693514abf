"""How the making of a figure, image or video is handed to the agent, or done by the caller.

`bind` says which run is open. `find_place` turns a user's name into a file of its results folder.
Then one of: `send_blob` (payload into a spool blob, then the JOB frame), `record_pixels` (raw
pixels into shared memory if a warm slot is free, else a blob), or `make_here`, in the caller.
Nothing here raises because of disk, agent or spool: that is a warning, once for each reason.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from rla_client.contract.descriptors import open_high
from rla_client.contract.errors import ArgumentError, NotConfiguredError, PlaceError
from rla_client.contract.files import NEW_FLAGS, atomic_file
from rla_client.contract.jobs import ARENA_FOLDER, JOB_IMAGE
from rla_client.contract.layout import check_relative
from rla_client.contract.paths import program_problem
from rla_client.media import render
from rla_client.stream import scope
from rla_client.stream.arena import Slot, SlotSender
from rla_client.stream.clock import time_step_holder
from rla_client.stream.memory import Copy, copy_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from typing_extensions import Buffer

MIN_SLOT_BYTES = 1 << 20  # below, a blob in the spool costs less than a millisecond
FIRST_VIDEO_BYTES = 64 << 20  # 300 frames of 256 x 256 RGB are 59 MB
PREPARED_WAIT_S = 0.1  # for a slot that is being made: cold memory would take as long
AGENT_START_S = 10.0  # an agent that was started with the run may still be on its way


class JobOutbox(Protocol):
    """What is needed of the outbox."""

    @property
    def stream_folder(self) -> Path | None:
        """Folder of this process's stream; its name is the stream's."""

    @property
    def blobs_folder(self) -> Path | None:
        """Folder for payloads; None while there is no spool, or no room in it."""

    @property
    def blob_room(self) -> int:
        """Bytes that one more payload may have."""

    @property
    def why_refused(self) -> str:
        """Why a job was not taken."""

    def job(self, kind: str, fields: dict[str, Any]) -> bool:
        """Append one JOB frame; False when nobody will do the job."""

    def file(self, kind: str, path: str, content: bytes) -> bool:
        """Have the agent keep a small file of the item; False when it will not."""

    def lose(self, kind: str, name: str, reason: str) -> None:
        """Count something that could not be kept."""

    def agent_alive(self, *, memory: bool = False) -> bool:
        """Whether an agent serves this machine; with `memory`, one that sees our /dev/shm."""


@dataclass(frozen=True, slots=True)
class RecordingTarget:
    """Where the recorders put things.

    Attributes:
        results_dir: the run's item folder of the kind `results`; None where it stores nothing.
        outbox: the run's stream; None when the caller does everything.
        warn: gets each warning's text.
        temporary: gives a temporary folder for the names of files that are not made, because the run
            stores nothing.
        outside: such a run makes files that go into a folder of the caller's all the same.
    """

    results_dir: Path | None
    outbox: JobOutbox | None
    warn: Callable[[str], None]
    temporary: Callable[[], str] | None = None
    outside: bool = False


@dataclass(slots=True)
class _State:
    target: RecordingTarget | None = None
    bound_at: float = 0.0
    warned: set[str] | None = None
    slots: PixelSender | None = None


_state = scope.Part(_State)
_expects_videos = False  # in this process


def bind(target: RecordingTarget | None, where: scope.Scope | None = None) -> None:
    """Say which run the recorders belong to; called when a run is opened and closed, in its scope."""
    state = _state.of(where or scope.current())
    state.target = target
    state.bound_at = time.monotonic()
    state.warned = set()
    if state.slots is not None and (target is None or target.outbox is not state.slots.outbox):
        state.slots.close()
        state.slots = None
    if target is not None and _expects_videos:
        _prepare_first(target)


def is_bound() -> bool:
    """Whether a run is open that recorders belong to."""
    return _state().target is not None


def lose(kind: str, name: str, reason: str) -> None:
    """Warn that something will not be there, and count it among what the run lost."""
    warn_once(f"lost {kind}: {reason}", f"{kind} {name} is lost: {reason}")
    target = _state().target
    if target is not None and target.outbox is not None:
        target.outbox.lose(kind, name, reason)


def expect_videos() -> None:
    """Say that this process will record videos: memory for the first one is made ready in the background."""
    global _expects_videos  # noqa: PLW0603 - of the process
    if not _expects_videos:
        _expects_videos = True
        if (target := _state().target) is not None:
            _prepare_first(target)


def _prepare_first(target: RecordingTarget) -> None:
    slots = pixel_sender(target.outbox)
    if slots is not None:
        slots.prepare_one([FIRST_VIDEO_BYTES >> shift for shift in range(5)])


@dataclass(frozen=True, slots=True)
class Place:
    """One file to be made.

    Attributes:
        folder: where `name` starts from.
        name: relative path with extension.
        format: what to encode.
        cover: True replaces a file of this name.
        outbox: the stream to send the job through; None when the caller makes the file.
        unmade: True where no file is made at all.
    """

    folder: Path
    name: str
    format: str
    cover: bool
    outbox: JobOutbox | None
    unmade: bool = False

    @property
    def path(self) -> Path:
        """The final path."""
        return self.folder / self.name

    @property
    def stays(self) -> bool:
        """True when there is nothing to make: a file that is not to be replaced, or all is dropped."""
        return self.unmade or (not self.cover and self.path.exists())


def find_place(
    name: str | os.PathLike[str],
    formats: frozenset[str],
    *,
    cover: bool,
    add_timestamp: bool,
    results_dir: str | os.PathLike[str] | None,
    format_: str | None = None,
) -> Place:
    """Work out where a file goes and how it is encoded.

    Args:
        name: below the results folder; parts before the last are folders.
        formats: extensions that can be encoded; the default is mp4 if it is among them, else png.
        cover: replace a file with an explicit extension.
        add_timestamp: put the time-step before the last part.
        results_dir: another folder than the run's.
        format_: encode this whatever the name's extension.

    Raises:
        ArgumentError: the name or format cannot be meant.
        NotConfiguredError: no run is open and no results_dir is given.
    """
    parts = list(check_relative(name_text(name), what="name"))
    extension = os.path.splitext(parts[-1])[1][1:].lower()
    explicit = extension in formats
    chosen = (format_ or (extension if explicit else "mp4" if "mp4" in formats else "png")).lower()
    if chosen not in formats:
        raise ArgumentError(f"format {chosen!r} is none of {', '.join(sorted(formats))}")
    if not explicit:
        parts[-1] += f".{chosen}"
    if add_timestamp:
        parts[-1] = f"{time_step_holder.get_time()}-{parts[-1]}"
    folder, outbox, above = _folder_of(results_dir)
    full = "/".join([*above, *parts])
    check_relative(full, what="name")
    return Place(folder, full, chosen, cover or not explicit, outbox, makes_nothing(results_dir))


def _folder_of(results_dir: str | os.PathLike[str] | None) -> tuple[Path, JobOutbox | None, tuple[str, ...]]:
    """The folder that names start from, its stream, and parts to put before a name.

    Raises:
        NotConfiguredError: no run is open and no results_dir is given.
    """
    target = _state().target
    if results_dir is None:
        if target is None:
            raise NotConfiguredError("no run is open: call log_files_gen() first, or give results_dir")
        if target.results_dir is None:
            return Path(target.temporary() if target.temporary is not None else "."), None, ()
        return target.results_dir, target.outbox, ()
    folder = Path(os.path.abspath(results_dir))
    own = None if target is None else target.results_dir
    if target is not None and own is not None and folder.is_relative_to(own):
        return own, target.outbox, folder.relative_to(own).parts
    return folder, None, ()


def makes_nothing(results_dir: object = None) -> bool:
    """Whether the open run stores nothing, so that figures and media are neither drawn nor looked at."""
    target = _state().target
    return target is not None and target.temporary is not None and (results_dir is None or not target.outside)


def name_text(name: object) -> str:
    """A user's file name as text.

    Raises:
        ArgumentError: it is neither text nor a path.
    """
    if isinstance(name, (str, os.PathLike)):
        text = os.fspath(name)
        if isinstance(text, str):
            return text
    raise ArgumentError(f"name must be text, got {type(name).__name__}")


def warn_once(reason: str, text: str) -> None:
    """Warn, once for each reason and run."""
    state = _state()
    target, warned = state.target, state.warned
    if warned is not None:
        if reason in warned:
            return
        warned.add(reason)
    if target is not None:
        target.warn(text)
    else:
        import warnings  # noqa: PLC0415 - only without a run

        warnings.warn(text, RuntimeWarning, stacklevel=3)


def can_send(place: Place) -> bool:
    """Whether the agent can be given the job; says once why not."""
    if place.outbox is None:
        return False
    problem = _own_interpreter_problem()
    if problem is not None:
        warn_once("interpreter", f"figures and media are made by the training process: {problem}")
        return False
    starting = time.monotonic() - _state().bound_at < AGENT_START_S
    if place.outbox.agent_alive() or starting:
        return True
    warn_once(
        "agent", "no agent runs: figures and media are made by the training process, which waits for them"
    )
    return False


@cache
def _own_interpreter_problem() -> PlaceError | None:
    """Why the agent would not draw with this interpreter: somebody else can exchange it."""
    return program_problem(sys.executable) if os.path.exists(sys.executable or "") else None


def send_blob(place: Place, kind: str, chunks: Iterable[Any], fields: dict[str, Any]) -> bool:
    """Write a blob and its job frame; False, with a warning, when the spool takes none."""
    outbox = place.outbox
    folder = None if outbox is None else outbox.blobs_folder
    if outbox is None or folder is None:
        return False
    blob = f"{kind}-{secrets.token_hex(8)}"
    try:
        descriptor = open_high(folder / blob, NEW_FLAGS)
        try:
            room, end = outbox.blob_room, 0
            for chunk in chunks:
                room -= memoryview(chunk).nbytes
                check_room(room)
                end = write_all(descriptor, chunk, end)
        finally:
            os.close(descriptor)
    except OSError as error:
        with suppress(OSError):
            os.unlink(folder / blob)
        warn_once("spool", f"the spool takes no {kind} ({error.strerror}): the training process makes it")
        return False
    if not outbox.job(kind, job_fields(place) | fields | {"blob": blob}):
        with suppress(OSError):
            os.unlink(folder / blob)
        warn_refused(outbox, kind)
        return False
    return True


def warn_refused(outbox: JobOutbox, kind: str) -> None:
    """Say once why the stream takes no job: the spool is full, or the run has ended."""
    why = outbox.why_refused
    warn_once(why, f"{why} and takes no {kind}: the training process makes it")


def check_room(room: int) -> None:
    """Refuse a payload after which `room` bytes would be left, where that is negative.

    Raises:
        OSError: it is.
    """
    if room < 0:
        raise OSError(errno.EDQUOT, "AGENT.spool_max_bytes is reached")


def write_all(descriptor: int, data: Buffer, at: int) -> int:
    """Write a buffer whole from byte `at` on; returns where it ends.

    Raises:
        OSError: as write(2) says.
    """
    rest = memoryview(data).cast("B")
    while len(rest):
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written
    return at


def job_fields(place: Place) -> dict[str, Any]:
    """What every job says about its file."""
    return {"name": place.name, "format": place.format, "cover": place.cover}


def make_here(place: Place, kind: str, draw: Callable[[BinaryIO], object]) -> None:
    """Make the file in this process; a failing disk is a warning, other errors are the caller's."""
    target = _state().target
    try:
        if target is None or place.folder != target.results_dir:
            place.folder.mkdir(parents=True, exist_ok=True)
        if not place.folder.is_dir():
            raise FileNotFoundError(None, "the results folder is gone", str(place.folder))
        place.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(place.path, durable=False) as file:
            draw(file)
    except OSError as error:
        lose(kind, place.name, f"{place.path} could not be written: {error.strerror or error}")


@dataclass(frozen=True, slots=True)
class Pixels:
    """Raw pixels of an image or video, C-ordered, without a copy until they are written.

    Attributes:
        shape: (T, H, W, C); one frame for an image.
        dtype: name of a plain type of numpy.
        parts: arrays of shape (t, H, W, C) whose t add up to T.
    """

    shape: tuple[int, int, int, int]
    dtype: str
    parts: tuple[Any, ...]

    @property
    def total_bytes(self) -> int:
        """Size of the C-ordered array."""
        return sum(part.nbytes for part in self.parts)

    def chunks(self) -> Iterator[Any]:
        """The C-ordered bytes, part by part."""
        import numpy as np  # noqa: PLC0415 - who has pixels has it

        return (np.ascontiguousarray(part).reshape(-1).view(np.uint8).data for part in self.parts)

    def copy_into(self, memory: memoryview) -> None:
        """Write the whole array into `memory` of `total_bytes`; no thread writes there afterwards."""
        import numpy as np  # noqa: PLC0415 - who has pixels has it

        flat = np.frombuffer(memory, np.uint8)
        if all(part.flags.c_contiguous for part in self.parts):
            copy_memory(_copies(self.parts, flat.ctypes.data))
            return
        start = 0
        for part in self.parts:
            target = flat[start : start + part.nbytes].view(part.dtype).reshape(part.shape)
            np.copyto(target, part)
            start += part.nbytes


def _copies(parts: Iterable[Any], to: int) -> list[Copy]:
    """(destination, source, bytes) of arrays that come to lie one after the other from address `to` on."""
    jobs = []
    for part in parts:
        jobs.append((to, part.__array_interface__["data"][0], part.nbytes))
        to += part.nbytes
    return jobs


def record_pixels(place: Place, kind: str, pixels: Pixels, fps: float) -> None:
    """Send raw pixels to the agent, or encode them here."""
    fields = {"shape": list(pixels.shape), "dtype": pixels.dtype, "fps": fps}
    if can_send(place) and _send_pixels(place, kind, pixels, fields):
        return
    encode_here(place, kind, io.BytesIO(b"".join(pixels.chunks())), fields)


def encode_here(place: Place, kind: str, raw: BinaryIO, fields: dict[str, Any]) -> None:
    """Encode raw pixels in this process."""
    request = fields | {"format": place.format, "offset": 0}
    encode = render.encode_image if kind == JOB_IMAGE else render.encode_video
    make_here(place, kind, lambda file: encode(raw, file, request))


def _send_pixels(place: Place, kind: str, pixels: Pixels, fields: dict[str, Any]) -> bool:
    slots = pixel_sender(place.outbox) if pixels.total_bytes >= MIN_SLOT_BYTES else None
    if slots is None:
        return send_blob(place, kind, pixels.chunks(), fields)
    sent = slots.send(kind, pixels, job_fields(place) | fields)
    if not sent:
        sent = send_blob(place, kind, pixels.chunks(), fields)
    slots.prepare(pixels.total_bytes)  # last: it would compete with this copy
    return sent


class PixelSender(SlotSender):
    """Sends large arrays by shared memory: they leave the training loop at the speed of a warm copy.

    Args:
        outbox: takes the jobs.
    """

    def __init__(self, outbox: JobOutbox) -> None:
        super().__init__(outbox)
        self.outbox = outbox

    def send(self, kind: str, pixels: Pixels, fields: dict[str, Any]) -> bool:
        """Copy pixels into a warm, free slot and send their job; False when that is not possible."""

        def fill(slot: Slot) -> Slot:
            with slot.memory(pixels.total_bytes) as memory:
                pixels.copy_into(memory)
            return slot

        def job(slot: Slot) -> bool:
            ref = slot.ref
            return self.outbox.job(kind, fields | {"slot": [ref.arena, ref.slot, ref.number]})

        if self._inside == threading.get_ident():  # a signal handler that records while we do
            return False
        with self._lock:
            self._inside = threading.get_ident()
            try:
                sent = self._send_in_slot(pixels.total_bytes, fill, job, patience_s=PREPARED_WAIT_S)
                return sent is not None
            finally:
                self._inside = None

    def prepare(self, nbytes: int) -> None:
        """Have slots made, in the background, for arrays of `nbytes` and a little more."""
        if nbytes >= MIN_SLOT_BYTES:
            self._prepare(nbytes)

    def prepare_one(self, sizes: Sequence[int]) -> None:
        """Have one slot made of the first of `sizes` that there is room for, before any size is known."""
        with self._lock:
            pool = self._current_pool()
            if pool is not None:
                pool.prepare_one(sizes)


def pixel_sender(outbox: JobOutbox | None) -> PixelSender | None:
    """What sends by shared memory in this process's stream; None where there is no such memory."""
    if outbox is None or outbox.stream_folder is None or not os.path.isdir(ARENA_FOLDER):
        return None
    state = _state()
    if state.slots is None or state.slots.outbox is not outbox:
        if outbox.agent_alive() and not outbox.agent_alive(memory=True):
            return None  # the agent is outside of this container
        if state.slots is not None:
            state.slots.close()
        state.slots = PixelSender(outbox)
    return state.slots
