"""Summary of a captured run in one line (`captured.json`, see `rla_client/capture`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.database.text.numbers import bytes_text

CAPTURED_NAME = "captured.json"


def captured_text(log_folder: str | Path) -> str:
    """Summary line of a run; empty for a run that was not captured."""
    with suppress(OSError, ValueError, RlaError):
        found = parse_json(read_small(Path(log_folder) / CAPTURED_NAME))
        return _text(found) if isinstance(found, dict) else ""
    return ""


def _text(found: Mapping[str, Any]) -> str:
    sources = [_source(name, counts) for name, counts in _entries(found, "sources") if name != "log_dir"]
    skipped = [
        f"{number} {kind}{'s' * (number != 1)}{f' of {bytes_text(size)}' if size else ''}"
        for _, kinds in _entries(found, "skipped")
        for kind, (number, size) in _pairs(kinds)
    ]
    off = [name for name, _ in _entries(found, "off")]
    parts = [f"from {', '.join(sources)}" if sources else "nothing"]
    parts += [f"skipped: {', '.join(skipped)}"] * bool(skipped) + [f"off: {', '.join(off)}"] * bool(off)
    return "; ".join(parts)


def _source(name: str, counts: object) -> str:
    number = counts.get("parameters") if isinstance(counts, dict) else None
    return f"{name} ({number} parameter{'s' * (number != 1)})" if isinstance(number, int) else name


def _entries(found: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    inside = found.get(key)
    return [(str(name), value) for name, value in inside.items()] if isinstance(inside, dict) else []


def _pairs(kinds: object) -> list[tuple[str, tuple[int, int]]]:
    """(kind, (number, bytes)) of the well-formed entries."""
    if not isinstance(kinds, dict):
        return []
    return [
        (str(kind), (pair[0], pair[1]))
        for kind, pair in kinds.items()
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, int) for one in pair)  # noqa: PLR2004
    ]
