"""An encoded picture, film or sound."""

from __future__ import annotations

from typing import Final

from rla_client.media.logged_media.logged_value import LoggedValue, Where
from rla_client.media.result_file import keep_bytes

_ENDINGS: Final = {
    b"\x89PNG\r\n\x1a\n": ".png",
    b"GIF8": ".gif",
    b"\xff\xd8\xff": ".jpg",
}  # by the first bytes of a file


class EncodedMedia(LoggedValue):
    """The content of a media file.

    Args:
        content: bytes of the file.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`; empty for unsupported content."""
        if self.content[:4] + self.content[8:12] == b"RIFFWAVE":
            return ".wav"
        return next((ending for head, ending in _ENDINGS.items() if self.content.startswith(head)), "")

    def save(self, name: str, where: Where) -> None:
        """See `LoggedValue.save`."""
        keep_bytes(f"{name}{self.ending}", self.content, where)
