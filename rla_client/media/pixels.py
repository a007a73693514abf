"""Raw pixels of images or videos.

Accepted are numpy arrays, torch tensors, PIL images, and everything that numpy converts to an array.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.contract.errors import ArgumentError
from rla_client.contract.job.media_job import MAX_FRAMES, MAX_RAW_BYTES, MAX_SIDE
from rla_client.media.pixel_sender import Pixels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


CHANNELS = (1, 3, 4)
TYPES = frozenset({
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
    "float64",
})  # fmt: skip


def image_pixels(image: object) -> Pixels:
    """Pixels of one image, shape (H, W), (H, W, C) or (C, H, W).

    Raises:
        ArgumentError: the object is not an image.
    """
    array = _frame(_as_array(image))
    return Pixels((1, *array.shape), _type_name(array.dtype), (array[None],))


def video_pixels(frames: object) -> Pixels:
    """Pixels of a video: an array (T, H, W), (T, H, W, C) or (T, C, H, W), or a sequence of images.

    Raises:
        ArgumentError: the object is not a video, or its frames differ in shape or type.
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
    if type(value) is np.ndarray:  # the usual case
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if hasattr(value, "detach"):
        try:
            value = value.detach().cpu()
            try:
                return value.numpy()
            except TypeError:  # bfloat16, which numpy does not have
                return value.float().numpy()
        except (NotImplementedError, RuntimeError, TypeError) as error:  # sparse, meta, quantised
            raise ArgumentError(f"this tensor cannot be read as an image: {error}") from error
    if hasattr(value, "getbands"):
        modes = {"1": "L", "LA": "RGBA", "PA": "RGBA", "P": "RGBA" if "transparency" in value.info else "RGB"}
        own = {"L", "RGB", "RGBA", "F", "I"}  # modes that need no conversion
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
    return str(dtype.name)  # cached, as numpy computes the name in Python


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
