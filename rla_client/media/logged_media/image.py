"""An image with a caption."""

from __future__ import annotations

import os
from typing import Any

from rla_client.media.logged_media.logged_value import LoggedValue, PathLike, Where, ending_of
from rla_client.media.result_file import keep_copy
from rla_client.stream.values import clean_text


class Image(LoggedValue):
    """An image: `log({"sample": Image(array, caption="step 10")})` makes `<time-step>-sample.png`.

    Args:
        data: an array or tensor of shape (H, W), (H, W, C) or (C, H, W) with C of 1, 3 or 4 (floats in 0…1,
            or 0…255), a PIL image, a figure of matplotlib, or the path of a file, which is copied.
        caption: stored in a PNG as its text `Description`, but not for a figure or a file.
    """

    def __init__(self, data: Any, caption: str | None = None) -> None:  # noqa: ANN401 - see above
        self.data: Any = data.data if isinstance(data, Image) else data
        self.caption = None if caption is None else clean_text(str(caption))

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`."""
        return ending_of(self.data, ".png")

    def save(self, name: str, where: Where) -> str:
        """See `LoggedValue.save`; returns the path of the file."""
        from rla_client.media.figure_recorder import MatplotlibRecorder  # noqa: PLC0415 - imports numpy
        from rla_client.media.image_recorder import ImgRecorder  # noqa: PLC0415 - as above

        if isinstance(self.data, PathLike):
            return keep_copy(name, os.fspath(self.data), where)
        if hasattr(self.data, "savefig"):
            return MatplotlibRecorder.save(name, self.data, **where)
        return ImgRecorder.save(name, self.data, caption=self.caption, **where)
