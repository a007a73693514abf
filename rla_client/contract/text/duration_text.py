"""Durations as text."""

from __future__ import annotations


def duration_text(seconds: float | None) -> str | None:
    """A duration as text: `3.2s`, `12m05s`, `3h12m`, `4d03h`; None stays None."""
    if seconds is None:
        return None
    seconds = max(seconds, 0.0)  # clocks are set back
    if seconds < 59.95:  # noqa: PLR2004 - from there it would print as 60.0s
        return f"{seconds:.1f}s"
    minutes, rest = divmod(max(int(seconds), 60), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
