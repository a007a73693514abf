"""Lines of a code diff for the page."""

from __future__ import annotations

from typing import Any

from rla_client.web.readable_text import readable

MAX_DIFF_LINES = 20_000


def diff_lines(diff: str) -> dict[str, Any]:
    """The first `MAX_DIFF_LINES` lines of a diff, and the `count` of all."""
    lines = readable(diff.encode("utf-8", "replace")).split("\n") if diff else []
    return {"lines": lines[:MAX_DIFF_LINES], "count": len(lines)}
