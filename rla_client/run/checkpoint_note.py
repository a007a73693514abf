"""Notes of checkpoints that another library writes.

A framework chooses its own folder, and often writes many gigabytes for minutes. The run stores the path, with
time-step and metrics, as custom data: readers list the folder, and none of our code copies, loads or deletes
it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.safe_names import check_relative
from rla_client.run.run_data import RunData
from rla_client.run.state.run_archive import save_archive
from rla_client.stream.values import to_plain

MAX_NOTED = 1000  # the newest notes; the archive is rewritten with each
NOTED = "noted_checkpoints"  # key of the custom data: a list of notes


def note_checkpoint(
    data: RunData,
    path: str | os.PathLike[str],
    step: float | None,
    metrics: Mapping[str, object] | None,
    marker: str,
) -> None:
    """See `ExpManager.note_checkpoint`."""
    try:
        where = os.path.abspath(os.fspath(path))
        found = {str(name): _number(value) for name, value in (metrics or {}).items()}
        when = float(data.clock.get_time() if step is None else _number(step))
        if marker:
            check_relative(marker)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ArgumentError(
            "note_checkpoint takes a path, a time-step, metrics as {name: number} and the name of a file: "
            f"{error}"
        ) from error
    note: dict[str, Any] = {"path": where, "step": when, "metrics": found, "marker": marker}
    held = data.custom.values.get(NOTED)
    earlier = (
        [one for one in held if isinstance(one, dict) and one.get("path") != where]
        if isinstance(held, list)
        else []
    )
    data.custom.add(NOTED, [*earlier[1 - MAX_NOTED :], {**note, "host": os.uname().nodename}], mode="replace")
    save_archive(data)


def _number(value: object) -> float:
    plain = to_plain(value)
    if not isinstance(plain, int | float):
        raise TypeError(f"{value!r:.100} is no number")
    return float(plain)
