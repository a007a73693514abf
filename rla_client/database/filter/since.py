"""Parser of dates or ages (`since=`)."""

from __future__ import annotations

from datetime import datetime

from rla_client.contract.errors import ArgumentError

Since = str | float | datetime | None


def parse_since(since: Since, now: float) -> float | None:
    """Unix seconds of a date or an age.

    Raises:
        ArgumentError: the text is neither.
    """
    if since is None or isinstance(since, int | float):
        return since
    if isinstance(since, datetime):
        return since.timestamp()
    units = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
    if since[-1:] in units and since[:-1].replace(".", "", 1).isdecimal():
        return now - float(since[:-1]) * units[since[-1]]
    try:
        return datetime.fromisoformat(since.replace("/", "-")).timestamp()
    except (ValueError, OverflowError) as error:
        message = f"{since!r} is not a date; write 2026/11/21, 2026-11-21T09:30, or an age such as 36h, 7d"
        raise ArgumentError(message) from error
