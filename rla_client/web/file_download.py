"""Download of a file by a browser.

A browser shows pictures, films, sounds and plain text; it saves other files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from rla_client.web.item_files import asked_file
from rla_client.web.run_registry import Site

SEND_BYTES = 256 << 10
FOREIGN = {  # headers of a run's files, which a browser must never execute
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SHOWN = {  # media types that a browser shows in the page without executing anything
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
    ".webp": "image/webp", ".svg": "image/svg+xml", ".mp4": "video/mp4", ".webm": "video/webm",
    ".wav": "audio/wav", ".mp3": "audio/mpeg",
}  # fmt: skip
_TEXT = re.compile(r"\.(txt|log|csv|jsonl?|ya?ml|md|rst|py|sh|toml|cfg|ini|c|cc|cpp|h|cu)", re.IGNORECASE)
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def send(site: Site, asked: dict[str, Any]) -> Response:
    """Send a file to the browser, or the range of it that the request names."""
    with asked_file(site, asked) as opened:
        file = os.fdopen(os.dup(opened.fileno()), "rb")
    state = os.fstat(file.fileno())
    tag = f'"{state.st_mtime_ns:x}-{state.st_size:x}"'
    headers = {**FOREIGN, "Accept-Ranges": "bytes", "ETag": tag, "Cache-Control": "private, no-cache"}
    if asked.get("if-none-match") == tag:
        file.close()
        return Response(status_code=304, headers=headers)
    name = str(asked["path"]).rpartition("/")[2]
    suffix = os.path.splitext(name)[1].lower()
    media_type = SHOWN.get(suffix) or ("text/plain; charset=utf-8" if _TEXT.fullmatch(suffix) else None)
    if media_type is None or asked.get("save"):
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    if media_type is None:
        media_type = "application/pdf" if suffix == ".pdf" else "application/octet-stream"
    changed = asked.get("if-range") not in {None, tag}  # the browser's part is of an older content
    wanted = None if changed else _asked_range(asked.get("range"))
    span = (0, state.st_size) if wanted is None else _range(wanted, state.st_size)
    if span is None:
        file.close()
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{state.st_size}"})
    start, end = span
    headers["Content-Length"] = str(end - start)
    if wanted is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{state.st_size}"
    return StreamingResponse(_pieces(file, start, end), 200 if wanted is None else 206, headers, media_type)


def _asked_range(header: object) -> tuple[int | None, int | None] | None:
    """First and last byte, either may be None; None for an unsupported range, so that all is sent."""
    match = _RANGE.fullmatch(str(header or "").strip())
    if match is None or not (match[1] or match[2]):
        return None
    first, last = (int(text) if text else None for text in match.groups())
    return None if first is not None and last is not None and last < first else (first, last)


def _range(wanted: tuple[int | None, int | None], size: int) -> tuple[int, int] | None:
    """(begin, end) of the bytes to send; None for a range beyond the end."""
    first, last = wanted
    if first is None:
        start, end = max(0, size - (last or 0)), size
    else:
        start, end = first, size if last is None else min(size, last + 1)
    return (start, end) if start < end else None


def _pieces(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    with file:
        file.seek(start)
        while start < end and (block := file.read(min(SEND_BYTES, end - start))):
            start += len(block)
            yield block
