"""Safe reader of a run's small JSON files."""

from __future__ import annotations

import os
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import MAX_SMALL_BYTES, read_small
from rla_client.contract.text.bounded_parsing import MAX_VALUES, parse_json


def read_json(
    path: str | os.PathLike[str], max_bytes: int = MAX_SMALL_BYTES, max_values: int = MAX_VALUES
) -> dict[str, Any] | None:
    """A JSON object; None if there is no such file.

    Raises:
        BrokenFileError: it is no regular file, no JSON object, or larger than the bounds.
    """
    try:
        data = read_small(path, max_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = parse_json(data, max_values)
    except ValueError as error:
        raise BrokenFileError(os.fspath(path), f"no valid JSON ({error})") from error
    if not isinstance(found, dict):
        raise BrokenFileError(os.fspath(path), "it holds no JSON object")
    return found
