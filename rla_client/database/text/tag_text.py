"""Tags of a run as one text."""

from __future__ import annotations

from collections.abc import Sequence


def tags_text(tags: Sequence[str]) -> str:
    """Tags separated by blanks; by commas if a tag holds a blank."""
    return (", " if any(" " in tag for tag in tags) else " ").join(tags)
