"""Conversion of foreign values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.text.bounded_parsing import MAX_VALUES, parse_json
from rla_client.database.records.record_reader import MAX_TIME


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values under dotted names; a file of wandb or trackio (with `_type`) becomes its path."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if not isinstance(value, Mapping):
            yield name, value
        elif "_type" not in value:
            yield from flat(value, f"{name}.")
        else:
            yield name, value.get("path") or value.get("file_path") or value


def typed(text: str) -> object:
    """The number or truth value that a text spells exactly, else the text: "0.1" is one, "007" is not."""
    known = {"True": True, "False": False, "None": None}
    if text in known:
        return known[text]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if repr(value) == text:
            return value
    return text


def seconds_of(value: str | float | None) -> float | None:
    """Unix seconds of a number or an ISO text (UTC without a zone); None if missing or out of range."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        when = datetime.fromisoformat(value.replace("Z", "+00:00"))
        value = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    found = float(value)
    return found if 0 <= found < MAX_TIME else None


def read_object(path: Path, data: bytes | str, max_values: int = MAX_VALUES) -> dict[str, Any]:
    """A JSON object from a foreign record.

    Raises:
        BrokenFileError: it is no JSON object, or exceeds the bounds.
    """
    try:
        found = parse_json(data.encode() if isinstance(data, str) else data, max_values)
    except ValueError as error:
        raise BrokenFileError(os.fspath(path), f"no valid JSON ({error})") from error
    if not isinstance(found, dict):
        raise BrokenFileError(os.fspath(path), "a record is not a JSON object")
    return found
