"""Media files of TensorBoard's events.

The page shows these, `rla show` lists them; TensorBoard reads the event.
"""

from __future__ import annotations

from typing import Any

from rla_client.media.values.encoded_media import EncodedMedia
from rla_client.run.current_logger import get_current
from rla_client.run.record.run_logger import Logger


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
        if media.ending:
            current.save_media(value.tag, media, event.step)
