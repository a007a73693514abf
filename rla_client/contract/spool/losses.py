"""Loss counts of a run.

Lost rows are counted in `lost` of run.json. Everything else, a figure, a video, a checkpoint, a file, text,
is counted as well (`lost_others`), and `losses` has the kind, name and reason: the newest MAX_LOSSES, one of
each kind and name. A client reports its part in a mark of its stream, cumulative over the stream::

    ["lost", {"rows": n, "others": n, "losses": [[kind, name, reason], …], "time": …}]

The agent adds its own losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rla_client.contract.errors import RlaError
from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack
from rla_client.contract.text.terminal_text import printable

MAX_LOSSES = 20  # that are named
MAX_CHARS = 300  # of a name, or a reason
LOST_MARK = "lost"
ROW = "row"
_KINDS: dict[int, str] = {
    FrameKind.ROW: ROW, FrameKind.TEXT: "text", FrameKind.EVENT: "TensorBoard event", FrameKind.MARK: "note",
    FrameKind.SAMPLES: "samples",
}  # fmt: skip


class Loss(NamedTuple):
    """Something that was lost: `kind` is row, text, figure, checkpoint, file, …; `name` a file, or empty."""

    kind: str
    name: str
    reason: str

    def told(self) -> Loss:
        """Its stored form: the last line of a traceback, each part on one line and not too long."""
        lines = self.reason.strip().splitlines() or [""]
        kind, name, reason = (printable(part)[:MAX_CHARS] for part in (self.kind, self.name, lines[-1]))
        return Loss(kind, name, reason)

    def __str__(self) -> str:
        what = " ".join(part for part in (self.kind, self.name) if part)
        return f"{what}: {self.reason}" if self.reason else what


def merged(known: Sequence[Loss], new: Iterable[Loss]) -> tuple[Loss, ...]:
    """One of each kind and name, the newest last, at most MAX_LOSSES."""
    found = {(loss.kind, loss.name): loss for loss in known}
    for loss in map(Loss.told, new):
        found.pop((loss.kind, loss.name), None)
        found[loss.kind, loss.name] = loss
    return tuple(list(found.values())[-MAX_LOSSES:])


def read_losses(plain: object) -> list[Loss]:
    """Parse the losses of a mark or run.json; invalid ones are left out."""
    if not isinstance(plain, list):
        return []
    found = []
    for entry in plain[-MAX_LOSSES:]:
        match entry:
            case [str() as kind, str() as name, str() as reason]:
                found.append(Loss(kind, name, reason).told())
            case {"kind": str() as kind, "name": str() as name, "reason": str() as reason}:
                found.append(Loss(kind, name, reason).told())
    return found


def of_job(kind: str, fields: object) -> tuple[str, str]:
    """Kind and name of a job's result."""
    if not isinstance(fields, dict):
        return kind, ""
    step, name = fields.get("time_step"), fields.get("name")
    if isinstance(fields.get("names"), list) and fields["names"]:
        name = fields["names"][0]
    if not isinstance(name, str):
        return kind, ""
    return kind, f"{name}_{step}.pt" if isinstance(step, int) else name


def of_frame(frame: bytes) -> tuple[str, str]:
    """Kind and name of a frame's content."""
    for found in iter_frames(frame):
        if found.kind in _KINDS:
            return _KINDS[found.kind], ""
        with suppress(RlaError):
            match found.kind, unpack(found.payload):
                case FrameKind.JOB, [str() as kind, fields]:
                    return of_job(kind, fields)
                case FrameKind.FILE, [_, str() as path, _]:
                    return "file", path
    return "record", ""


def count_text(rows: int, others: int) -> str:
    """`3 rows and 1 other thing`; empty where nothing was lost."""
    parts = [f"{count} {word}{'' if count == 1 else 's'}"
             for count, word in ((rows, "row"), (others, "other thing")) if count]  # fmt: skip
    return " and ".join(parts)


def lost_lines(run: Mapping[str, Any]) -> list[str]:
    """Report of a run's losses, from the fields of run.json: a sum, then a line for each named one."""
    rows, others = (run.get(field) for field in ("lost", "lost_others"))
    said = count_text(*(count if type(count) is int and count > 0 else 0 for count in (rows, others)))
    return [f"lost: {said}", *map(str, read_losses(run.get("losses")))] if said else []
