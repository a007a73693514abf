"""A video."""

from __future__ import annotations

import os
from typing import Any

from rla_client.media.logged_media.logged_value import LoggedValue, PathLike, Where, ending_of
from rla_client.media.result_file import keep_bytes, keep_copy


class Video(LoggedValue):
    """A video: `log({"episode": Video(frames, fps=30)})` makes `<time-step>-episode.mp4`.

    Args:
        data: an array or tensor of shape (T, H, W), (T, H, W, C) or (T, C, H, W), a list of images, or the
            path of a file or an open one, which is copied.
        fps: frames per second.
        format: `mp4` (needs ffmpeg, extra `media`) or `gif`.
    """

    def __init__(self, data: Any, fps: float = 30.0, format: str = "mp4") -> None:  # noqa: A002, ANN401 - wandb's name
        self.data: Any = data.data if isinstance(data, Video) else data
        self.fps, self.format = fps, format

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`."""
        return ending_of(self.data, f".{self.format}")

    def save(self, name: str, where: Where) -> None:
        """See `LoggedValue.save`."""
        from rla_client.media.video_recorder import VideoRecorder  # noqa: PLC0415 - imports numpy

        if isinstance(self.data, PathLike):
            keep_copy(name, os.fspath(self.data), where)
        elif hasattr(self.data, "read"):
            keep_bytes(f"{name}.{self.format}", self.data.read(), where)
        else:
            VideoRecorder.save(f"{name}.{self.format}", self.data, self.fps, **where)
