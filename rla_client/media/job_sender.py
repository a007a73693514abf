"""Rendering of a recorded figure, image or video.

`send_blob` writes the payload into a blob of the spool, then the JOB frame. `record_pixels` copies raw pixels
into shared memory if a warm slot is free, or else into a blob. `make_here` does the work in the caller.
Failures of disk, agent or spool raise no errors; they are warnings, once for each reason.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import sys
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO

from rla_client.contract.errors import PlaceError
from rla_client.contract.filesystem.atomic_write import NEW_FLAGS, atomic_file
from rla_client.contract.filesystem.trusted_paths import program_problem
from rla_client.contract.job.media_job import JOB_IMAGE, MAX_CAPTION_CHARS
from rla_client.contract.process.descriptors import open_high
from rla_client.media import render
from rla_client.media.job_outbox import JobOutbox
from rla_client.media.pixel_sender import MIN_SLOT_BYTES, Pixels
from rla_client.media.recording_place import RecordingPlace
from rla_client.media.recording_target import lose, pixel_sender, recording_state, warn_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Buffer


AGENT_START_S = 10.0  # an agent that was started with the run may still be starting


def can_send(place: RecordingPlace) -> bool:
    """Whether the job can be sent to the agent; warns once if not."""
    if place.outbox is None:
        return False
    problem = _own_interpreter_problem()
    if problem is not None:
        warn_once("interpreter", f"figures and media are made by the training process: {problem}")
        return False
    starting = time.monotonic() - recording_state().bound_at < AGENT_START_S
    if place.outbox.agent_alive() or starting:
        return True
    warn_once(
        "agent", "no agent runs: figures and media are made by the training process, which waits for them"
    )
    return False


@cache
def _own_interpreter_problem() -> PlaceError | None:
    """Why the agent would refuse to use this interpreter: another user could replace it."""
    return program_problem(sys.executable) if os.path.exists(sys.executable or "") else None


def send_blob(place: RecordingPlace, kind: str, chunks: Iterable[Any], fields: dict[str, Any]) -> bool:
    """Write a blob and its job frame; returns False, with a warning, if the spool does not accept them."""
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
    """Warn once that the stream accepts no job, with the reason: the spool is full, or the run has ended."""
    why = outbox.why_refused
    warn_once(why, f"{why} and takes no {kind}: the training process makes it")


def check_room(room: int) -> None:
    """Check the bytes that would be left in the spool after a payload.

    Raises:
        OSError: `room` is negative.
    """
    if room < 0:
        raise OSError(errno.EDQUOT, "AGENT.spool_max_bytes is reached")


def write_all(descriptor: int, data: Buffer, at: int) -> int:
    """Write a complete buffer at offset `at`; returns the offset behind it.

    Raises:
        OSError: the file cannot be written.
    """
    rest = memoryview(data).cast("B")
    while len(rest):
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written
    return at


def job_fields(place: RecordingPlace) -> dict[str, Any]:
    """The fields of a job that describe its file."""
    return {"name": place.name, "format": place.format, "cover": place.cover}


def make_here(place: RecordingPlace, kind: str, draw: Callable[[BinaryIO], object]) -> None:
    """Make the file in this process. A failure of the disk is a warning; other errors are raised."""
    target = recording_state().target
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


def record_pixels(place: RecordingPlace, kind: str, pixels: Pixels, fps: float, caption: str = "") -> None:
    """Send raw pixels to the agent, or encode them here; only images have a caption."""
    fields: dict[str, Any] = {"shape": list(pixels.shape), "dtype": pixels.dtype, "fps": fps}
    if caption:
        fields["caption"] = caption[:MAX_CAPTION_CHARS]
    if can_send(place) and _send_pixels(place, kind, pixels, fields):
        return
    encode_here(place, kind, io.BytesIO(b"".join(pixels.chunks())), fields)


def encode_here(place: RecordingPlace, kind: str, raw: BinaryIO, fields: dict[str, Any]) -> None:
    """Encode raw pixels in this process."""
    request = fields | {"format": place.format, "offset": 0}
    encode = render.encode_image if kind == JOB_IMAGE else render.encode_video
    make_here(place, kind, lambda file: encode(raw, file, request))


def _send_pixels(place: RecordingPlace, kind: str, pixels: Pixels, fields: dict[str, Any]) -> bool:
    slots = pixel_sender(place.outbox) if pixels.total_bytes >= MIN_SLOT_BYTES else None
    if slots is None:
        return send_blob(place, kind, pixels.chunks(), fields)
    sent = slots.send(kind, pixels, job_fields(place) | fields)
    if not sent:
        sent = send_blob(place, kind, pixels.chunks(), fields)
    slots.prepare(pixels.total_bytes)  # last, as it would compete with the copy
    return sent
