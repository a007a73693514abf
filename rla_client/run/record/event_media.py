"""Media files of TensorBoard's events.

The page shows these, `rla show` lists them; TensorBoard reads the event. What is too large for the spool, and
what comes after `MAX_KEPT` files of a run, is in the event alone: the caller waits for no other disk.
"""

from __future__ import annotations

from typing import Any

from rla_client.media.logged_media.encoded_media import EncodedMedia
from rla_client.media.recording_target import warn_once
from rla_client.media.result_file import MAX_FRAME_FILE
from rla_client.run.current_logger import get_current
from rla_client.run.record.run_logger import Logger

MAX_KEPT = 10_000  # files of a run: each is a file of the master, too


def keep_event_media(current: Logger, event: Any) -> None:  # noqa: ANN401 - an Event of some protobuf
    """Keep each picture and sound of an event as `<step>-<tag>.png`, `.gif`, `.wav`.

    Args:
        current: of the run that the event is of; while another one is open, nothing is kept.
        event: of torch's, tensorboardX's or TensorFlow's build.
    """
    if not event.HasField("summary"):
        return
    for value in event.summary.value:
        kind = value.WhichOneof("value")
        if kind not in {"image", "audio"} or get_current() is not current:
            continue
        content = value.image.encoded_image_string if kind == "image" else value.audio.encoded_audio_string
        media = EncodedMedia(content)
        if not media.ending or len(content) > MAX_FRAME_FILE:
            continue
        if current.event_media >= MAX_KEPT:
            warn_once("event media", f"pictures after the first {MAX_KEPT} are in TensorBoard's events alone")
            return
        current.event_media += 1
        current.save_media(value.tag, media, event.step)
