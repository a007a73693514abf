"""Encoding of TensorBoard events."""

from __future__ import annotations

import io
import struct
import wave
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, extra
from rla_client.stream.values import to_plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

with extra("tensorboard", "SummaryWriter"):
    import numpy as np
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.x2num import make_np

FLOAT = struct.Struct("<f")
_PCM16_BYTES = 2
_PCM16_MAX = 32767


def scalar_head(tag: str) -> bytes:
    """Fields `summary.value.tag` of an Event, up to the four bytes of `simple_value`."""
    name = tag.encode("utf-8", "backslashreplace")
    value = b"\x0a" + varint(len(name)) + name + b"\x15"
    inner = b"\x0a" + varint(len(value) + FLOAT.size) + value
    return b"\x2a" + varint(len(inner) + FLOAT.size) + inner


def varint(number: int) -> bytes:
    """A number as protobuf writes it, seven bits a byte."""
    found = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def plain_number(value: object) -> Any:  # noqa: ANN401
    """A Python number where there is one, also of text; else the value, for tensorboardX to judge."""
    plain: object = to_plain(value)
    if isinstance(plain, str):
        with suppress(ValueError):
            plain = float(plain)
    return plain if isinstance(plain, int | float) else value


def plain_param(value: object) -> bool | int | float | str:
    """A hyper-parameter as TensorBoard takes it."""
    plain = to_plain(value)
    return plain if isinstance(plain, bool | int | float | str) else str(plain)


def dense_array(values: Any) -> Any:  # noqa: ANN401
    """An array that tensorboardX can read: dense, and of a type that numpy has."""
    if hasattr(values, "detach"):
        values = values.detach()
        if str(getattr(values, "layout", "")).startswith("torch.sparse"):
            values = values.to_dense()
        if "float8" in str(values.dtype) or "bfloat16" in str(values.dtype):
            values = values.float()
    return values


def clipped_images(images: Any) -> Any:  # noqa: ANN401
    """Images whose values, where they are no bytes, are within 0…1."""
    found = make_np(dense_array(images))
    return found if found.dtype == np.uint8 else found.clip(0, 1)


def encoded_gif(frames: NDArray[np.uint8], fps: float) -> Summary.Image:
    """Frames as an animated GIF.

    Raises:
        ArgumentError: there is none.
    """
    from PIL import Image  # noqa: PLC0415

    count, height, width, channels = frames.shape
    if not count:
        raise ArgumentError("a video needs one frame at least")
    pictures = [Image.fromarray(frame[..., 0] if channels == 1 else frame) for frame in frames]
    with io.BytesIO() as target:
        pictures[0].save(
            target, "GIF", save_all=True, append_images=pictures[1:], duration=1000 / fps, loop=0
        )
        encoded = target.getvalue()
    return Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=encoded)


def encoded_wav(sound: NDArray[Any], sample_rate: int) -> Summary.Audio:
    """Sound as 16-bit WAV.

    Raises:
        ArgumentError: its shape is no sound's.
    """
    if sound.ndim == 1:
        sound = sound[:, None]
    elif sound.ndim == 2 and sound.shape[0] <= 2 < sound.shape[1]:  # noqa: PLR2004 - (channels, frames)
        sound = sound.T
    if sound.ndim != 2 or sound.shape[1] not in {1, 2}:  # noqa: PLR2004
        raise ArgumentError(
            f"sound has shape (frames,) or (frames, channels) with 1 or 2 channels, not {sound.shape}"
        )
    frames, channels = sound.shape
    samples = np.rint(np.nan_to_num(sound).clip(-1, 1) * _PCM16_MAX).astype("<i2")
    with io.BytesIO() as target:
        with wave.open(target, "wb") as out:
            out.setnchannels(channels)
            out.setsampwidth(_PCM16_BYTES)
            out.setframerate(sample_rate)
            out.writeframes(samples.tobytes())
        encoded = target.getvalue()
    return Summary.Audio(
        sample_rate=sample_rate,
        num_channels=channels,
        length_frames=frames,
        encoded_audio_string=encoded,
        content_type="audio/wav",
    )
