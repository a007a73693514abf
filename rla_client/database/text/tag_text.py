"""Tags of a run as one text."""

from __future__ import annotations

from collections.abc import Sequence


def tags_text(tags: Sequence[str]) -> str:
    """The tags with blanks between them; with commas where one holds a blank itself."""
    return (", " if any(" " in tag for tag in tags) else " ").join(tags)
