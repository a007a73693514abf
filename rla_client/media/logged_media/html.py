"""A page."""

from __future__ import annotations

import os
from typing import Any

from rla_client.media.logged_media.logged_value import LoggedValue, Where
from rla_client.media.result_file import keep_bytes, keep_copy


class Html(LoggedValue):
    """A page: `log({"report": Html("<h1>done</h1>")})` makes `<time-step>-report.html`.

    Args:
        data: text of a page, the path of a file that ends in `.html`, or an open file.
    """

    def __init__(self, data: Any) -> None:  # noqa: ANN401 - see above
        self.data = data

    @property
    def ending(self) -> str:
        """See `LoggedValue.ending`."""
        return ".html"

    def save(self, name: str, where: Where) -> None:
        """See `LoggedValue.save`."""
        page = self.data.read() if hasattr(self.data, "read") else self.data
        if isinstance(page, os.PathLike) or (
            isinstance(page, str) and page.endswith(".html") and os.path.isfile(page)
        ):
            keep_copy(name, os.fspath(page), where)
            return
        content = page if isinstance(page, bytes) else str(page).encode("utf-8", "backslashreplace")
        keep_bytes(f"{name}.html", content, where)
