"""Snapshot modes of garage.

all           itr_N.pkl at every epoch
last          params.pkl at every epoch
gap           itr_N.pkl where N is a multiple of the gap
gap_and_last  both of these
gap_overwrite params.pkl where N is a multiple of the gap (> 1)
none          nothing
"""

from __future__ import annotations

from rla_client.contract.errors import ArgumentError
from rla_client.stream.values import whole_number

SNAPSHOT_MODES = ("all", "last", "gap", "gap_and_last", "gap_overwrite", "none")
LAST_FILE = "params.pkl"


def check_mode(mode: object, gap: object) -> int:
    """Check a mode and its gap; returns the gap.

    Raises:
        ArgumentError: unknown mode, gap below 1, `last` with a gap over 1, or `gap_overwrite` with gap 1.
    """
    if mode not in SNAPSHOT_MODES:
        raise ArgumentError(f"snapshot_mode must be one of {', '.join(SNAPSHOT_MODES)}; got {mode!r}")
    gap = whole_number(gap, "snapshot_gap")
    if mode == "last" and gap != 1:
        message = f"snapshot_mode 'last' saves every epoch; for snapshot_gap={gap} use 'gap_overwrite'"
        raise ArgumentError(message)
    if mode == "gap_overwrite" and gap == 1:
        message = "snapshot_mode 'gap_overwrite' needs a snapshot_gap over 1; for every epoch use 'last'"
        raise ArgumentError(message)
    return gap


def snapshot_names(mode: str, gap: int, itr: int) -> tuple[str, ...]:
    """Names of the files that epoch `itr` writes with a checked mode and gap."""
    numbered = f"itr_{itr}.pkl"
    due = itr % gap == 0
    names = {
        "all": (numbered,),
        "last": (LAST_FILE,),
        "gap": (numbered,) if due else (),
        "gap_and_last": (numbered, LAST_FILE) if due else (LAST_FILE,),
        "gap_overwrite": (LAST_FILE,) if due else (),
        "none": (),
    }
    return names[mode]
