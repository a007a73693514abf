"""Decision about one file. Pure: no I/O, no clock.

`decide` compares the local file (`Local`), the agent's state of it (`Owned`: it only grows, with a committed
size) and the ledger's row (`SentRecord`) and returns one action. There are three sorts of files: *owned* ones
are sent up to their committed size; *growing* ones (names of logs, unknown to the agent) up to their last
complete record; all others completely, once they rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from rla_agent.replicate.file_state import Local, Owned, SentRecord
from rla_client.contract.layout import CHECKPOINT, LOG, OUTPUT_NAMES, SAMPLES, is_samples_file

REST_S: Final = 1.0  # an unannounced file is sent once it was unchanged for so long …
OVERDUE_S: Final = 15.0  # … or has waited so long
TORN_TAIL_REST_S: Final = 10.0  # after so long an incomplete record at the end stays incomplete
WHOLE_BACKLOG_BYTES: Final = 1 << 20  # more than this goes by temp + rename,
WHOLE_BACKLOG_FACTOR: Final = 20  # if little of the file is on the master
SMALL_BYTES: Final = 128 << 10  # batched, up to here
MAX_TRIES: Final = 12  # of one file whose failure is not the link's
URGENT, SOON, LATER, LAST = range(4)  # priorities: live and small log files; small; large; checkpoints
_NAMES: Final = "|".join(  # progress.csv, progress.<label>.csv, log.<label>.txt, …
    rf"{stem}(\.[^/]*)?\.txt" if ending == "txt" else rf"{stem}[^/]*\.{ending}"
    for stem, _, ending in (name.partition(".") for name in OUTPUT_NAMES.values())
)
_GROWING: Final = re.compile(rf"({_NAMES}|system(\.[A-Za-z0-9-]+)?\.csv|events\.out\.tfevents\..*)".encode())


@dataclass(frozen=True, slots=True)
class UpToDate:
    """The master has it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Decide again in `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ReplaceFile:
    """Send `size` bytes by temp name and rename.

    `cut`: only up to the last whole record; `compare`: only if the content differs from the
    record's; `grows`: that the file grows meanwhile does no harm.
    """

    size: int
    generation: int = 0
    cut: bool = False
    compare: bool = False
    grows: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Send bytes from `offset` to `upto`.

    `cut`: only up to the last whole record; `owned`: the agent wrote the bytes before `offset`. Any
    other file may have been rewritten there, so they are compared with what was sent.
    """

    offset: int
    upto: int
    generation: int = 0
    cut: bool = False
    owned: bool = False


@dataclass(frozen=True, slots=True)
class SetMode:
    """Set these permission bits on the master, which has the content."""

    mode: int


Action: TypeAlias = "UpToDate | Wait | ReplaceFile | Append | SetMode"


def is_growing(kind: str, name: bytes) -> bool:
    """Whether a file of this name only grows, as long as nobody rewrites it."""
    if kind == SAMPLES:
        return is_samples_file(name.decode("utf-8", "replace"))
    return kind == LOG and _GROWING.fullmatch(name) is not None


def decide(
    local: Local,
    owned: Owned | None,
    record: SentRecord | None,
    *,
    growing: bool,
    rest_s: float,
    waited_s: float,
) -> Action:
    """The action for a file.

    Args:
        local: the local file.
        owned: the agent's state, if it is one of its outputs.
        record: the ledger's row, if it was sent before.
        growing: `is_growing`.
        rest_s: seconds since it was last written.
        waited_s: seconds since it was first seen as changed.
    """
    action = _decide(local, owned, record, growing=growing, rest_s=rest_s, waited_s=waited_s)
    if isinstance(action, UpToDate) and record is not None and local.mode not in {None, record.local.mode}:
        assert local.mode is not None
        return SetMode(local.mode)
    return action


def _decide(  # noqa: PLR0911 - one return per case
    local: Local,
    owned: Owned | None,
    record: SentRecord | None,
    *,
    growing: bool,
    rest_s: float,
    waited_s: float,
) -> Action:
    if record is not None and record.generation < 0:  # the content differs
        if owned is not None:
            return ReplaceFile(min(owned.size, local.size), owned.generation, grows=True)
        return ReplaceFile(local.size, grows=growing)
    if owned is not None:
        upto = min(owned.size, local.size)
        return _grow(upto, owned.generation, local, record, cut=False, owned=True)
    if growing:
        cut = rest_s < TORN_TAIL_REST_S
        if record is not None and local.size == record.acked and local != record.local:
            return ReplaceFile(local.size, record.generation, cut=cut, compare=True, grows=True)
        generation = record.generation if record is not None else 0
        return _grow(local.size, generation, local, record, cut=cut)
    if record is not None and local == record.local and local.size == record.acked:
        return UpToDate()
    if rest_s < REST_S and waited_s < OVERDUE_S:
        return Wait(REST_S - rest_s if rest_s >= 0 else REST_S)
    untouched = record is not None and (local.size, local.mtime_ns) == (
        record.local.size,
        record.local.mtime_ns,
    )
    return ReplaceFile(local.size, compare=untouched)


def _grow(
    upto: int, generation: int, local: Local, record: SentRecord | None, *, cut: bool, owned: bool = False
) -> Action:
    if record is None or record.generation != generation or record.acked > upto:
        return ReplaceFile(upto, generation, cut=cut, grows=True)
    if record.local.ino != local.ino:
        return ReplaceFile(upto, generation, cut=cut, compare=True, grows=True)
    if record.acked == upto:
        return UpToDate()
    backlog = upto - record.acked
    if backlog > WHOLE_BACKLOG_BYTES and backlog > WHOLE_BACKLOG_FACTOR * record.acked:
        return ReplaceFile(upto, generation, cut=cut, grows=True)
    return Append(record.acked, upto, generation, cut=cut, owned=owned)


def priority(kind: str, size: int) -> int:
    """Priority of a file: small and live files first, checkpoints last."""
    if kind == CHECKPOINT:
        return LAST
    if size > SMALL_BYTES:
        return LATER
    return URGENT if kind == LOG else SOON
