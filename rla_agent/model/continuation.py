"""What an opening frame says about earlier files that its stream goes on in, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rla_agent.model.validate import number, whole
from rla_client.contract.errors import ArgumentError, RemoteProtocolError
from rla_client.contract.files import TEMP_PREFIX
from rla_client.contract.layout import check_relative
from rla_client.contract.segments import STREAM_NAME

MAX_AFTER = 1000  # earlier streams of one run in one spool
MAX_COUNT = 1 << 63  # of rows or bytes: what a file can have


@dataclass(frozen=True, slots=True)
class Continuation:
    """How much of the earlier files counts.

    Attributes:
        rows: of progress.csv and progress.json; None keeps all, unless `time_step` cuts.
        time_step: without `rows`, keep rows up to this time-step.
        event_file: the event file to cut; None cuts none.
        event_size: to how many bytes.
        abandoned: folder below the log folder for what is cut off, or replaced by a fork.
        after: streams of this spool whose records come before those of this one.
        staged: folder below the log folder whose files take their places when this stream begins: a
            fork's copy of the earlier run. Empty without one.
    """

    rows: int | None
    time_step: float | None
    event_file: str | None
    event_size: int
    abandoned: str
    after: tuple[str, ...] = ()
    staged: str = ""


def check_continuation(raw: Any) -> Continuation | None:  # noqa: ANN401 - foreign data
    """Check the field `continues`; None for a run of its own.

    Raises:
        RemoteProtocolError: it is not what a client writes.
    """
    if raw is None:
        return None
    try:
        rows, step, event = raw.get("rows"), raw.get("time_step"), raw.get("event_file")
        return Continuation(
            None if rows is None else whole(rows, MAX_COUNT),
            None if step is None else number(step),
            None if event is None else check_relative(str(event))[0],
            whole(raw.get("event_size", 0), MAX_COUNT),
            check_relative(str(raw.get("abandoned", "abandoned-1")))[0],
            tuple(str(name) for name in raw.get("after", ())[:MAX_AFTER] if STREAM_NAME.match(str(name))),
            _staged(raw.get("staged", "")),
        )
    except (TypeError, ValueError, OverflowError, AttributeError, ArgumentError) as error:
        message = f"continuation is not what a client writes: {error}"
        raise RemoteProtocolError(message) from error


def _staged(raw: Any) -> str:  # noqa: ANN401 - foreign data
    """The folder of a fork's copy; only a hidden one, so that no folder of the user's is emptied."""
    if not raw:
        return ""
    name = check_relative(str(raw))[0]
    if name.startswith(TEMP_PREFIX):
        return name
    message = f"{name!r} is not a folder that a client fills"
    raise ArgumentError(message)
