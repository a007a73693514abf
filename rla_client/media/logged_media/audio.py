"""A sound."""

from __future__ import annotations

import io
import os
import wave
from typing import Any, ClassVar

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.logged_value import LoggedValue, PathLike, Where, ending_of, to_array
from rla_client.media.result_file import keep_bytes, keep_copy

MAX_CHANNELS = 8
LOUDEST = 32767  # of 16 bits


class Audio(LoggedValue):
    """A sound: `log({"speech": Audio(samples, sample_rate=16_000)})` makes `<time-step>-speech.wav`.

    Args:
        data: samples of shape (N,), (N, channels) or (channels, N), floats in -1…1 or integers in the range
            of their type; or the path of a file, which is copied.
        sample_rate: samples per second.
    """

    is_event: ClassVar[bool] = True

    def __init__(self, data: Any, sample_rate: int = 44_100) -> None:  # noqa: ANN401 - see above
        self.data: Any = data.data if isinstance(data, Audio) else data
        self.sample_rate = int(sample_rate)

    def samples(self) -> Any:  # noqa: ANN401 - an array
        """The samples as floats in -1…1, shape (N, channels); None for a file.

        Raises:
            ArgumentError: the data has another shape or type.
        """
        import numpy as np  # noqa: PLC0415 - not at import of the package

        if isinstance(self.data, PathLike):
            return None
        found = to_array(self.data)
        if found.dtype.kind not in "iuf" or found.ndim not in {1, 2} or not found.size:
            raise ArgumentError(f"a sound has samples of shape (N,) or (N, channels), got {found.shape}")
        if found.dtype.kind in "iu":
            limits = np.iinfo(found.dtype)
            middle = 0 if found.dtype.kind == "i" else (limits.max + 1) / 2
            found = (found - middle) / (limits.max - middle)
        found = np.nan_to_num(np.clip(found.astype(np.float64), -1.0, 1.0))
        found = found[:, None] if found.ndim == 1 else found
        found = found.T if found.shape[0] <= MAX_CHANNELS < found.shape[1] else found
        if found.shape[1] > MAX_CHANNELS:
            raise ArgumentError(f"a sound has at most {MAX_CHANNELS} channels, got {found.shape[1]}")
        return found

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`."""
        return ending_of(self.data, ".wav")

    def save(self, name: str, where: Where) -> None:
        """See `LoggedValue.save`."""
        samples = self.samples()
        if samples is None:
            keep_copy(name, os.fspath(self.data), where)
            return
        content = io.BytesIO()
        with wave.open(content, "wb") as file:
            file.setnchannels(samples.shape[1])
            file.setsampwidth(2)
            file.setframerate(self.sample_rate)
            file.writeframes((samples * LOUDEST).astype("<i2").tobytes())
        keep_bytes(f"{name}.wav", content.getvalue(), where)
