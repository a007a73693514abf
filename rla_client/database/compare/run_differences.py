"""Differences between hyper-parameters or environments of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG
from rla_client.contract.run_file import run_file
from rla_client.database.json_files import read_json
from rla_client.database.records.environment import compared
from rla_client.database.records.record import Record
from rla_client.database.records.told_fields import ENVIRONMENT_FILE
from rla_client.run.parameters.hyper_params import differences

_ENVIRONMENT = ("host", "user", "versions")
Placed = tuple[Path, Record]


def run_differences(first: Placed, second: Placed) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Differences by section (`hyper-parameters`, `environment`): name → (value here, value there).

    Args:
        first: data root and record of a run.
        second: data root and record of the other run.
    """
    return {
        "hyper-parameters": differences(first[1].hyper.flat(), second[1].hyper.flat()),
        "environment": differences(_environment(*first), _environment(*second)),
    }


def _environment(data_root: Path, record: Record) -> dict[str, Any]:
    """Values of run.json and environment.json; a broken file counts as missing."""
    found: dict[str, Any] = {"host": record.host}
    with suppress(DatabaseError, OSError):
        path = data_root / LOG / record.table / record.index / ENVIRONMENT_FILE
        found |= compared(read_json(path) or {})
    about = run_file(data_root, record.table, record.index)
    for name in _ENVIRONMENT:
        value = about.get(name)
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": item for key, item in value.items()}
        elif value is not None:
            found[name] = value
    return found


def differing_keys(records: Sequence[Record]) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of hyper-parameters that differ between runs, and each run's flat hyper-parameters."""
    flats: list[dict[str, Any]] = [record.hyper.flat() for record in records]
    names = dict.fromkeys(name for flat in flats for name in flat)
    missing = object()
    keys = [name for name in names if len({repr(flat.get(name, missing)) for flat in flats}) > 1]
    return keys, flats
